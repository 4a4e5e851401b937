"""Operators of pre-propagation: the coefficients of the products that each hop computes (PP-GNN, section 2.2).

A *hop* multiplies a table by the operator's matrix B. B is the adjacency matrix A of the neighbour lists (repeated
edges count repeatedly), scaled by *degrees*, the lengths of the lists. A *step* computes one table of a hop: a scaled
product plus another scaled table. A *power* is a table that only later hops need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from diskhop.config.options import require_known
from diskhop.errors import ConfigError

FEATURES = "hop-0"
# Factors of a node's row: 1 / sqrt(degree), 1 / sqrt(degree + 1), 1 / degree.
Scaling = Literal["symmetric", "loops", "mean"]
_MOST_HEAT = 50.0


class Step(NamedTuple):
    """One table of a hop: product_scale * (B source) + addend_scale * addend.

    output: name of the table.
    product_scale: factor of the product.
    addend: name of the table to add, '' for none.
    addend_scale: factor of the addend.
    is_power: whether only later hops need the table.
    """

    output: str
    product_scale: float
    addend: str
    addend_scale: float
    is_power: bool


class Hop(NamedTuple):
    """One hop of an operator.

    operator: the operator.
    number: number of the hop, from 1.
    source: name of the table to multiply.
    steps: tables to compute from it.
    """

    operator: Operator
    number: int
    source: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    kind: key of OPERATORS.
    value: value of the kind's parameter; None if it has none.
    """

    kind: str
    value: float | None = None

    @property
    def name(self) -> str:
        """Name as users write it: sign, or ppr:alpha=0.1."""
        return self.kind + "".join(f":{name}={value!r}" for name, value in self.parameters.items())

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters by name."""
        parameter = self.info.parameter
        return {} if parameter is None or self.value is None else {parameter.name: self.value}

    @property
    def file_name(self) -> str:
        """Prefix of the names of its tables."""
        return self.name.replace(":", "-")

    @property
    def info(self) -> OperatorKind:
        """Properties of the kind."""
        return OPERATORS[self.kind]

    def table(self, hop: int) -> str:
        """Return the name of the table after a hop, from 1."""
        return f"{self.file_name}-hop-{hop}"

    def hops(self, num_hops: int) -> tuple[Hop, ...]:
        """Return all hops in order; each needs only tables of earlier ones."""
        return tuple(self.info.hop(self, number, num_hops) for number in range(1, num_hops + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an operator.

    name: name, as in ppr:alpha=0.1.
    default: value if none is given.
    least: exclusive lower bound.
    most: inclusive upper bound.
    """

    name: str
    default: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind:
    """Properties of all operators of a kind.

    scaling: scaling of output rows by degree.
    is_symmetric: whether input rows are scaled too.
    self_weight: weight of the node's own row in each sum; if not 0, the lists have no loops.
    hop: maps (operator, number from 1, number of hops) to a Hop.
    parameter: the parameter, None if there is none.
    """

    scaling: Scaling
    is_symmetric: bool
    self_weight: float
    hop: Callable[[Operator, int, int], Hop]
    parameter: Parameter | None = None


def _power_hop(operator: Operator, number: int, _num_hops: int) -> Hop:
    """Z_r = B Z_{r-1}."""
    source = FEATURES if number == 1 else operator.table(number - 1)
    return Hop(operator, number, source, (Step(operator.table(number), 1.0, "", 0.0, False),))


def _pagerank_hop(operator: Operator, number: int, _num_hops: int) -> Hop:
    """Z_r = (1 - alpha) B Z_{r-1} + alpha X, which converges to alpha (I - (1 - alpha) B)^-1 X."""
    alpha = operator.parameters["alpha"]
    source = FEATURES if number == 1 else operator.table(number - 1)
    return Hop(operator, number, source, (Step(operator.table(number), 1 - alpha, FEATURES, alpha, False),))


def _heat_hop(operator: Operator, number: int, num_hops: int) -> Hop:
    """Z_r = Z_{r-1} + exp(-t) t^r / r! B^r X with Z_0 = exp(-t) X, which converges to exp(-t (I - B)) X.

    Each hop but the last also computes the power B^r X from the same source.
    """
    t = operator.parameters["t"]
    power = operator.file_name + "-power-{}"
    source = FEATURES if number == 1 else power.format(number - 1)
    weight = math.exp(-t) * t**number / math.factorial(number)
    addend, addend_scale = (FEATURES, math.exp(-t)) if number == 1 else (operator.table(number - 1), 1.0)
    steps = [Step(operator.table(number), weight, addend, addend_scale, False)]
    if number < num_hops:
        steps.append(Step(power.format(number), 1.0, "", 0.0, True))
    return Hop(operator, number, source, tuple(steps))


# sgc: D~^-1/2 (A + I) D~^-1/2 with D~ = D + I, as PyG's gcn_norm (existing loops are replaced). sign: D^-1/2 A D^-1/2,
# as PyG's T.SIGN (existing loops count as edges); ppr and heat use the same matrix. row: D^-1 A, the mean. The product
# of a node without neighbours is 0.
OPERATORS: dict[str, OperatorKind] = {
    "sgc": OperatorKind(scaling="loops", is_symmetric=True, self_weight=1.0, hop=_power_hop),
    "sign": OperatorKind(scaling="symmetric", is_symmetric=True, self_weight=0.0, hop=_power_hop),
    "row": OperatorKind(scaling="mean", is_symmetric=False, self_weight=0.0, hop=_power_hop),
    "ppr": OperatorKind(
        scaling="symmetric",
        is_symmetric=True,
        self_weight=0.0,
        hop=_pagerank_hop,
        parameter=Parameter(name="alpha", default=0.1, least=0.0, most=1.0),
    ),
    "heat": OperatorKind(
        scaling="symmetric",
        is_symmetric=True,
        self_weight=0.0,
        hop=_heat_hop,
        parameter=Parameter(name="t", default=3.0, least=0.0, most=_MOST_HEAT),
    ),
}


def parse_operator(text: str) -> Operator:
    """Parse an operator as users write it: sign, ppr, ppr:alpha=0.2. Raises ConfigError."""
    kind, _, given = text.partition(":")
    require_known("operator", kind, OPERATORS)
    parameter = OPERATORS[kind].parameter
    if parameter is None:
        if given:
            raise ConfigError(f"operator '{text}': {kind} takes no parameters; write {kind}")
        return Operator(kind)
    name, _, number = given.partition("=")
    try:
        value = float(number) if given else parameter.default
    except ValueError:
        value = math.nan
    if (given and name != parameter.name) or not parameter.least < value <= parameter.most:
        raise ConfigError(
            f"operator '{text}': must be {kind}:{parameter.name}=NUMBER with NUMBER above {parameter.least:g} and "
            f"up to {parameter.most:g}, such as {kind}:{parameter.name}={parameter.default:g}"
        )
    return Operator(kind, value)
