"""Commits within an epoch: after an interval, and when the run is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable

from diskhop.config.interval import Interval
from diskhop.runs.checkpoint import EpochPart
from diskhop.runs.distributed import Group
from diskhop.runs.interruptions import Interruption


class EpochCommits:
    """Decides after every step of an epoch whether the run is kept. All ranks decide as rank 0 does.

    interval: from one commit to the next. commit: keeps the run. interruption: noted by a signal; None if signals are
    not put off.
    """

    def __init__(
        self,
        interval: Interval,
        group: Group,
        commit: Callable[[EpochPart], None],
        interruption: Interruption | None = None,
    ) -> None:
        self._interval = interval
        self._group = group
        self._commit = commit
        self._interruption = interruption or Interruption()
        self._since, self._batches = time.perf_counter(), 0

    def step_done(self, num_batches: int, make_part: Callable[[], EpochPart]) -> None:
        """Keep the run if that is due, and deliver a signal that was put off.

        num_batches: that all ranks have computed since the last call. make_part: returns what the epoch has added up.
        """
        self._batches += num_batches
        if self._group.first(self._is_due):
            self._commit(make_part())
            self._since, self._batches = time.perf_counter(), 0
        self._interruption.deliver()

    def _is_due(self) -> bool:
        is_over = self._interval.is_over(time.perf_counter() - self._since, self._batches)
        return is_over or self._interruption.number is not None
