"""A checkpoint is read whole as it was written, or not at all."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import xxhash
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diskhop._native import CrashError, FaultInjector, FaultRule
from diskhop.errors import DiskhopError, TrainingError
from diskhop.runs.checkpoint import (
    TrainingState,
    load_state,
    load_tensors,
    save_state,
    save_tensors,
)
from tests.examples import examples


def make_state(epoch: int) -> TrainingState:
    generator = torch.Generator().manual_seed(epoch)
    weights = {"convs.0.weight": torch.randn(3, 2, generator=generator), "steps": torch.tensor(7)}
    moments = {"0.exp_avg": torch.randn(3, 2, generator=generator), "0.step": torch.tensor(float(epoch))}
    best = {name: tensor + 1 for name, tensor in weights.items()}
    history = [{"epoch": index, "loss": 0.1 + 1e-17 * index, "xxh3": "a name"} for index in range(epoch)]
    return TrainingState(epoch, weights, moments, best, 0.1 + 0.2, 0, history)


def assert_equal_states(first: TrainingState, second: TrainingState) -> None:
    for group in ("model", "optimizer", "best_model"):
        ours, theirs = getattr(first, group), getattr(second, group)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (first.epoch, first.best_valid, first.best_epoch) == (second.epoch, second.best_valid, second.best_epoch)
    assert first.history == second.history


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    save_state(tmp_path / "c.safetensors", make_state(3))
    assert_equal_states(load_state(tmp_path / "c.safetensors"), make_state(3))


def test_equal_states_give_equal_bytes_that_any_safetensors_reader_opens(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_state(tmp_path / name, make_state(3))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    tensors = safetensors.torch.load_file(tmp_path / "one")
    assert torch.equal(tensors["model/convs.0.weight"], make_state(3).model["convs.0.weight"])


@examples(150, [HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(tmp_path: Path, position: float, bit: int) -> None:
    path = tmp_path / "c.safetensors"
    save_state(path, make_state(1))
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(TrainingError, match=r"c\.safetensors: is damaged, its checksum does not match"):
        load_state(path)


@pytest.mark.parametrize("kept", [0, 3, 8, 40, -1])
def test_a_truncated_file_is_noticed(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "c.safetensors"
    save_state(path, make_state(1))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(TrainingError, match="is damaged"):
        load_state(path)


def test_a_model_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, make_state(1).model, {"model": "sage"})
    assert load_tensors(path)[1] == {"xxh3": load_tensors(path)[1]["xxh3"], "model": "sage"}
    with pytest.raises(TrainingError, match="is not a checkpoint"):
        load_state(path)


def with_checksum(header: bytes, rest: bytes = b"") -> bytes:
    """A file whose checksum is right, whatever else is in it."""
    content = bytearray(len(header).to_bytes(8, "little") + header + rest)
    start = content.index(b"0" * 16)
    content[start : start + 16] = xxhash.xxh3_64_hexdigest(content).encode()
    return bytes(content)


SUM = rb"{\"xxh3\":\"0000000000000000\""


@pytest.mark.parametrize(
    "header",
    [
        SUM,
        b'{"a": "' + SUM + b'}"}',
        b'{"__metadata__": {"diskhop": "' + SUM + b'"}}',
        b'{"__metadata__": {"other": "' + SUM + b'}"}}',
        b'{"__metadata__": "' + SUM + b'}"}',
        b'{"__metadata__": {"diskhop": "' + SUM + b'}"}, "model/w": {"dtype": "F99"}}',
        b'{"__metadata__": {"diskhop": "' + SUM + b"," + rb"\"state\":" + b"[" * 100_000 + b'"}}',
        b"\xff" + SUM,
        b'["' + SUM + b'}"]',
    ],
)
def test_a_file_with_a_right_checksum_that_is_none_of_ours_is_named(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(with_checksum(header))
    with pytest.raises(TrainingError, match=r"c\.safetensors: (was not written by diskhop|is not a checkpoint)"):
        load_state(path)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"epoch": "1"},
        {"epoch": -1, "history": []},
        {"best_epoch": 4},
        {"best_valid": "high"},
        {"history": None},
        {"history": []},
        {"history": [7]},
        {"other": 1},
    ],
)
def test_facts_that_training_cannot_go_on_from_are_refused(tmp_path: Path, facts: dict[str, object]) -> None:
    path = tmp_path / "c.safetensors"
    good = {"epoch": 1, "best_valid": 0.5, "best_epoch": 0, "history": [{"epoch": 0}]}
    state = json.dumps({**good, **facts} if facts else {})
    save_tensors(path, {"model/w": torch.ones(1)}, {"state": state})
    with pytest.raises(TrainingError, match=r"c\.safetensors: is not a checkpoint of a training run"):
        load_state(path)


@examples(200, [HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), num_changes=st.integers(1, 20))
def test_any_damage_behind_a_right_checksum_is_one_error(tmp_path: Path, seed: int, num_changes: int) -> None:
    path = tmp_path / "c.safetensors"
    save_state(path, make_state(1))
    content = bytearray(path.read_bytes())
    header_bytes = int.from_bytes(content[:8], "little")
    start = content.index(b"xxh3") + len(b'xxh3\\":\\"')
    generator = np.random.default_rng(seed)
    for position in generator.integers(8, 8 + header_bytes, num_changes):
        if not start - 10 <= position < start + 16:
            content[position] = generator.integers(0, 256)
    content[start : start + 16] = b"0" * 16
    content[start : start + 16] = xxhash.xxh3_64_hexdigest(content).encode()
    path.write_bytes(content)
    with contextlib.suppress(TrainingError):
        load_state(path)


@pytest.mark.parametrize("kind", ["crash", "io_error", "no_space"])
def test_whatever_stops_a_commit_the_old_state_or_the_new_one_is_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c.safetensors"
    for nth in range(1, 20):
        save_state(path, make_state(1))
        injector = FaultInjector([FaultRule(kind, "changes", nth)])
        try:
            save_state(path, make_state(2), injector)
        except (CrashError, DiskhopError):
            state = load_state(path)
            assert_equal_states(state, make_state(state.epoch))
            continue
        assert nth > 3, "a commit is a write, an fsync and a rename at least"
        assert_equal_states(load_state(path), make_state(2))
        return
    pytest.fail("the injector never let a commit through")
