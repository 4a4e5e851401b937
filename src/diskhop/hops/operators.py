"""Operators of pre-propagation: what a hop does to a table, as numbers that the product takes (PP-GNN, section 2.2).

A *hop* multiplies a table by the operator's matrix B. B is the adjacency matrix A of neighbour lists (a repeated edge
counts as often as it is there), scaled by *degrees*, the lengths of those lists. A *step* is one table that a hop
makes: a product, scaled, and another table added. A *power* is a table that only later hops need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from diskhop.config.options import require_known
from diskhop.errors import ConfigError

FEATURES = "hop-0"
# The numbers that a node's rows are multiplied by: 1 / sqrt(degree), 1 / sqrt(degree + 1), 1 / degree.
Scaling = Literal["symmetric", "loops", "mean"]
_MOST_HEAT = 50.0


class Step(NamedTuple):
    """A table that a hop makes: product_scale * (B source) + addend_scale * addend. addend: a table, '' for none."""

    output: str
    product_scale: float
    addend: str
    addend_scale: float
    is_power: bool


class Hop(NamedTuple):
    """One hop of an operator: the steps that its source is read for."""

    operator: Operator
    number: int
    source: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator. value: of the parameter that its kind has; None: it has none."""

    kind: str
    value: float | None = None

    @property
    def name(self) -> str:
        """As a user spells it: sign, or ppr:alpha=0.1."""
        return self.kind + "".join(f":{name}={value!r}" for name, value in self.parameters.items())

    @property
    def parameters(self) -> dict[str, float]:
        """By name."""
        parameter = self.info.parameter
        return {} if parameter is None or self.value is None else {parameter.name: self.value}

    @property
    def file_name(self) -> str:
        """What its tables' names begin with."""
        return self.name.replace(":", "-")

    @property
    def info(self) -> OperatorKind:
        """What all operators of the kind have."""
        return OPERATORS[self.kind]

    def table(self, hop: int) -> str:
        """The name of its table of a hop, from 1."""
        return f"{self.file_name}-hop-{hop}"

    def hops(self, num_hops: int) -> tuple[Hop, ...]:
        """All hops, in order; each needs only tables of those before."""
        return tuple(self.info.hop(self, number, num_hops) for number in range(1, num_hops + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A number that an operator takes, above `least` and up to `most`."""

    name: str
    default: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind:
    """What operators of a kind have.

    scaling: of output rows; is_symmetric: and of input rows. self_weight: of a node's own row, added to each sum: lists
    are then taken without loops. hop: (operator, number from 1, how many) -> what the hop does.
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
    """Z_r = (1 - alpha) B Z_{r-1} + alpha X, which tends to alpha (I - (1 - alpha) B)^-1 X."""
    alpha = operator.parameters["alpha"]
    source = FEATURES if number == 1 else operator.table(number - 1)
    return Hop(operator, number, source, (Step(operator.table(number), 1 - alpha, FEATURES, alpha, False),))


def _heat_hop(operator: Operator, number: int, num_hops: int) -> Hop:
    """Z_r = Z_{r-1} + exp(-t) t^r / r! B^r X with Z_0 = exp(-t) X, which tends to exp(-t (I - B)) X.

    The powers B^r X are made beside it, of the same source, but for the last.
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


# sgc: D~^-1/2 (A + I) D~^-1/2 with D~ = D + I, as PyG's gcn_norm (a loop that is there is not added to). sign: D^-1/2 A
# D^-1/2, as PyG's T.SIGN (loops that are there count like edges); ppr and heat are over the same matrix. row: D^-1 A,
# the mean. A row without neighbours is 0, but for what is added.
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
    """An operator from how a user spells it: sign, ppr, ppr:alpha=0.2. Raises ConfigError."""
    kind, _, told = text.partition(":")
    require_known("operator", kind, OPERATORS)
    parameter = OPERATORS[kind].parameter
    if parameter is None:
        if told:
            raise ConfigError(f"operator '{text}': {kind} takes no parameters; leave ':{told}' out")
        return Operator(kind)
    name, _, number = told.partition("=")
    try:
        value = float(number) if told else parameter.default
    except ValueError:
        value = math.nan
    if (told and name != parameter.name) or not parameter.least < value <= parameter.most:
        raise ConfigError(
            f"operator '{text}': must be {kind}:{parameter.name}=NUMBER with a number above {parameter.least:g} and "
            f"up to {parameter.most:g}, as {kind}:{parameter.name}={parameter.default:g}"
        )
    return Operator(kind, value)
