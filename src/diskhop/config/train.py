"""Options that all training of node models has.

A configuration has all options of its *kind*, by the model: on sampled batches (`sampled.py`) or on hop tables
(`hop.py`). What has a default here is off or without consequence by it; `runs/nodes/defaults` chooses the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.budget import format_bytes, parse_bytes
from diskhop.config.interval import DEFAULT_INTERVAL, interval_of
from diskhop.config.learning import PLATEAU, LearningConfig
from diskhop.config.options import option, require, validate
from diskhop.config.parse import absolute_path, resolved_path
from diskhop.config.rules import (
    COUNT,
    COUNT_OR_NONE,
    DEVICE,
    FRACTION,
    MOST_BYTES,
    MOST_COUNT,
    SEED,
    THREADS,
    between,
    one_of,
)
from diskhop.errors import ConfigError

CLASSIFICATION, MULTILABEL, REGRESSION = NODE_TASKS = ("classification", "multilabel", "regression")
# Of edges instead of labels.
LINK = "link"
TASKS = (*NODE_TASKS, LINK)
CPU = "cpu"

MODELS_WITH_HEADS = ("gat", "hoga")
# Attention weighs edges itself.
MODELS_WITHOUT_WEIGHTS = ("gat",)
USE, IGNORE = EDGE_WEIGHTS = ("use", "ignore")
# Far more than is useful: a slip of the keyboard must not ask for that many threads or tensors.
DEPTH = between(1, 100, 2)
_DISK = between(0, MOST_BYTES, 10**11)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(LearningConfig):
    """Options of every run that trains on nodes, besides the dataset."""

    SUBJECT: ClassVar[str]

    model: str = option(
        help="Model: sage, gcn or gat (sampled neighbours); sgc, sign or hoga (hop tables computed before training); "
        "hetero-sage, rgcn, rgat, hgt or simple-hgn (several types).",
        shown="sage, with several types hetero-sage or rgcn",
    )
    layers: int = option(
        help="Number of layers (one per hop for sage, gcn, gat; MLP layers for sign, hoga).",
        rule=DEPTH,
        panel="Model",
        shown="2, or what suits the graph",
    )
    hidden: int = option(
        help="Width of the hidden layers.",
        rule=between(1, MOST_COUNT, 128),
        panel="Model",
        shown="128, or what suits the graph",
    )
    heads: int = option(
        8, help="Number of attention heads (gat, hoga).", rule=COUNT, panel="Model", shown="8, for hoga 1"
    )
    norm: str = option(
        help="Normalisation between layers: none, batch or layer.",
        panel="Model",
        shown="layer, or what suits the graph",
    )
    normalize_input: bool = option(
        False,
        help="Scale each node's features to sum 1.",
        panel="Model",
        shown="what suits the graph",
    )
    dropout: float = option(
        help="Dropout rate of hidden values.",
        rule=FRACTION,
        panel="Model",
        shown="0.5, for sgc 0.0, or what suits the graph",
    )
    input_dropout: float = option(
        0.0,
        help="Dropout rate of input features.",
        rule=FRACTION,
        panel="Model",
        shown="0.0, or what suits the graph",
    )
    edge_weights: str = option(
        IGNORE,
        help="Whether sums over neighbours use the weights of edges.",
        rule=one_of(EDGE_WEIGHTS),
        panel="Model",
        shown="use, where the graph has weights; gat: ignore",
    )
    batch_size: int = option(
        help="Seed nodes per batch.",
        rule=between(1, MOST_COUNT, 1000),
        panel="Sampling",
        shown="1000, or all training nodes if they are fewer",
    )
    epochs: int = option(
        help="Maximum number of epochs.", rule=between(1, MOST_COUNT, 10), shown="enough for 500 batches, 5 to 200"
    )
    max_batches: int = option(
        0, help="Maximum number of batches per epoch; 0 for all.", rule=COUNT_OR_NONE, panel="Sampling"
    )
    evaluate: bool = option(
        True,
        help="Measure validation during training and test at the end.",
        flag="--eval/--no-eval",
        panel="Evaluation",
    )
    eval_every: int = option(1, help="Epochs between two validations.", rule=COUNT, panel="Evaluation")
    patience: int = option(
        0,
        help="Stop after N consecutive validations that are not better than the best before them; 0 for never.",
        rule=COUNT_OR_NONE,
        panel="Optimisation",
        metavar="N",
        shown="0 with --epochs, else chosen",
    )
    warm_start: str = option(
        "",
        help="Start from the best model of another run, whose architecture is used.",
        parse=resolved_path,
        panel="Optimisation",
        metavar="RUN",
        shown="random parameters",
    )
    keep_optimizer: bool = option(
        False, help="Continue with the optimiser state of the --warm-start run.", panel="Optimisation"
    )
    task: str = option(
        help="Task: classification (a class per node), multilabel (labels of 0 and 1), regression (numbers) or link "
        "(which nodes have edges).",
        rule=one_of(TASKS),
        shown="as the labels are",
    )
    metric: str = option(
        help="Metric of validation and test: accuracy, auc, ap, f1_micro or f1_macro; rmse, mae or r2 of regression.",
        panel="Evaluation",
        shown="accuracy, for multilabel auc, for regression rmse",
    )
    split: int = option(
        0, help="Number of the split to use, for datasets with several.", rule=COUNT_OR_NONE, panel="Evaluation"
    )
    seed: int = option(0, help="Random seed.", rule=SEED)
    checkpoint_every: str = option(
        DEFAULT_INTERVAL,
        help="How often a run is kept within an epoch, to resume: as 10min or '500 batches'; epoch: only at the end.",
        rule=interval_of("batches"),
        panel="Storage",
        metavar="TIME",
        may_change=True,
        before=DEFAULT_INTERVAL,
    )
    keep: int = option(
        1,
        help="Number of checkpoints of ends of epochs to keep.",
        rule=COUNT,
        panel="Storage",
        metavar="N",
        may_change=True,
        before=1,
    )
    precision: str = option("float32", help="Precision of linear layers: float32 or bfloat16.", panel="Advanced")
    matmul: str = option(
        "blas", help="Library for matrix products: mkl, blas, onednn or mixed.", panel="Advanced", shown="chosen"
    )
    memory_bytes: int = option(
        help="Memory budget for graph data, as 2GB or 512MiB.",
        rule=between(1, MOST_BYTES, 2 * 10**9),
        flag="--memory",
        parse=parse_bytes,
        metavar="SIZE",
        shown="half of the free memory",
    )
    total_memory_bytes: int = option(
        0,
        help="Memory of the whole process, as 4GB: the budget is what predicted overhead leaves of it.",
        rule=between(0, MOST_BYTES, 4 * 10**9),
        flag="--total-memory",
        parse=parse_bytes,
        metavar="SIZE",
        shown="what this process may use",
        may_change=True,
        before=0,
    )
    disk_bytes: int = option(
        0,
        help="Disk space for derived files, as 100GB. Given, it also lets training pack all epochs ahead.",
        rule=_DISK,
        flag="--disk",
        parse=parse_bytes,
        panel="Storage",
        metavar="SIZE",
        shown="half of the free space",
    )
    scratch: str = option(
        "",
        help="Folder for derived files (traces, packed batches, hop tables).",
        parse=absolute_path,
        panel="Storage",
        metavar="DIR",
        shown="DATASET/derived",
    )
    engine: str = option(help="Disk I/O engine: auto, uring or threads.", panel="Advanced", shown="auto")
    threads: int = option(
        help="CPU threads.",
        rule=THREADS,
        panel="Advanced",
        shown="all cores",
    )
    device: str = option(
        CPU,
        help="Where the model computes: cpu, cuda, cuda:N, or auto for a GPU if there is one.",
        rule=DEVICE,
        may_change=True,
    )
    device_memory_bytes: int = option(
        0,
        help="Memory of --device for the most accessed feature rows, or for hop tables, as 8GB.",
        rule=between(0, MOST_BYTES, 8 * 10**9),
        flag="--device-memory",
        parse=parse_bytes,
        panel="Storage",
        metavar="SIZE",
        shown="0, for hop tables half of what is free",
        may_change=True,
    )

    def __post_init__(self) -> None:
        validate(self)

    def check(self) -> None:
        """Check what options mean together."""
        # Not super(): a dataclass with slots is another class than the one that the name stands for here.
        LearningConfig.check(self)
        if self.device_memory_bytes and self.device == CPU:
            raise ConfigError(
                f"--device-memory {format_bytes(self.device_memory_bytes)} has no effect with --device cpu; use "
                "--device-memory 0, or --device cuda"
            )
        if self.lr_schedule == PLATEAU and not self.evaluate:
            raise ConfigError("--lr-schedule plateau needs validation: remove --no-eval, or use --lr-schedule cosine")
        if self.edge_weights == USE and self.model in MODELS_WITHOUT_WEIGHTS:
            raise ConfigError(f"--edge-weights use is not for {self.model}, which weighs edges itself: remove it")
        if self.keep_optimizer and not self.warm_start:
            raise ConfigError("--keep-optimizer needs another run's state: add --warm-start RUN, or remove it")
        if self.model in MODELS_WITH_HEADS:
            fits = self.hidden % self.heads == 0
            hint = f"for example --hidden {max(1, self.hidden // self.heads) * self.heads}"
            require(fits, "--hidden", f"a multiple of {self.heads} heads", self.hidden, hint)
