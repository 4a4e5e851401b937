"""What a generated graph is to be: one frozen value, validated once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from diskhop.dataset.encoding import check_feature_dtype
from diskhop.dataset.manifest import MOST_CLASSES, MOST_COLUMNS, MOST_COUNT
from diskhop.dataset.sort.hot_order import ORDERS
from diskhop.errors import ConfigError

KINDS = ("kronecker", "uniform", "sbm")
DEFAULT_RMAT = (0.45, 0.22, 0.22, 0.11)
DEFAULT_HOMOPHILY = 0.7
DEFAULT_EVAL_FRACTION = 0.02
# An edge drawn in a square of 2^k ids ends inside of the graph at least with chance a (generate.hpp).
_LEAST_RMAT_A = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """Everything that a generated graph depends on.

    kind: see KINDS. num_edges: drawn; undirected, each is stored both ways. dim: features a node, 0 for none; dtype: as
    they are stored; signal: length of the class means, in standard deviations of the noise. num_classes: 0 for neither
    labels nor splits. train_fraction: of all nodes; eval_fraction: for validation and, as many again, for test; None:
    0.02, or half of what train_fraction leaves if that is less. order: input, or hot (dataset/sort/hot_order.py).
    rmat: chances of the quadrants (kronecker). homophily: chance that a neighbour is of a node's own class (sbm). None
    there: the default; of another kind: refused.
    """

    kind: str
    num_nodes: int
    num_edges: int
    dim: int
    dtype: str = "float32"
    num_classes: int
    train_fraction: float = 0.1
    eval_fraction: float | None = None
    signal: float = 1.0
    directed: bool = True
    order: str = "input"
    rmat: tuple[float, ...] | None = None
    homophily: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for what, word, known in (("kind", self.kind, KINDS), ("order", self.order, ORDERS)):
            if word not in known:
                raise ConfigError(f"{what} '{word}' is unknown; the known ones are {', '.join(known)}")
        check_feature_dtype(self.dtype)
        for what, option, kind in (("rmat", self.rmat, "kronecker"), ("homophily", self.homophily, "sbm")):
            if option is not None and kind != self.kind:
                raise ConfigError(f"{what} is for kind '{kind}' only; leave it out for '{self.kind}'")
        stored_edges = self.num_edges * (1 if self.directed else 2)
        rmat = self.quadrant_chances
        rmat_holds = len(rmat) == 4 and all(0 <= chance <= 1 for chance in rmat) and rmat[0] >= _LEAST_RMAT_A
        fractions = self.train_fraction + 2 * self.eval_share
        rules: list[tuple[str, object, bool, str]] = [
            ("nodes", self.num_nodes, 1 <= self.num_nodes <= MOST_COUNT, f"from 1 to {MOST_COUNT}"),
            ("edges", self.num_edges, 0 <= stored_edges <= MOST_COUNT, f"from 0 to {MOST_COUNT}, both ways counted"),
            ("dim", self.dim, 0 <= self.dim <= MOST_COLUMNS, f"from 0 to {MOST_COLUMNS}"),
            (
                "classes",
                self.num_classes,
                self.num_classes == 0 or 2 <= self.num_classes < MOST_CLASSES,
                "0 for no labels, or at least 2",
            ),
            ("train fraction", self.train_fraction, 0 < self.train_fraction <= 1, "more than 0, at most 1"),
            (
                "eval fraction",
                self.eval_share,
                self.eval_share >= 0 and fractions <= 1 + 1e-9,
                "from 0 to half of what the train fraction leaves",
            ),
            ("signal", self.signal, 0 <= self.signal <= 1000, "from 0 to 1000"),
            (
                "rmat",
                ",".join(map(str, rmat)),
                rmat_holds and math.isclose(sum(rmat), 1, abs_tol=1e-6),
                f"four chances a,b,c,d with sum 1, a at least {_LEAST_RMAT_A}",
            ),
            ("homophily", self.same_class_chance, 0 <= self.same_class_chance <= 1, "from 0 to 1"),
            ("seed", self.seed, 0 <= self.seed < 2**63, "from 0 to 2^63 - 1"),
        ]
        if self.kind == "sbm":
            rules += [
                ("classes", self.num_classes, self.num_classes >= 2, "at least 2"),
                ("nodes", self.num_nodes, self.num_nodes >= 2 * self.num_classes, "at least 2 for each class"),
                (
                    "dim",
                    self.dim,
                    self.dim == 0 or self.num_classes <= hadamard_width(self.dim),
                    "0, or so large that a power of 2 holds all classes",
                ),
            ]
        for what, value, holds, rule in rules:
            if not holds:
                raise ConfigError(f"{what} must be {rule}, got {value}")

    @property
    def eval_share(self) -> float:
        """Of all nodes, for validation and again for test."""
        if self.eval_fraction is not None:
            return self.eval_fraction
        return min(DEFAULT_EVAL_FRACTION, max(0.0, 1 - self.train_fraction) / 2)

    @property
    def quadrant_chances(self) -> tuple[float, ...]:
        """R-MAT's a, b, c, d."""
        return DEFAULT_RMAT if self.rmat is None else self.rmat

    @property
    def same_class_chance(self) -> float:
        """Of a neighbour in a stochastic block model."""
        return DEFAULT_HOMOPHILY if self.homophily is None else self.homophily


def hadamard_width(dim: int) -> int:
    """The largest power of 2 that is at most dim; 0 for none."""
    return 1 << (dim.bit_length() - 1) if dim > 0 else 0
