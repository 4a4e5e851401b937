"""Conditions on a run's metric, without which nothing is published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.errors import ConfigError

_CONDITION = re.compile(r"(?P<part>\w+)\s*>=\s*(?P<least>[0-9]*\.?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: the metric of a part of the split is at least a value."""

    part: str
    least: float


def parse_conditions(texts: Sequence[str]) -> list[Condition]:
    """Parse conditions such as 'test>=.70'. Raises ConfigError."""
    found = []
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None or match["part"] not in SPLIT_NAMES:
            raise ConfigError(
                f"--require '{text}' must be one of {', '.join(SPLIT_NAMES)}, then >= and a number; "
                "for example --require 'test>=.70'"
            )
        found.append(Condition(match["part"], float(match["least"])))
    return found
