"""Warm start: training that begins with the best model of another run, on the same or on newer data.

The architecture must be the same. Options of the architecture that are not given are taken from the other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from torch import Tensor, nn

from diskhop.config.options import option_fields, spell
from diskhop.config.train import MODELS_WITH_HEADS, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SchemaError, TrainingError
from diskhop.nn.adam import Adam
from diskhop.run_files import CHECKPOINT_FILE, HOP, NODE
from diskhop.runs.checkpoint import load_state
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier

# Options that decide what a model's parameters are and mean, of either kind of run.
_ARCHITECTURE = (
    *("model", "layers", "hidden", "heads", "norm", "normalize_input", "residual", "self_term", "shared_map"),
    *("features", "hops", "operators", "direction"),
)
_RANDOM = "random"


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """Parameters to begin with, and the optimiser's state by Adam.tensors(); {} to begin without one."""

    run: OpenClassifier
    optimizer: dict[str, Tensor]

    def apply(self, model: nn.Module, optimizer: Adam) -> None:
        """Set a model's parameters and, if it was kept, the optimiser's state."""
        self.run.load_into(model)
        if self.optimizer:
            optimizer.restore(self.optimizer)

    def __str__(self) -> str:
        state = "kept" if self.optimizer else "fresh"
        return f"parameters of {self.run.path}, {state} optimiser state"

    def describe(self) -> dict[str, Any]:
        """Return the entry of result.json."""
        return {
            "run": str(self.run.path),
            "dataset_hash": self.run.dataset_hash,
            "optimizer": "kept" if self.optimizer else "fresh",
        }


def open_warm_start(dataset: Dataset, config: TrainConfig) -> WarmStart:
    """Open the run that a configuration starts from.

    Raises SchemaError with a line for each option and each property of the dataset that does not fit, ConfigError for
    a folder without such a run, and for missing or damaged files.
    """
    run = open_classifier(config.warm_start, (NODE, HOP))
    lines = _mismatches(run, config)
    try:
        run.require_fit(dataset)
    except SchemaError as error:
        lines += error.lines
    if lines:
        raise SchemaError(lines)
    return WarmStart(run, _read_optimizer(run) if config.keep_optimizer else {})


def architecture_of(run: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run's architecture that are not given and differ from their defaults.

    Returns none for another model than the run's.
    """
    config = open_classifier(run, (NODE, HOP)).config
    if given.get("model", config.model) != config.model:
        return {}
    names = [name for name in _options(type(config)) if name not in given]
    return {name: getattr(config, name) for name in names if getattr(config, name) != _default(type(config), name)}


def _options(kind: type[Any]) -> list[str]:
    return [name for name in _ARCHITECTURE if name in option_fields(kind)]


def _default(kind: type[Any], name: str) -> Any:
    default = option_fields(kind)[name].default
    return None if default is MISSING else default


def _mismatches(run: OpenClassifier, config: TrainConfig) -> list[str]:
    """Return a line for each option of the architecture that differs."""
    if run.config.model != config.model:
        return [_mismatch(run, "model", run.config.model, config.model)]
    names = [name for name in _options(type(config)) if name != "heads" or config.model in MODELS_WITH_HEADS]
    # Random features are drawn by the seed: with another they mean something else.
    names += ["seed"] if getattr(config, "features", "") == _RANDOM else []
    values = [(name, getattr(run.config, name), getattr(config, name)) for name in names]
    return [_mismatch(run, name, old, new) for name, old, new in values if old != new]


def _mismatch(run: OpenClassifier, name: str, old: Any, new: Any) -> str:
    option = option_fields(type(run.config))[name]
    on, _, off = option.flag.partition("/")
    if option.type is bool:
        way = on if old else off
    else:
        way = " ".join(f"{on} {spell(each)}" for each in (old if isinstance(old, tuple) else (old,)))
    return (
        f"{run.path}: has {name} {spell(old)}, this run {spell(new)}: --warm-start needs the same; "
        f"remove it, or use {way}"
    )


def _read_optimizer(run: OpenClassifier) -> dict[str, Tensor]:
    path = run.path / CHECKPOINT_FILE
    try:
        return load_state(path).optimizer
    except TrainingError as error:
        raise ConfigError(f"{error}; or remove --keep-optimizer") from error
