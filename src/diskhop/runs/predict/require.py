"""Conditions on a run's metric, without which nothing is published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.errors import ConfigError
from diskhop.runs.better import ERRORS

_CONDITION = re.compile(r"(?P<part>\w+)\s*(?P<sign>>=|<=)\s*(?P<bound>-?[0-9]*\.?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: the metric of a part of the split is at least, or of errors at most, a value.

    part: train, valid or test.
    bound: the value.
    is_error: whether less is better.
    """

    part: str
    bound: float
    is_error: bool = False

    def holds(self, value: float) -> bool:
        """Return whether a value of the metric is good enough."""
        return value <= self.bound if self.is_error else value >= self.bound

    def __str__(self) -> str:
        return f"{self.part}{'<=' if self.is_error else '>='}{self.bound:g}"


def parse_conditions(texts: Sequence[str], metric: str) -> list[Condition]:
    """Parse conditions on a metric, such as 'test>=.70', or 'test<=1.5' for an error. Raises ConfigError."""
    is_error = metric in ERRORS
    sign = "<=" if is_error else ">="
    found = []
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None or match["part"] not in SPLIT_NAMES or match["sign"] != sign:
            raise ConfigError(
                f"--require '{text}' must be one of {', '.join(SPLIT_NAMES)}, then {sign} and a number, since the "
                f"run's metric is {metric}; for example --require 'test{sign}.70'"
            )
        found.append(Condition(match["part"], float(match["bound"]), is_error))
    return found
