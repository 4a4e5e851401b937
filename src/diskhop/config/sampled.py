"""Options of training on sampled batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.budget import parse_bytes
from diskhop.config.options import option, require
from diskhop.config.parse import parse_counts
from diskhop.config.rules import COUNT, COUNT_OR_NONE, MOST_BYTES, MOST_COUNT, Rule, between, one_of
from diskhop.config.sampler import NEIGHBOR, SAMPLERS, check_sampler, own_count
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError

ALL_NEIGHBORS = -1
_, ACCESSES = PINNED = ("degree", "accesses")
# Kinds of features for a graph without any; see dataset/made_features.py.
MADE_FEATURES = ("degree", "onehot", "random")
# Rows that are learned stand in for the features of node types without any.
LEARNED = "learned"
SUBGRAPHS = ("directional", "bidirectional", "induced")
MODELS_WITHOUT_SELF_TERM = ("gcn", "gat")
FANOUT = Rule(
    holds=lambda fanout: all(count == ALL_NEIGHBORS or 1 <= count <= MOST_COUNT for count in fanout),
    text=f"counts from 1 to {MOST_COUNT}, or {ALL_NEIGHBORS} for all neighbours",
    example=[10, 10],
)


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
