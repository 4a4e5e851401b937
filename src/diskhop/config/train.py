"""Options of training node classifiers: on sampled batches, and on hop tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from diskhop.config.options import (
    AUTO,
    FRACTION,
    MOST_BYTES,
    MOST_COUNT,
    MOST_THREADS,
    Rule,
    _require,
    between,
    one_of,
    require_rules,
)

ALL_NEIGHBORS = -1


PINNED = ("degree", "accesses")


# Far beyond what is of use; a slip of the keyboard must not ask for as many threads or tensors.
_MOST_LAYERS = 100


_MODELS_WITH_HEADS = ("gat", "hoga")


DIRECTIONS = ("in", "out", "both")


SHUFFLES = (AUTO, "rows", "chunks")


PLACEMENTS = (AUTO, "memory", "disk")


TABLE_DTYPES = ("float32", "float16", "bfloat16")


_FANOUT: Rule = (
    lambda fanout: all(count == ALL_NEIGHBORS or 1 <= count <= MOST_COUNT for count in fanout),
    f"counts from 1 to {MOST_COUNT}, or {ALL_NEIGHBORS} for all neighbours",
)


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
    nodes a batch. epochs: at most; patience: validations in a row, not better than the best
    before them, after which a run stops, 0 for never;
    max_batches: of an epoch, 0 for all. evaluate: on validation after every `eval_every` epochs, on test at
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
