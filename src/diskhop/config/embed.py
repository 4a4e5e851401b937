"""What a run of graph embeddings is told: one frozen value, validated once, that TOML can hold; see config.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from diskhop.config.options import FRACTION, MOST_BYTES, MOST_COUNT, MOST_THREADS, Rule, between, one_of, require_rules
from diskhop.errors import ConfigError

ADAGRAD = ("row", "element")
LR_SCHEDULES = ("constant", "linear")
ASSIGNMENTS = ("random", "input")
EVAL_SIDES = ("both", "tail", "head")
EVAL_TIES = ("realistic", "optimistic", "pessimistic")
MOST_PARTITIONS, MOST_REPARTITIONS, MOST_DIM = 256, 1000, 4096
DEFAULT_EVAL_EDGES = 10_000

_POSITIVE: Rule = (lambda value: math.isfinite(value) and value > 0, "more than 0")
_WEIGHT: Rule = (lambda value: math.isfinite(value) and value >= 0, "at least 0")
_SHARE: Rule = (lambda value: 0 <= value <= 1, "from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig:
    """What a run of embeddings depends on, besides the dataset.

    model, dim, loss, margin (of losses that have one), lr, lr_schedule: as it is, or down to 0 at the end; dropout,
    reciprocal, n3, l2: see embedding/. adagrad: a sum of squares for each row or each element. init_scale: standard
    deviation of what embeddings begin with. batch_size: edges; chunk_size: of them that share negatives,
    `negatives` at each side, degree_negatives: the share that is drawn by degree; mask_known: those that make an
    edge of the training set do not count. epochs: at most; patience: validations in a row, not better than the best
    before them, after which a run stops, 0 for never. warm_start: a run whose embeddings nodes and relations of the
    same names begin with; '': draws. partitions; buffer: how many are in memory at once; partition_order: how they
    pass through; assignment: of nodes to them, random or by input; repartitions: how often an epoch deals nodes to
    them anew, each time for a pass with a share of the edges, 0: never. commit_states: from one commit to the next,
    besides the end of an epoch; 0 for none. evaluate: on validation edges after every `eval_every` epochs, and on
    test edges at the end: at most eval_edges of each (0: all) against eval_candidates drawn nodes (0: all nodes),
    eval_filtered: without those that make an edge of any part; eval_sides: which end is looked for; eval_ties: see
    embedding.ranking. valid_share, test_share: of edges, where the dataset has no such parts. seed: of everything
    that is drawn. memory_bytes: the budget. overlap: partitions move while others are trained. engine, threads:
    how, never what.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        **dict.fromkeys(("batch_size", "chunk_size", "negatives", "epochs", "eval_every"), between(1, MOST_COUNT)),
        **dict.fromkeys(("eval_edges", "eval_candidates"), between(0, MOST_COUNT)),
        "eval_sides": one_of(EVAL_SIDES),
        "eval_ties": one_of(EVAL_TIES),
        "dim": between(1, MOST_DIM),
        "patience": between(0, MOST_COUNT),
        **dict.fromkeys(("lr", "init_scale"), _POSITIVE),
        **dict.fromkeys(("margin", "n3", "l2"), _WEIGHT),
        "dropout": FRACTION,
        "degree_negatives": _SHARE,
        **dict.fromkeys(("valid_share", "test_share"), FRACTION),
        "partitions": between(1, MOST_PARTITIONS),
        "buffer": between(2, MOST_PARTITIONS),
        "repartitions": between(0, MOST_REPARTITIONS),
        "lr_schedule": one_of(LR_SCHEDULES),
        "adagrad": one_of(ADAGRAD),
        "assignment": one_of(ASSIGNMENTS),
        "commit_states": between(0, MOST_COUNT),
        "seed": between(0, MOST_BYTES),
        "memory_bytes": between(1, MOST_BYTES),
        "threads": between(1, MOST_THREADS),
    }

    model: str
    dim: int
    loss: str
    margin: float = 0.0
    lr: float
    lr_schedule: str = "constant"
    adagrad: str = "row"
    init_scale: float
    batch_size: int
    chunk_size: int
    negatives: int
    degree_negatives: float = 0.0
    mask_known: bool = False
    reciprocal: bool = False
    n3: float = 0.0
    l2: float = 0.0
    dropout: float = 0.0
    epochs: int
    patience: int = 0
    warm_start: str = ""
    partitions: int
    buffer: int
    partition_order: str
    assignment: str = "random"
    repartitions: int = 0
    commit_states: int = 0
    evaluate: bool = True
    eval_every: int = 1
    eval_edges: int = DEFAULT_EVAL_EDGES
    eval_candidates: int = 1000
    eval_filtered: bool = False
    eval_sides: str = "both"
    eval_ties: str = "realistic"
    valid_share: float = 0.0
    test_share: float = 0.0
    seed: int = 0
    memory_bytes: int
    overlap: bool = True
    engine: str
    threads: int

    def __post_init__(self) -> None:
        require_rules(type(self), {field.name: getattr(self, field.name) for field in fields(self)})
        if self.valid_share + self.test_share >= 1:
            raise ConfigError(
                f"valid_share and test_share must leave edges to train, got {self.valid_share} and {self.test_share}"
            )
        if 1 < self.partitions < self.buffer:
            raise ConfigError(
                f"buffer must be at most the {self.partitions} partitions, got {self.buffer}; take --buffer less"
            )

        if self.repartitions and self.assignment == "input":
            raise ConfigError("--repartitions deals nodes at random: leave it out, or take --assignment random")

    @property
    def deals(self) -> bool:
        """Whether nodes change partitions; those that are all in memory at once need not."""
        return self.repartitions > 0 and self.partitions > self.buffer

    @property
    def passes(self) -> int:
        """Of an epoch through the order of partitions."""
        return self.repartitions if self.deals else 1

    def step_options(self) -> dict[str, Any]:
        """Those of a step, by the names of embedding.gradients.StepOptions."""
        names = ("model", "loss", "margin", "lr", "batch_size", "chunk_size", "reciprocal", "n3", "l2", "dropout")
        return {"num_negatives": self.negatives, **{name: getattr(self, name) for name in names}}
