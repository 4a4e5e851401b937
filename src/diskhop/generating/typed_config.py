"""Shapes of generated typed graphs, and their options.

A *shape* says which types of nodes and edges there are, and their shares of all nodes and edges: those of MAG240M, as
published with OGB-LSC, or those of a company that sells things.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from diskhop.config.options import like, option, validate
from diskhop.config.rules import MOST_COUNT, SEED, between, one_of
from diskhop.generating.config import DEFAULT_EVAL_FRACTION, GraphConfig
from diskhop.io.checksums import digest_bytes

# Source, relation and destination of an edge type.
Ends = tuple[str, str, str]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Nodes of one type.

    weight: number of these nodes in the original; the share of all nodes is in proportion.
    widths: features per node, as a multiple of --dim; 0: no features.
    is_labelled: whether they have labels and splits.
    """

    weight: int
    widths: int = 0
    is_labelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Types of a graph, and the defaults of its options.

    nodes: by node type.
    edges: number of edges in the original, by ends.
    dim, dtype, num_classes: default features and labels.
    train_fraction, eval_fraction: default shares of the labelled nodes.
    """

    nodes: dict[str, NodeShape]
    edges: dict[Ends, int]
    dim: int
    dtype: str
    num_classes: int
    train_fraction: float
    eval_fraction: float


SHAPES = {
    "company": Shape(
        nodes={
            "user": NodeShape(weight=7000, widths=1, is_labelled=True),
            "item": NodeShape(weight=2950, widths=2),
            "shop": NodeShape(weight=50),
        },
        edges={
            ("user", "buys", "item"): 60_000,
            ("shop", "sells", "item"): 10_000,
            ("user", "follows", "user"): 30_000,
        },
        dim=32,
        dtype="float32",
        num_classes=8,
        train_fraction=0.1,
        eval_fraction=DEFAULT_EVAL_FRACTION,
    ),
    "mag": Shape(
        nodes={
            "paper": NodeShape(weight=121_751_666, widths=1, is_labelled=True),
            "author": NodeShape(weight=122_383_112),
            "institution": NodeShape(weight=25_721),
        },
        edges={
            ("author", "affiliated_with", "institution"): 44_592_586,
            ("author", "writes", "paper"): 386_022_720,
            ("paper", "cites", "paper"): 1_297_748_926,
        },
        dim=768,
        dtype="float16",
        num_classes=153,
        # The papers of arXiv, of which 1.1 million are for training.
        train_fraction=0.0091,
        eval_fraction=0.00114,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedConfig:
    """Options of a generated typed graph, as the command line has them. None: as the shape has it."""

    shape: str = option(
        "company",
        help="Types and proportions (typed): users, items and shops of a company, or papers, authors and institutions "
        "as in MAG240M.",
        rule=one_of(tuple(SHAPES)),
        panel="Graph",
    )
    num_nodes: int = like(GraphConfig, "num_nodes", 100_000, rule=between(3, MOST_COUNT, 100_000))
    num_edges: int | None = like(GraphConfig, "num_edges", None)
    dim: int | None = like(GraphConfig, "dim", None)
    dtype: str | None = like(GraphConfig, "dtype", None)
    num_classes: int | None = like(GraphConfig, "num_classes", None)
    train_fraction: float | None = like(GraphConfig, "train_fraction", None)
    eval_fraction: float | None = like(GraphConfig, "eval_fraction", None)
    signal: float = like(GraphConfig, "signal", 1.0)
    seed: int = like(GraphConfig, "seed", 0, rule=SEED)

    def __post_init__(self) -> None:
        validate(self)

    def check(self) -> None:
        """Check what options mean together."""
        for node_type in self.node_counts():
            self.nodes_config(node_type)

    @property
    def types(self) -> Shape:
        """The shape's types."""
        return SHAPES[self.shape]

    def node_counts(self) -> dict[str, int]:
        """Return the number of nodes of each type, at least one."""
        weights = {name: each.weight for name, each in self.types.nodes.items()}
        return _shares(weights, self.num_nodes, least=1)

    def edge_counts(self) -> dict[Ends, int]:
        """Return the number of edges of each type."""
        weights = self.types.edges
        num_edges = self.num_edges
        if num_edges is None:
            all_nodes = sum(each.weight for each in self.types.nodes.values())
            num_edges = self.num_nodes * sum(weights.values()) // all_nodes
        return _shares(weights, num_edges, least=0)

    def nodes_config(self, node_type: str) -> GraphConfig:
        """Return the options of a graph of this type's nodes alone: its features, labels and splits."""
        shape, nodes = self.types, self.types.nodes[node_type]
        num_classes = shape.num_classes if self.num_classes is None else self.num_classes
        train_fraction = shape.train_fraction if self.train_fraction is None else self.train_fraction
        eval_fraction = self.eval_fraction
        if eval_fraction is None and self.train_fraction is None:
            eval_fraction = shape.eval_fraction
        return GraphConfig(
            kind="uniform",
            num_nodes=self.node_counts()[node_type],
            num_edges=0,
            dim=nodes.widths * (shape.dim if self.dim is None else self.dim),
            dtype=self.dtype or shape.dtype,
            num_classes=num_classes if nodes.is_labelled else 0,
            train_fraction=train_fraction,
            eval_fraction=eval_fraction,
            signal=self.signal,
            seed=seed_of(self.seed, node_type),
        )


def seed_of(seed: int, name: str) -> int:
    """Derive the seed of one type from that of the graph, so that types do not share their draws."""
    return digest_bytes(f"{seed} {name}".encode()) >> 1


def _shares(weights: Mapping[_Key, int], total: int, *, least: int) -> dict[_Key, int]:
    """Divide a total in proportion to weights, rounded down; the first share is what the others leave."""
    first, *others = weights
    shares = {each: max(least, total * weights[each] // sum(weights.values())) for each in others}
    return {first: total - sum(shares.values()), **shares}
