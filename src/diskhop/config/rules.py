"""Rules that an option's value must follow, with the words that a message has for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_COUNT, MOST_BYTES = 2**31 - 1, 2**63 - 1
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule on the value of one option.

    holds: whether a value follows it.
    text: the rule in words, after "must be".
    example: a value that follows it.
    choices: every value that follows it, where they are few.
    """

    holds: Callable[[Any], bool]
    text: str
    example: Any
    choices: tuple[str, ...] = ()


def between(lowest: float, highest: float, example: float | None = None) -> Rule:
    """Accept numbers from lowest to highest, both included."""
    return Rule(
        holds=lambda value: lowest <= value <= highest,
        text=f"from {lowest} to {highest}",
        example=lowest if example is None else example,
    )


def at_least(lowest: int) -> Rule:
    """Accept numbers from lowest on."""
    return Rule(holds=lambda value: value >= lowest, text=f"at least {lowest}", example=lowest)


def one_of(names: Sequence[str]) -> Rule:
    """Accept some names; '' may be one, which messages leave out."""
    shown = tuple(filter(None, names))
    return Rule(holds=lambda value: value in names, text=f"one of {', '.join(shown)}", example=shown[0], choices=shown)


FRACTION = Rule(holds=lambda value: 0 <= value < 1, text="at least 0 and less than 1", example=0.1)
SHARE = between(0, 1, 0.5)
POSITIVE = Rule(holds=lambda value: math.isfinite(value) and value > 0, text="more than 0", example=0.01)
NOT_NEGATIVE = Rule(holds=lambda value: math.isfinite(value) and value >= 0, text="at least 0", example=0.0)
COUNT = between(1, MOST_COUNT)
COUNT_OR_NONE = between(0, MOST_COUNT)
SEED = between(0, MOST_BYTES)
THREADS = between(1, MOST_THREADS)
DEVICE = Rule(
    holds=lambda name: re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name) is not None,
    text="auto, cpu, cuda or cuda:N",
    example="cuda:0",
)
