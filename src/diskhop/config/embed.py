"""Options of training graph embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from diskhop.budget import format_bytes
from diskhop.config.interval import DEFAULT_INTERVAL, interval_of
from diskhop.config.options import AUTO, like, option, require, validate
from diskhop.config.rules import (
    COUNT_OR_NONE,
    FRACTION,
    MOST_COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    between,
    one_of,
)
from diskhop.config.train import CPU, TrainConfig
from diskhop.errors import ConfigError

ADAGRAD = ("row", "element")
# Models whose scores torch computes on a device.
DEVICE_MODELS = ("dot", "distmult", "complex", "transe")
SPARE, LEAVING = "spare", "leaving"
PREFETCH_SLOTS = (SPARE, LEAVING)
LR_SCHEDULES = ("constant", "linear")
ASSIGNMENTS = ("random", "input")
EVAL_SIDES = ("both", "tail", "head")
EVAL_TIES = ("realistic", "optimistic", "pessimistic")
MOST_PARTITIONS, MOST_REPARTITIONS, MOST_DIM = 256, 1000, 4096
DEFAULT_EVAL_EDGES = 10_000

# Options that a finished run may be evaluated with.
EVALUATED = (
    *("eval_edges", "eval_candidates", "eval_filtered", "eval_sides", "eval_ties"),
    *("memory_bytes", "threads"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig:
    """Options of a run of embeddings, besides the dataset."""

    SUBJECT: ClassVar[str] = "embeddings"

    model: str = option(help="Embedding model: dot (no relations), distmult, complex, transe, transe-l1 or rotate.")
    dim: int = option(help="Dimension of embeddings.", rule=between(1, MOST_DIM, 100), panel="Model")
    loss: str = option(help="Loss: softmax, contrastive, logistic or margin.", panel="Model")
    margin: float = option(0.0, help="Margin (losses logistic and margin).", rule=NOT_NEGATIVE, panel="Model")
    lr: float = option(help="Learning rate (Adagrad).", rule=POSITIVE, panel="Optimisation")
    lr_schedule: str = option(
        "constant",
        help="Learning rate schedule; linear reaches 0 at the end of the last epoch.",
        rule=one_of(LR_SCHEDULES),
        panel="Optimisation",
        shown="constant, or what suits the graph",
    )
    adagrad: str = option(
        "row",
        help="Adagrad state: one sum per row, or one per element.",
        rule=one_of(ADAGRAD),
        panel="Optimisation",
        shown="row, or what suits the graph",
    )
    init_scale: float = option(help="Standard deviation of initial embeddings.", rule=POSITIVE, panel="Optimisation")
    batch_size: int = option(help="Edges per batch.", rule=between(1, MOST_COUNT, 10_000), panel="Sampling")
    chunk_size: int = option(
        help="Number of edges that share negatives.", rule=between(1, MOST_COUNT, 1000), panel="Sampling"
    )
    negatives: int = option(
        help="Negative samples per edge and side.", rule=between(1, MOST_COUNT, 1000), panel="Sampling"
    )
    degree_negatives: float = option(
        0.0, help="Share of negatives that is sampled by degree.", rule=SHARE, panel="Sampling"
    )
    mask_known: bool = option(False, help="Ignore negatives that form an edge of the training set.", panel="Sampling")
    reciprocal: bool = option(
        False,
        help="Learn an embedding of each relation for either direction.",
        panel="Model",
        shown="what suits the graph",
    )
    n3: float = option(
        0.0,
        help="Weight of N3 regularisation.",
        rule=NOT_NEGATIVE,
        panel="Optimisation",
        shown="0.0, or what suits the graph",
    )
    l2: float = option(0.0, help="Weight of L2 regularisation.", rule=NOT_NEGATIVE, panel="Optimisation")
    dropout: float = option(0.0, help="Dropout rate of query embeddings.", rule=FRACTION, panel="Model")
    epochs: int = like(TrainConfig, "epochs", shown="chosen")
    patience: int = like(TrainConfig, "patience", 0, shown="")
    warm_start: str = like(
        TrainConfig,
        "warm_start",
        "",
        help="Start from the embeddings of another run, matched by name.",
        shown="random",
    )
    partitions: int = option(
        help="Number of node partitions on disk.",
        rule=between(1, MOST_PARTITIONS, 8),
        panel="Storage",
        shown="the fewest that fit",
    )
    buffer: int = option(help="Partitions in memory at a time.", rule=between(2, MOST_PARTITIONS, 3), panel="Storage")
    partition_order: str = option(help="Order of partitions: auto, searched, legend, beta or cover.", panel="Storage")
    assignment: str = option(
        "random",
        help="Assignment of nodes to partitions: random, or by input order.",
        rule=one_of(ASSIGNMENTS),
        panel="Storage",
    )
    repartitions: int = option(
        0,
        help="Re-partition nodes at random N times per epoch; 0 for never.",
        rule=between(0, MOST_REPARTITIONS),
        panel="Storage",
        metavar="N",
    )
    checkpoint_every: str = like(
        TrainConfig,
        "checkpoint_every",
        DEFAULT_INTERVAL,
        help="How often a run is kept within an epoch, to resume: as 10min or '4 states' (swaps of partitions); epoch: "
        "only at the end.",
        rule=interval_of("states"),
        may_change=True,
        before=DEFAULT_INTERVAL,
    )
    evaluate: bool = like(TrainConfig, "evaluate", True)
    eval_every: int = like(TrainConfig, "eval_every", 1)
    eval_edges: int = option(
        DEFAULT_EVAL_EDGES,
        help="Maximum number of edges to measure; 0 for all.",
        rule=COUNT_OR_NONE,
        panel="Evaluation",
    )
    eval_candidates: int = option(
        1000,
        help="Random nodes that each edge is ranked against; 0, or as many as there are, for all nodes.",
        rule=COUNT_OR_NONE,
        panel="Evaluation",
    )
    eval_filtered: bool = option(
        False,
        help="Filtered or raw ranks: skip nodes that form a known edge of any part.",
        flag="--eval-filtered/--eval-raw",
        panel="Evaluation",
    )
    eval_sides: str = option("both", help="Ends of an edge to predict.", rule=one_of(EVAL_SIDES), panel="Evaluation")
    eval_ties: str = option("realistic", help="Rank of tied scores.", rule=one_of(EVAL_TIES), panel="Evaluation")
    valid_share: float = option(
        0.0,
        help="Share of edges for validation, if the dataset has no valid edges.",
        rule=FRACTION,
        panel="Evaluation",
        shown="chosen",
    )
    test_share: float = option(
        0.0,
        help="Share of edges for test, if the dataset has no test edges.",
        rule=FRACTION,
        panel="Evaluation",
        shown="chosen",
    )
    seed: int = like(TrainConfig, "seed", 0)
    memory_bytes: int = like(TrainConfig, "memory_bytes")
    total_memory_bytes: int = like(TrainConfig, "total_memory_bytes", 0, may_change=True, before=0)
    overlap: bool = option(True, help="Move partitions while others are trained.", panel="Advanced")
    prefetch_slot: str = option(
        SPARE,
        help="Slot that the next partition is read into: spare, or leaving (less memory; while partitions move, "
        "negatives come from those that stay).",
        rule=one_of(PREFETCH_SLOTS),
        panel="Storage",
    )
    device: str = like(
        TrainConfig,
        "device",
        CPU,
        help="Where embeddings are trained: cpu, cuda, cuda:N, or auto for a GPU if there is one.",
        may_change=True,
    )
    device_memory_bytes: int = like(
        TrainConfig,
        "device_memory_bytes",
        0,
        help="Memory of --device for partitions, edges and batches, as 8GB.",
        shown="half of what is free",
        may_change=True,
    )
    engine: str = like(TrainConfig, "engine")
    threads: int = like(TrainConfig, "threads")

    def __post_init__(self) -> None:
        validate(self)

    def check(self) -> None:
        """Check what options mean together."""
        self._check_device()
        if self.valid_share + self.test_share >= 1:
            raise ConfigError(
                "valid_share and test_share must leave edges to train on, "
                f"got {self.valid_share} and {self.test_share}; for example --valid-share 0.05 --test-share 0.05"
            )
        if self.partitions > 1:
            hint = f"for example --buffer {self.partitions}"
            fits = self.buffer <= self.partitions
            require(fits, "--buffer", f"at most the {self.partitions} partitions", self.buffer, hint)
        if self.repartitions and self.assignment == "input":
            raise ConfigError(
                "--repartitions assigns nodes at random, which --assignment input excludes; use --assignment random"
            )

    def _check_device(self) -> None:
        if self.device == CPU:
            if self.device_memory_bytes:
                raise ConfigError(
                    f"--device-memory {format_bytes(self.device_memory_bytes)} has no effect with --device cpu; use "
                    "--device-memory 0, or --device cuda"
                )
            return
        if self.device != AUTO and self.model not in DEVICE_MODELS:
            raise ConfigError(
                f"--model {self.model} is trained in memory: use --device cpu, or one of {', '.join(DEVICE_MODELS)}"
            )

    @property
    def is_on_device(self) -> bool:
        """Whether partitions are trained on a GPU."""
        return self.device != CPU

    @property
    def is_repartitioned(self) -> bool:
        """Whether nodes change partitions between passes; not needed where all are in memory at once."""
        return self.repartitions > 0 and self.partitions > self.buffer

    @property
    def reuses_slots(self) -> bool:
        """Whether the next partition is read into the slot of the one that leaves."""
        return self.prefetch_slot == LEAVING

    @property
    def passes(self) -> int:
        """Passes through the order of partitions per epoch."""
        return self.repartitions if self.is_repartitioned else 1

    def step_options(self) -> dict[str, Any]:
        """Options of a training step, by the names of embedding.step.gradients.StepOptions."""
        names = ("model", "loss", "margin", "lr", "batch_size", "chunk_size", "reciprocal", "n3", "l2", "dropout")
        renamed = {"num_negatives": self.negatives, "masks_known": self.mask_known}
        return {**renamed, **{name: getattr(self, name) for name in names}}
