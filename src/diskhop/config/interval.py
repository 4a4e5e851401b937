"""How often a run is kept within an epoch: after a time such as '10min', or after a number such as '500 batches'."""

from __future__ import annotations

import re
from dataclasses import dataclass

from diskhop.config.rules import Rule
from diskhop.errors import ConfigError

# Only at the ends of epochs.
EPOCH = "epoch"
DEFAULT_INTERVAL = "10min"
_SECONDS = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A time or a number, the other of which is None; both are None for 'epoch'."""

    seconds: float | None = None
    count: int | None = None

    def is_over(self, seconds: float, count: int) -> bool:
        """Return whether it is over. seconds: since it began. count: of what is counted since then."""
        return (self.seconds is not None and seconds >= self.seconds) or (
            self.count is not None and count >= self.count
        )


def parse_interval(text: str, counted: str) -> Interval:
    """Parse an interval. counted: what a number is of, as 'batches'. Raises ConfigError."""
    if text.strip() == EPOCH:
        return Interval()
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)", text.strip())
    number, unit = found.groups() if found else ("0", "")
    if unit in _SECONDS and float(number) > 0:
        return Interval(seconds=float(number) * _SECONDS[unit])
    if unit == counted and number.isdigit() and int(number) > 0:
        return Interval(count=int(number))
    raise ConfigError(f"interval '{text}' is not {interval_of(counted).text}")


def interval_of(counted: str) -> Rule:
    """Accept intervals. counted: see parse_interval()."""

    def holds(text: str) -> bool:
        try:
            parse_interval(text, counted)
        except ConfigError:
            return False
        return True

    words = f"a time in s, min or h, a number of {counted} as '500 {counted}', or epoch"
    return Rule(holds=holds, text=words, example=DEFAULT_INTERVAL)
