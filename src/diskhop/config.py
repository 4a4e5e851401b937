"""What a training run is told: one frozen value, validated once, that TOML can hold.

*Options* are values by name, from a preset, a file or a command line; any may be missing. A `TrainConfig` has them all:
training/defaults.py fills in what nobody said. A *saved run* is RUN/config.toml: the dataset and all options.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tomli_w

from diskhop.errors import ConfigError

ALL_NEIGHBORS = -1
AUTO_ENGINE = "auto"
PINNED = ("degree", "accesses")
_MOST_COUNT, _MOST_BYTES = 2**31 - 1, 2**63 - 1
# Far beyond what is of use; a slip of the keyboard must not ask for as many threads or tensors.
_MOST_LAYERS, _MOST_THREADS = 100, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that a run of node classification depends on, besides the dataset.

    model, layers, hidden, heads (gat), norm, residual, normalize_input, dropout, input_dropout: see models/.
    fanout, eval_fanout: neighbours drawn per hop in training and evaluation, -1 for all. batch_size, eval_batch_size:
    seeds a batch. epochs: at most; patience: epochs without a better validation before stopping, 0 for never;
    max_batches: of an epoch, 0 for all. evaluate: on validation after every `eval_every` epochs, on test at the end.
    lr, weight_decay: Adam's. metric: what validation and test are measured by. split: which of several. seed: of
    everything that is drawn. precision: of linear layers, float32 or bfloat16. matmul: which library multiplies; other
    bits. memory_bytes: the budget; cache_bytes: of it for rows kept between batches, 0 for what is left. disk_bytes: of
    batches sampled ahead (belady) or packed (packed), 0 for half of what is free; scratch: the folder for them and for
    layouts packed ahead, '' for the dataset's own. store, pinned (by degree or accesses, for static and packed),
    engine, threads: how, never what. ordered: batches come in their order also from the store `shared`, which else
    delivers them as they are finished: another course of training. reuse: every epoch has the samples of the first, in
    another order; which changes what is drawn.

    What has a default here is off or of no consequence by it; training/defaults.py chooses the rest.
    """

    model: str
    layers: int
    hidden: int
    heads: int = 8
    norm: str
    residual: bool = False
    normalize_input: bool = False
    dropout: float
    input_dropout: float = 0.0
    fanout: tuple[int, ...]
    eval_fanout: tuple[int, ...]
    batch_size: int
    eval_batch_size: int
    epochs: int
    max_batches: int = 0
    reuse: bool = False
    evaluate: bool = True
    eval_every: int = 1
    patience: int = 0
    lr: float
    weight_decay: float = 0.0
    metric: str
    split: int = 0
    seed: int = 0
    precision: str = "float32"
    matmul: str = "blas"
    memory_bytes: int
    cache_bytes: int = 0
    disk_bytes: int = 0
    scratch: str = ""
    ordered: bool = False
    store: str
    pinned: str = ""
    engine: str
    threads: int

    def __post_init__(self) -> None:
        _require_rules({field.name: getattr(self, field.name) for field in fields(self)}, "")
        for name in ("fanout", "eval_fanout"):
            fanout = getattr(self, name)
            _require(name, list(fanout), len(fanout) == self.layers, f"one count for each of {self.layers} layers")
        if self.model == "gat":
            _require("hidden", self.hidden, self.hidden % self.heads == 0, f"a multiple of {self.heads} heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A configuration file: the dataset it is for ('' if it does not say), and options."""

    dataset: str
    dataset_hash: str
    options: dict[str, Any]


def require_known(thing: str, value: str, known: Iterable[str], where: str = "") -> None:
    """Refuse a name that is not one of the known ones, listing them. where: how the message starts."""
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"{where}unknown {thing} '{value}'{_suggest(value, names)}; the known ones are {', '.join(names)}"
        )


def check_options(options: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check names, types and ranges of options; integers become floats and lists tuples where those are expected.

    source: how the message of the ConfigError starts. What options mean together is checked by TrainConfig.
    """
    types = get_type_hints(TrainConfig)
    checked: dict[str, Any] = {}
    for name, value in options.items():
        require_known("option", name, types, f"{source}: ")
        wanted = types[name]
        if wanted is float and type(value) is int:
            with contextlib.suppress(OverflowError):
                value = float(value)
        if get_args(wanted) and isinstance(value, list | tuple) and all(type(item) is int for item in value):
            value = tuple(value)
        elif type(value) is not wanted:
            kind = (
                "a list of integers" if get_args(wanted) else {"str": "a string"}.get(wanted.__name__, wanted.__name__)
            )
            raise ConfigError(f"{source}: option '{name}' must be {kind}, got {reprlib.repr(value)}")
        checked[name] = value
    _require_rules(checked, f"{source}: ")
    return checked


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigError naming the file and what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name an existing TOML file") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; options are a name and a value a line") from None


def load_config(path: Path) -> SavedRun:
    """Read what `dump_config` wrote, or a part of it written by hand."""
    options = read_toml(path)
    names = {"dataset": options.pop("dataset", ""), "dataset_hash": options.pop("dataset_hash", "")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: option '{name}' must be a string, got {reprlib.repr(value)}")
    return SavedRun(**names, options=check_options(options, str(path)))


def dump_config(config: TrainConfig, dataset: str, dataset_hash: str) -> str:
    """TOML that repeats a run exactly."""
    return tomli_w.dumps({"dataset": dataset, "dataset_hash": dataset_hash, **asdict(config)})


def missing_options(options: Mapping[str, Any]) -> list[str]:
    """Names of the options that these leave open."""
    return [field.name for field in fields(TrainConfig) if field.name not in options]


def differing_options(first: TrainConfig, second: TrainConfig) -> list[str]:
    """Names of the options that differ."""
    return [field.name for field in fields(first) if getattr(first, field.name) != getattr(second, field.name)]


# A rule on a value by itself: whether it holds, and how it is told.
_Rule = tuple[Callable[[Any], bool], str]


def _between(lowest: int, highest: int) -> _Rule:
    return lambda value: lowest <= value <= highest, f"from {lowest} to {highest}"


_FANOUT: _Rule = (
    lambda fanout: all(count == ALL_NEIGHBORS or 1 <= count <= _MOST_COUNT for count in fanout),
    f"counts from 1 to {_MOST_COUNT}, or {ALL_NEIGHBORS} for all neighbours",
)
_FRACTION: _Rule = (lambda value: 0 <= value < 1, "at least 0 and less than 1")
_RULES: dict[str, _Rule] = {
    "layers": _between(1, _MOST_LAYERS),
    **dict.fromkeys(("hidden", "heads", "batch_size", "eval_batch_size"), _between(1, _MOST_COUNT)),
    **dict.fromkeys(("epochs", "eval_every"), _between(1, _MOST_COUNT)),
    **dict.fromkeys(("max_batches", "patience", "split"), _between(0, _MOST_COUNT)),
    **dict.fromkeys(("dropout", "input_dropout"), _FRACTION),
    **dict.fromkeys(("fanout", "eval_fanout"), _FANOUT),
    "lr": (lambda value: math.isfinite(value) and value > 0, "more than 0"),
    "weight_decay": (lambda value: math.isfinite(value) and value >= 0, "at least 0"),
    "seed": _between(0, _MOST_BYTES),
    "memory_bytes": _between(1, _MOST_BYTES),
    **dict.fromkeys(("cache_bytes", "disk_bytes"), _between(0, _MOST_BYTES)),
    "pinned": (lambda value: value in ("", *PINNED), f"one of {', '.join(PINNED)}"),
    "threads": _between(1, _MOST_THREADS),
}


def _require_rules(options: Mapping[str, Any], where: str) -> None:
    for name, (holds, rule) in _RULES.items():
        if name in options:
            value = options[name]
            _require(f"{where}{name}", list(value) if isinstance(value, tuple) else value, holds(value), rule)


def _require(what: str, value: Any, is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise ConfigError(f"{what} must be {rule}, got {reprlib.repr(value)}")


def _suggest(value: str, names: list[str]) -> str:
    close = difflib.get_close_matches(value, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
