"""Options of training node models: on sampled batches, and on hop tables.

A configuration has all options of its *kind*, of which there are two, by the model. What has a default here is off or
without consequence by it; `runs/nodes/defaults` chooses the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.budget import format_bytes, parse_bytes
from diskhop.config.interval import DEFAULT_INTERVAL, interval_of
from diskhop.config.learning import PLATEAU, LearningConfig
from diskhop.config.options import AUTO, option, require, validate
from diskhop.config.parse import absolute_path, parse_counts, resolved_path
from diskhop.config.rules import (
    COUNT,
    COUNT_OR_NONE,
    DEVICE,
    FRACTION,
    MOST_BYTES,
    MOST_COUNT,
    SEED,
    THREADS,
    Rule,
    between,
    one_of,
)
from diskhop.config.sampler import NEIGHBOR, SAMPLERS, check_sampler, own_count
from diskhop.errors import ConfigError

ALL_NEIGHBORS = -1
CLASSIFICATION, MULTILABEL, REGRESSION = NODE_TASKS = ("classification", "multilabel", "regression")
# Of edges instead of labels.
LINK = "link"
TASKS = (*NODE_TASKS, LINK)
_, ACCESSES = PINNED = ("degree", "accesses")
CPU = "cpu"
# Kinds of features for a graph without any; see dataset/made_features.py.
MADE_FEATURES = ("degree", "onehot", "random")
# Rows that are learned stand in for the features of node types without any.
LEARNED = "learned"
DIRECTIONS = ("in", "out", "both")
SUBGRAPHS = ("directional", "bidirectional", "induced")
SHUFFLES = (AUTO, "rows", "chunks")
ON_DEVICE = "device"
PLACEMENTS = (AUTO, ON_DEVICE, "memory", "disk")
TABLE_DTYPES = ("float32", "float16", "bfloat16")

MODELS_WITH_HEADS = ("gat", "hoga")
MODELS_WITHOUT_SELF_TERM = ("gcn", "gat")
# Attention weighs edges itself.
MODELS_WITHOUT_WEIGHTS = ("gat",)
USE, IGNORE = EDGE_WEIGHTS = ("use", "ignore")
WEIGHTS_NEED_IN = (
    "--edge-weights use needs --direction in, got {}: weights are those of the edges that a node receives; use "
    "--direction in, or --edge-weights ignore"
)
# Far more than is useful: a slip of the keyboard must not ask for that many threads or tensors.
_DEPTH = between(1, 100, 2)
_DISK = between(0, MOST_BYTES, 10**11)
FANOUT = Rule(
    holds=lambda fanout: all(count == ALL_NEIGHBORS or 1 <= count <= MOST_COUNT for count in fanout),
    text=f"counts from 1 to {MOST_COUNT}, or {ALL_NEIGHBORS} for all neighbours",
    example=[10, 10],
)
_SOME_OPERATORS = Rule(
    holds=lambda operators: len(operators) > 0, text="one operator or several", example=["sign", "ppr:alpha=0.1"]
)


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
        rule=_DEPTH,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledConfig(TrainConfig):
    """A run of sage, gcn or gat, on sampled neighbours; one layer per hop."""

    SUBJECT: ClassVar[str] = "sage, gcn, gat"
    KNOWN_FEATURES: ClassVar[tuple[str, ...]] = ("", *MADE_FEATURES)
    HAS_TYPES: ClassVar[bool] = False

    residual: bool = option(
        False, help="Add each layer's input to its output.", panel="Model", shown="what suits the graph"
    )
    self_term: bool = option(
        False,
        help="Add a linear map of each layer's input before its norm (gcn, gat; sage has one).",
        panel="Model",
        shown="what suits the graph",
        before=False,
    )
    sampler: str = option(
        NEIGHBOR,
        help="How training samples; labor reaches fewer distinct nodes, ladies and fastgcn a number of nodes per hop, "
        "hgt a number per hop and node type (several types).",
        rule=one_of(SAMPLERS),
        panel="Sampling",
    )
    importance: int = option(
        0,
        help="With --sampler labor: 1 prefers neighbours that several lists have (LABOR-1), 0 does not (LABOR-0).",
        rule=between(0, 1),
        panel="Sampling",
    )
    batch_dependency: int = option(
        1,
        help="With --sampler labor, ladies or fastgcn: consecutive batches share all but 1 of N draws, so that caches "
        "hit more.",
        rule=COUNT,
        panel="Sampling",
        metavar="N",
    )
    fanout: tuple[int, ...] = option(
        help="Neighbours sampled per hop, as 10,10 (one count per layer) or 10 (all layers); -1 for all. With ladies "
        "and fastgcn: nodes per hop; with hgt: of each type.",
        rule=FANOUT,
        parse=parse_counts,
        panel="Sampling",
        metavar="N,N",
        shown="10 per hop, or what suits the graph; ladies up to 16384, fastgcn up to 131072, hgt 512",
    )
    eval_fanout: tuple[int, ...] = option(
        help="Neighbours sampled per hop in validation and test.",
        rule=FANOUT,
        parse=parse_counts,
        panel="Evaluation",
        metavar="N,N",
        shown="-1, on graphs of over 2,000,000 edges 20",
    )
    eval_batch_size: int = option(
        help="Seed nodes per batch in validation and test.",
        rule=between(1, MOST_COUNT, 1000),
        panel="Evaluation",
        shown="1000, on graphs of over 2,000,000 edges no more neighbours than a training batch",
    )
    features: str = option(
        "",
        help="Features of a graph without any: degree, onehot (one column per node) or random; of node types without "
        "any: learned, degree or random.",
        rule=one_of(("", *MADE_FEATURES, LEARNED)),
        panel="Model",
        shown="degree, of node types learned",
    )
    walk_length: int = own_count("Steps of a walk of --sampler saint-walk.", "0, saint-walk: 2")
    sample_coverage: int = own_count(
        "How often a node is drawn, on average, to count norms of saint samplers before training; 0 for no norms.",
        "chosen (saint samplers only)",
    )
    clusters: int = own_count(
        "With --sampler cluster: number of clusters; --batch-size of them are a batch.",
        "chosen (cluster only)",
    )
    node_partitions: int = own_count("With --sampler marius: partitions of consecutive nodes.", "0, marius: 48")
    resident_partitions: int = own_count(
        "With --sampler marius: partitions that are resident together.", "chosen (marius only)"
    )
    replace: bool = option(False, help="Draw neighbours with replacement.", panel="Sampling")
    weighted: bool = option(
        False,
        help="Draw neighbours in proportion to the dataset's edge weights; an edge of weight 0 is never drawn.",
        panel="Sampling",
    )
    subgraph_type: str = option(
        SUBGRAPHS[0],
        help="Edges of a batch: directional (the drawn ones), bidirectional (with their opposites) or induced (all "
        "among its nodes).",
        rule=one_of(SUBGRAPHS),
        panel="Sampling",
    )
    reuse: bool = option(
        False, help="Sample once: every epoch reuses the first epoch's batches in another order.", panel="Sampling"
    )
    cache_bytes: int = option(
        0,
        help="Share of --memory for feature rows kept between batches by the stores static, belady, shared and packed.",
        rule=between(0, MOST_BYTES, 2 * 10**8),
        flag="--cache",
        parse=parse_bytes,
        panel="Storage",
        metavar="SIZE",
        shown="what all else leaves of --memory",
    )
    neighbor_cache_bytes: int = option(
        0,
        help="Share of --memory for the neighbour lists that stay in memory; others are read from disk.",
        rule=between(0, MOST_BYTES, 2 * 10**8),
        flag="--neighbor-cache",
        parse=parse_bytes,
        panel="Storage",
        metavar="SIZE",
        shown="what the smallest memory of all else leaves of --memory",
    )
    superbatch: int = option(
        0,
        help="Largest number of batches sampled ahead together by the stores belady and packed.",
        rule=COUNT_OR_NONE,
        panel="Storage",
        metavar="N",
        shown="what --disk has room for",
    )
    ordered: bool = option(
        False,
        help="Deliver batches in order with --store shared, so that results repeat exactly.",
        panel="Storage",
    )
    store: str = option(
        help="How features reach the model: auto, memory, mapped, pread, direct, static, belady, shared or packed.",
        panel="Storage",
        shown="auto",
    )
    pinned: str = option(
        "",
        help="Which rows static and packed keep in memory: by degree, or by counted accesses.",
        rule=one_of(("", *PINNED)),
        panel="Storage",
        shown="chosen",
    )

    def check(self) -> None:
        """Check what options mean together."""
        TrainConfig.check(self)
        known = self.KNOWN_FEATURES
        require(
            self.features in known,
            "--features",
            f"one of {', '.join(filter(None, known))}",
            self.features,
            "leave it out",
        )
        check_sampler(self)
        if self.self_term:
            if self.model not in MODELS_WITHOUT_SELF_TERM:
                raise ConfigError(
                    f"--self-term is for {' and '.join(MODELS_WITHOUT_SELF_TERM)}, got {self.model}: remove it"
                )
            if self.residual:
                raise ConfigError("--self-term and --residual are two ways around a layer: remove one of them")
        for name in ("fanout", "eval_fanout"):
            fanout = getattr(self, name)
            counts = ",".join(["10"] * min(self.layers, 5))
            rule = f"one count for each of {self.layers} layers"
            flag = f"--{name.replace('_', '-')}"
            hint = f"for example {flag} {counts} with --layers {min(self.layers, 5)}"
            require(len(fanout) == self.layers, flag, rule, list(fanout), hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopConfig(TrainConfig):
    """A run of sgc, sign or hoga, on hop tables that are computed before training."""

    SUBJECT: ClassVar[str] = "sgc, sign, hoga"

    shared_map: bool = option(
        False, help="Embed all hops by one linear map, as in the paper of hoga (hoga only).", panel="Model"
    )
    hops: int = option(help="Hops over which features are aggregated.", rule=_DEPTH, panel="Sampling", shown="3")
    operators: tuple[str, ...] = option(
        help="Aggregation of hop tables: sgc, sign, row, ppr:alpha=0.1 or heat:t=3; repeat for several.",
        rule=_SOME_OPERATORS,
        flag="--operator",
        panel="Sampling",
        shown="sgc for sgc, else sign",
    )
    direction: str = option(
        help="Neighbours that hop tables aggregate: along edges in, out, or both.",
        rule=one_of(DIRECTIONS),
        panel="Sampling",
        shown="in",
    )
    dtype: str = option(
        help="Number type of stored hop tables.",
        rule=one_of(TABLE_DTYPES),
        panel="Storage",
        shown="float16 for features of float16, else float32",
    )
    shuffle: str = option(
        help="Shuffling of hop tables: single rows, or chunks of consecutive rows.",
        rule=one_of(SHUFFLES),
        panel="Storage",
        shown="auto",
    )
    chunk_rows: int = option(
        help="Rows per shuffled chunk.",
        rule=between(1, MOST_COUNT, 1000),
        panel="Storage",
        shown="as --batch-size, or fewer where neighbouring rows share a class",
    )
    placement: str = option(
        help="Where hop tables are read from during training; device: the memory of --device.",
        rule=one_of(PLACEMENTS),
        panel="Storage",
        shown="auto",
    )

    def check(self) -> None:
        """Check what options mean together."""
        TrainConfig.check(self)
        if self.shared_map and self.model != "hoga":
            raise ConfigError(f"--shared-map has no effect with --model {self.model}; remove it or use --model hoga")
        if self.placement == ON_DEVICE and self.device == CPU:
            raise ConfigError("--placement device needs a GPU: add --device cuda, or use --placement memory")
        if self.edge_weights == USE and self.direction != "in":
            raise ConfigError(WEIGHTS_NEED_IN.format(self.direction))
