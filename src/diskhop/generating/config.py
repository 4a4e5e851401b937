"""Options of a generated graph: one frozen value, validated once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from diskhop.config.options import like, option, require, validate
from diskhop.config.parse import parse_numbers
from diskhop.config.rules import SEED, SHARE, Rule, between, one_of
from diskhop.config.train import TrainConfig
from diskhop.dataset.encoding import FEATURE_DTYPES
from diskhop.dataset.manifest import MOST_CLASSES, MOST_COLUMNS, MOST_COUNT
from diskhop.dataset.sort.hot_order import ORDERS
from diskhop.errors import ConfigError

KINDS = ("kronecker", "uniform", "sbm")
# Graphs of several types have options of their own (TypedConfig).
TYPED = "typed"
_AS_SHAPE = "typed: as --shape has"
DEFAULT_NODES, EDGES_PER_NODE = 100_000, 10
DEFAULT_RMAT = (0.45, 0.22, 0.22, 0.11)
DEFAULT_HOMOPHILY = 0.7
DEFAULT_EVAL_FRACTION = 0.02
# An edge drawn in a square of 2^k ids ends inside of the graph at least with chance a (generate.hpp).
_LEAST_RMAT_A = 0.01


def _are_chances(rmat: tuple[float, ...]) -> bool:
    in_range = len(rmat) == 4 and all(0 <= chance <= 1 for chance in rmat) and rmat[0] >= _LEAST_RMAT_A
    return in_range and math.isclose(sum(rmat), 1, abs_tol=1e-6)


_CHANCES = Rule(
    holds=_are_chances,
    text=f"four chances a,b,c,d with sum 1, a at least {_LEAST_RMAT_A}",
    example=list(DEFAULT_RMAT),
)
_CLASSES = Rule(
    holds=lambda count: count == 0 or 2 <= count < MOST_CLASSES, text="0 for no labels, or at least 2", example=16
)
_TRAIN_FRACTION = Rule(holds=lambda share: 0 < share <= 1, text="more than 0, at most 1", example=0.1)
_SIGNAL = between(0, 1000, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """Options of a generated graph. kind: one of KINDS; the rest as the command line has it.

    num_edges: edges drawn; undirected, each is stored in both directions. eval_fraction, rmat, homophily: None for the
    default; the latter two are refused for a kind that has no use for them.
    """

    kind: str
    num_nodes: int = option(
        DEFAULT_NODES,
        help="Number of nodes.",
        rule=between(1, MOST_COUNT, DEFAULT_NODES),
        flag="--nodes",
        panel="Graph",
    )
    num_edges: int = option(
        help="Number of edges to draw.",
        rule=between(0, MOST_COUNT, EDGES_PER_NODE * DEFAULT_NODES),
        flag="--edges",
        panel="Graph",
        shown=f"{EDGES_PER_NODE} per node; {_AS_SHAPE}",
    )
    dim: int = option(
        128,
        help="Features per node; 0 for none.",
        rule=between(0, MOST_COLUMNS, 128),
        panel="Features",
        shown=f"128; {_AS_SHAPE}",
    )
    dtype: str = option(
        "float32",
        help="Number type of features.",
        rule=one_of(tuple(FEATURE_DTYPES)),
        panel="Features",
        shown=f"float32; {_AS_SHAPE}",
    )
    num_classes: int = option(
        16,
        help="Number of classes; 0 for neither labels nor splits.",
        rule=_CLASSES,
        flag="--classes",
        panel="Features",
        shown=f"16; {_AS_SHAPE}",
    )
    train_fraction: float = option(
        0.1,
        help="Share of nodes to train on.",
        rule=_TRAIN_FRACTION,
        panel="Features",
        shown=f"0.1; {_AS_SHAPE}",
    )
    eval_fraction: float | None = option(
        None,
        help="Share of nodes for validation; the same for test.",
        panel="Features",
        shown=f"{DEFAULT_EVAL_FRACTION}, or half of what --train-fraction leaves",
    )
    signal: float = option(
        1.0,
        help="Length of class means, in standard deviations of a feature's noise.",
        rule=_SIGNAL,
        panel="Features",
    )
    directed: bool = option(
        True, help="Store each edge as drawn, or in both directions.", flag="--directed/--undirected", panel="Graph"
    )
    order: str = option(
        "input",
        help="Order of nodes on disk: as generated, or the most often read first.",
        rule=one_of(ORDERS),
        panel="Storage",
    )
    rmat: tuple[float, ...] | None = option(
        None,
        help="Chances of the four quadrants (kronecker).",
        rule=_CHANCES,
        parse=parse_numbers,
        panel="Graph",
        metavar="A,B,C,D",
        shown=",".join(map(str, DEFAULT_RMAT)),
    )
    homophily: float | None = option(
        None,
        help="Chance that a neighbour has the same class (sbm).",
        rule=SHARE,
        panel="Graph",
        shown=str(DEFAULT_HOMOPHILY),
    )
    seed: int = like(TrainConfig, "seed", 0, help="Random seed; the same seed gives the same bytes.", rule=SEED)

    def __post_init__(self) -> None:
        validate(self)

    def check(self) -> None:
        """Check what options mean together."""
        if self.kind not in KINDS:
            raise ConfigError(f"kind '{self.kind}' is unknown; the known ones are {', '.join((*KINDS, TYPED))}")
        for flag, value, kind in (("--rmat", self.rmat, "kronecker"), ("--homophily", self.homophily, "sbm")):
            if value is not None and kind != self.kind:
                raise ConfigError(f"{flag} is for kind '{kind}' only; leave it out for '{self.kind}'")
        stored_edges = self.num_edges * (1 if self.directed else 2)
        rule = f"from 0 to {MOST_COUNT}, counted in both directions"
        require(stored_edges <= MOST_COUNT, "--edges", rule, self.num_edges, f"at most {MOST_COUNT // 2} work")
        left = 1 - self.train_fraction
        fits = self.eval_share >= 0 and 2 * self.eval_share <= left + 1e-9
        rule = "from 0 to half of what --train-fraction leaves"
        require(fits, "--eval-fraction", rule, self.eval_share, f"for example --eval-fraction {max(0.0, left / 2):g}")
        if self.kind == "sbm":
            self._check_blocks()

    def _check_blocks(self) -> None:
        classes, least = self.num_classes, 2 * self.num_classes
        require(classes >= 2, "--classes", "at least 2 for kind 'sbm'", classes, "for example --classes 16")
        fits = self.num_nodes >= least
        require(fits, "--nodes", "at least 2 for each class", self.num_nodes, f"for example --nodes {least}")
        fits = self.dim == 0 or classes <= hadamard_width(self.dim)
        rule = "0, or so large that a power of 2 holds all classes"
        require(fits, "--dim", rule, self.dim, f"for example --dim {1 << (classes - 1).bit_length()}")

    @property
    def eval_share(self) -> float:
        """Share of all nodes for validation, and the same for test."""
        if self.eval_fraction is not None:
            return self.eval_fraction
        return min(DEFAULT_EVAL_FRACTION, max(0.0, 1 - self.train_fraction) / 2)

    @property
    def quadrant_chances(self) -> tuple[float, ...]:
        """Chances a, b, c, d of R-MAT."""
        return DEFAULT_RMAT if self.rmat is None else self.rmat

    @property
    def same_class_chance(self) -> float:
        """Chance that a neighbour in a stochastic block model has the same class."""
        return DEFAULT_HOMOPHILY if self.homophily is None else self.homophily


def hadamard_width(dim: int) -> int:
    """The largest power of 2 that is at most dim; 0 for none."""
    return 1 << (dim.bit_length() - 1) if dim > 0 else 0
