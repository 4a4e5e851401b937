"""What a training run is told: one frozen value, validated once, that TOML can hold.

*Options* are values by name, from a preset, a file or a command line; any may be missing. A `TrainConfig` has all of
its *kind*, of which there are two, by the model: runs/nodes/defaults.py fills in what nobody said. A *saved run* is
RUN/config.toml: the dataset and all options.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

import tomli_w

from diskhop.errors import ConfigError

ALL_NEIGHBORS = -1
PINNED = ("degree", "accesses")
MOST_COUNT, MOST_BYTES = 2**31 - 1, 2**63 - 1
# Far beyond what is of use; a slip of the keyboard must not ask for as many threads or tensors.
_MOST_LAYERS = 100
MOST_THREADS = 1024
_MODELS_WITH_HEADS = ("gat", "hoga")
AUTO = "auto"
DIRECTIONS = ("in", "out", "both")
SHUFFLES = (AUTO, "rows", "chunks")
PLACEMENTS = (AUTO, "memory", "disk")
TABLE_DTYPES = ("float32", "float16", "bfloat16")


# A rule on a value by itself: whether it holds, and how it is told.
Rule = tuple[Callable[[Any], bool], str]


def between(lowest: int, highest: int) -> Rule:
    """Of numbers, both ends included."""
    return lambda value: lowest <= value <= highest, f"from {lowest} to {highest}"


_FANOUT: Rule = (
    lambda fanout: all(count == ALL_NEIGHBORS or 1 <= count <= MOST_COUNT for count in fanout),
    f"counts from 1 to {MOST_COUNT}, or {ALL_NEIGHBORS} for all neighbours",
)
FRACTION: Rule = (lambda value: 0 <= value < 1, "at least 0 and less than 1")


def one_of(names: Sequence[str]) -> Rule:
    """Of names; '' may be one, which nobody needs to know."""
    return lambda value: value in names, f"one of {', '.join(filter(None, names))}"


_RULES: Mapping[str, Rule] = {
    "layers": between(1, _MOST_LAYERS),
    **dict.fromkeys(("hidden", "heads", "batch_size", "eval_batch_size"), between(1, MOST_COUNT)),
    **dict.fromkeys(("epochs", "eval_every"), between(1, MOST_COUNT)),
    **dict.fromkeys(("max_batches", "patience", "split"), between(0, MOST_COUNT)),
    **dict.fromkeys(("dropout", "input_dropout"), FRACTION),
    **dict.fromkeys(("fanout", "eval_fanout"), _FANOUT),
    "lr": (lambda value: math.isfinite(value) and value > 0, "more than 0"),
    "weight_decay": (lambda value: math.isfinite(value) and value >= 0, "at least 0"),
    "seed": between(0, MOST_BYTES),
    "memory_bytes": between(1, MOST_BYTES),
    **dict.fromkeys(("cache_bytes", "disk_bytes"), between(0, MOST_BYTES)),
    "pinned": one_of(("", *PINNED)),
    "threads": between(1, MOST_THREADS),
    "hops": between(1, _MOST_LAYERS),
    "operators": (lambda operators: len(operators) > 0, "one operator or several"),
    "direction": one_of(DIRECTIONS),
    "dtype": one_of(TABLE_DTYPES),
    "shuffle": one_of(SHUFFLES),
    "chunk_rows": between(1, MOST_COUNT),
    "placement": one_of(PLACEMENTS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """What every run of node classification depends on, besides the dataset; its kinds say how features reach a model.

    model, layers, hidden, heads (gat, hoga), norm, normalize_input, dropout, input_dropout: see models/. batch_size:
    nodes a batch. epochs: at most; patience: epochs without a better validation before stopping, 0
    for never; max_batches: of an epoch, 0 for all. evaluate: on validation after every `eval_every` epochs, on test at
    the end. lr, weight_decay: Adam's. metric: what validation and test are measured by. split: which of several. seed:
    of everything that is drawn. precision: of linear layers, float32 or bfloat16. matmul: which library multiplies;
    other bits. memory_bytes: the budget. disk_bytes: of what is written before or beside training (hop tables, batches
    sampled ahead or packed), 0 for half of what is free; scratch: the folder for that, '' for the dataset's own.
    engine, threads: how, never what.

    What has a default here is off or of no consequence by it; runs/nodes/defaults.py chooses the rest.
    """

    RULES: ClassVar[Mapping[str, Rule]] = _RULES

    model: str
    layers: int
    hidden: int
    heads: int = 8
    norm: str
    normalize_input: bool = False
    dropout: float
    input_dropout: float = 0.0
    batch_size: int
    epochs: int
    max_batches: int = 0
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
    disk_bytes: int = 0
    scratch: str = ""
    engine: str
    threads: int

    def __post_init__(self) -> None:
        require_rules(type(self), {field.name: getattr(self, field.name) for field in fields(self)})
        if self.model in _MODELS_WITH_HEADS:
            _require("hidden", self.hidden, self.hidden % self.heads == 0, f"a multiple of {self.heads} heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledConfig(TrainConfig):
    """A run of sage, gcn or gat, on sampled neighbours; one of `layers` for each hop.

    residual: see models/. fanout, eval_fanout: neighbours drawn per hop in training and evaluation, -1 for all.
    eval_batch_size: as batch_size, in evaluation. reuse:
    every epoch has the samples of the first, in another order; which changes what is drawn. cache_bytes: of the budget
    for rows kept between batches, 0 for what is left. store, pinned (by degree or accesses, for static and packed):
    how, never what. ordered: batches come in their order also from the store `shared`, which else delivers them as they
    are finished: another course of training.
    """

    residual: bool = False
    fanout: tuple[int, ...]
    eval_fanout: tuple[int, ...]
    eval_batch_size: int
    reuse: bool = False
    cache_bytes: int = 0
    ordered: bool = False
    store: str
    pinned: str = ""

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one that the name stands for here.
        TrainConfig.__post_init__(self)
        for name in ("fanout", "eval_fanout"):
            fanout = getattr(self, name)
            _require(name, list(fanout), len(fanout) == self.layers, f"one count for each of {self.layers} layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class HopConfig(TrainConfig):
    """A run of sgc, sign or hoga, on tables of hops that are computed before; `layers` are its perceptron's.

    hops: that each operator is applied; operators: as 'sign' or 'ppr:alpha=0.1'; direction: of edges, in, out or both.
    dtype: that tables are stored in. shuffle: an epoch's order is of rows, or of chunks of chunk_rows rows that follow
    each other; another course of training. placement: where batches come from, memory or disk; how, never what.
    """

    hops: int
    operators: tuple[str, ...]
    direction: str
    dtype: str
    shuffle: str
    chunk_rows: int
    placement: str


KINDS: tuple[type[TrainConfig], ...] = (SampledConfig, HopConfig)
_TYPE_NAMES = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "a string",
    tuple[int, ...]: "a list of integers",
    tuple[str, ...]: "a list of strings",
}


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


def check_options(options: Mapping[str, Any], source: str, kinds: Sequence[type[Any]] = KINDS) -> dict[str, Any]:
    """Check names, types and ranges of options; integers become floats and lists tuples where those are expected.

    source: how the message of the ConfigError starts. kinds: of configurations, one of which has each option; what
    options mean together is checked by it.
    """
    hints = {name: wanted for kind in kinds for name, wanted in get_type_hints(kind).items()}
    types = {name: hints[name] for kind in kinds for name in options_of(kind)}
    checked: dict[str, Any] = {}
    for name, value in options.items():
        require_known("option", name, types, f"{source}: ")
        wanted = types[name]
        if wanted is float and type(value) is int:
            with contextlib.suppress(OverflowError):
                value = float(value)
        items = get_args(wanted)[:1]
        if items and isinstance(value, list | tuple) and all(type(item) is items[0] for item in value):
            value = tuple(value)
        elif type(value) is not wanted:
            raise ConfigError(f"{source}: option '{name}' must be {_TYPE_NAMES[wanted]}, got {reprlib.repr(value)}")
        checked[name] = value
    for kind in kinds:
        require_rules(kind, checked, f"{source}: ")
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


def load_config(path: Path, kinds: Sequence[type[Any]] = KINDS) -> SavedRun:
    """Read what `dump_config` wrote, or a part of it written by hand. kinds: see check_options()."""
    options = read_toml(path)
    names = {"dataset": options.pop("dataset", ""), "dataset_hash": options.pop("dataset_hash", "")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: option '{name}' must be a string, got {reprlib.repr(value)}")
    return SavedRun(**names, options=check_options(options, str(path), kinds))


def dump_config(config: Any, dataset: str, dataset_hash: str) -> str:
    """TOML that repeats a run exactly."""
    return tomli_w.dumps({"dataset": dataset, "dataset_hash": dataset_hash, **asdict(config)})


def options_of(kind: type[Any]) -> list[str]:
    """Names of the options that a kind of configuration has."""
    return [field.name for field in fields(kind)]


def differing_options(options: Mapping[str, Any], config: Any) -> list[str]:
    """Names of the configuration's options that are others in `options`, where all of them are."""
    return [name for name in options_of(type(config)) if options[name] != getattr(config, name)]


def require_rules(kind: type[Any], options: Mapping[str, Any], where: str = "") -> None:
    """Check the ranges of a kind's options; where: how the message of the ConfigError starts."""
    for name, (holds, rule) in kind.RULES.items():
        if name in options:
            value = options[name]
            _require(f"{where}{name}", list(value) if isinstance(value, tuple) else value, holds(value), rule)


def _require(what: str, value: Any, is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise ConfigError(f"{what} must be {rule}, got {reprlib.repr(value)}")


def _suggest(value: str, names: list[str]) -> str:
    close = difflib.get_close_matches(value, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
