"""Which of two values of a metric is better: of errors the lower, of all other metrics the higher."""

from __future__ import annotations

from collections.abc import Sequence

ERRORS = ("rmse", "mae")


def is_better(metric: str, value: float, other: float) -> bool:
    """Return whether a value of a metric is better than another."""
    return value < other if metric in ERRORS else value > other


def best_value(metric: str, values: Sequence[float]) -> float | None:
    """Return the best of some values of a metric; None of none."""
    return min(values, default=None) if metric in ERRORS else max(values, default=None)
