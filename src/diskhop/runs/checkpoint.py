"""Checkpoints: safetensors files with a checksum that appear whole.

The checksum (xxh3 of the whole file, counted with 16 zeros in its place) is a string in the metadata that safetensors
allows, so any reader of safetensors opens the file, and tensors and checksum are committed by one rename.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
import xxhash
from torch import Tensor

from diskhop.errors import TrainingError
from diskhop.io.atomic import Injector, write_file

_NO_SUM = "0" * 16
# The metadata is a JSON string inside the JSON header, hence the backslashes.
_SUM_KEY = rb"\"xxh3\":\""
_NOWHERE = -1
_DONE = "part/done"
_PART_FACTS = ("loss_sum", "loss_weight", "record")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpochPart:
    """Sums of an epoch so far.

    done: numbers of the batches of its steps so far, int64, ascending.
    loss_sum: of their losses, each times its weight.
    loss_weight: of all of them.
    record: counts and seconds so far, as in result.json.
    """

    done: Tensor
    loss_sum: float
    loss_weight: float
    record: dict[str, Any]


@dataclass(slots=True, eq=False)
class TrainingState:
    """Everything that training needs to resume after an epoch, or after a step of the next one.

    epoch: epochs done.
    model: parameters by name.
    optimizer: see Adam.tensors().
    best_model: parameters of the best model by validation, or of the last one without validation.
    best_valid: validation of the best model; None without validation.
    best_epoch: epoch of the best model.
    history: a record per epoch done.
    warm_start: what the run started from, as in result.json; None for random parameters.
    part: of the epoch that is not done; None at the end of one.
    """

    epoch: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    best_model: dict[str, Tensor]
    best_valid: float | None
    best_epoch: int
    history: list[dict[str, Any]] = field(default_factory=list)
    warm_start: dict[str, Any] | None = None
    part: EpochPart | None = None


def save_state(path: Path, state: TrainingState, injector: Injector | None = None) -> None:
    """Replace the checkpoint at path: the old one or the new one is there, whole, at any instant."""
    tensors: dict[str, Tensor] = {}
    for group in ("model", "optimizer", "best_model"):
        tensors |= {f"{group}/{name}": tensor for name, tensor in getattr(state, group).items()}
    facts = {name: getattr(state, name) for name in ("epoch", "best_valid", "best_epoch", "history")}
    facts |= {} if state.warm_start is None else {"warm_start": state.warm_start}
    if state.part is not None:
        tensors[_DONE] = state.part.done
        facts["part"] = {name: getattr(state.part, name) for name in _PART_FACTS}
    save_tensors(path, tensors, {"state": json.dumps(facts)}, injector)


def load_state(path: Path) -> TrainingState:
    """Read a checkpoint. Raises TrainingError if it is damaged or is not one."""
    tensors, metadata = load_tensors(path)
    groups: dict[str, Any] = {"model": {}, "optimizer": {}, "best_model": {}}
    done = tensors.pop(_DONE, None)
    try:
        for name, tensor in tensors.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = tensor
        facts = json.loads(metadata["state"])
        if done is not None:
            facts["part"] = EpochPart(done=done, **facts["part"])
        state = TrainingState(**groups, **facts)
        _require_facts(state)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"{path}: is not a checkpoint of a training run: {error!r}; train again in a new folder"
        ) from error
    return state


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], injector: Injector | None = None
) -> None:
    """Write a safetensors file with our checksum; equal input gives equal bytes."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    # A single metadata key: safetensors keeps several in an order that changes from run to run.
    packed = json.dumps({"xxh3": _NO_SUM, **metadata}, separators=(",", ":"))
    content = bytearray(safetensors.torch.save(whole, {"diskhop": packed}))
    start = _find_sum(content)
    content[start : start + 16] = xxhash.xxh3_64_hexdigest(content).encode()
    write_file(path, bytes(content), injector)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, in the order of names, and metadata of save_tensors(). Raises TrainingError for a damaged file."""
    try:
        content = bytearray(path.read_bytes())
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read: {error.strerror}; train again in a new folder") from error
    start = _find_sum(content)
    stored = bytes(content[start : start + 16])
    content[start : start + 16] = _NO_SUM.encode()
    if start == _NOWHERE or xxhash.xxh3_64_hexdigest(content).encode() != stored:
        raise TrainingError(
            f"{path}: is damaged, its checksum does not match; copy the run again, or train again in a new folder"
        )
    header_bytes = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + header_bytes])
        # Sorted, since safetensors returns them in an order that changes from call to call.
        tensors = dict(sorted(safetensors.torch.load(bytes(content)).items()))
        return tensors, dict(json.loads(header["__metadata__"]["diskhop"]))
    except (KeyError, TypeError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise TrainingError(f"{path}: was not written by diskhop: {error!r}; train again in a new folder") from error


def _require_facts(state: TrainingState) -> None:
    """Refuse values that JSON can represent but training cannot resume from."""
    are_counts = type(state.epoch) is int and type(state.best_epoch) is int
    if not (are_counts and 0 <= state.best_epoch <= state.epoch and isinstance(state.best_valid, float | None)):
        raise ValueError(f"epoch {state.epoch}, best {state.best_epoch} with {state.best_valid}")
    if not (len(state.history) == state.epoch and all(isinstance(record, dict) for record in state.history)):
        raise ValueError(f"the history is not {state.epoch} records")
    if not isinstance(state.part, EpochPart | None):
        raise TypeError("a part of an epoch has no numbers of batches")
    if state.part is not None and not (state.part.done.dtype == torch.int64 and state.part.done.dim() == 1):
        raise ValueError(f"numbers of batches are {state.part.done.dtype} of shape {tuple(state.part.done.shape)}")
    if state.part is not None and not isinstance(state.part.record, dict):
        raise TypeError(f"the record is {state.part.record}")
    if not isinstance(state.warm_start, dict | None):
        raise TypeError(f"the warm start is {state.warm_start}")


def _find_sum(content: bytearray) -> int:
    """Return the offset of the checksum's 16 digits; -1 where there is none."""
    header_end = 8 + int.from_bytes(content[:8], "little")
    found = content.find(_SUM_KEY, 8, min(header_end, len(content)))
    return _NOWHERE if found == _NOWHERE else found + len(_SUM_KEY)
