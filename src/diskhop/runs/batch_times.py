"""Seconds of the training loop batch by batch, of a bounded number of batches: its waits, and the model's computing.

A pass has too many batches to keep all of them in a run's record; its first ones show what every batch is like. Of
embeddings the same is kept of states, since it is between them that the loop waits.
"""

from __future__ import annotations

from diskhop.counters import WaitSeconds

# Batches in a record, at most: as many as a chart can show.
MOST_BATCHES = 200


def timed_epoch(epochs: int) -> int:
    """Return the epoch whose batches are kept: the second one, whose caches are full, or the only one."""
    return min(1, epochs - 1)


class BatchTimes:
    """Seconds of the first batches of a pass.

    first: place of its first batch in the epoch, from 0; batches before it are those of a run that was resumed.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._batches: list[tuple[float, ...]] = []

    def add(self, waits: WaitSeconds, computing: float, other: float) -> None:
        """Add the next batch; those beyond MOST_BATCHES are left out.

        computing: seconds of the model. other: seconds of the training loop between batches.
        """
        if len(self._batches) < MOST_BATCHES:
            self._batches.append((*waits, computing, other))

    def record(self) -> dict[str, int | list[float]]:
        """Return the seconds of each batch by what they were spent on, by the names of result.json."""
        names = (*WaitSeconds._fields, "computing", "other")
        columns = zip(*self._batches, strict=True) if self._batches else [()] * len(names)
        return {
            "first": self._first,
            **{name: [round(each, 6) for each in column] for name, column in zip(names, columns, strict=True)},
        }


class StateTimes:
    """Seconds of the first states of a pass of embeddings, without reads before them and writes at the end.

    first: place of its first state in the pass, from 0.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._states: list[tuple[float, float]] = []

    def add(self, seconds: float, waiting: float) -> None:
        """Add the next state; those beyond MOST_BATCHES are left out.

        waiting: seconds, of all its, for partitions; waits for other processes count as training.
        """
        if len(self._states) < MOST_BATCHES:
            self._states.append((max(0.0, seconds - waiting), waiting))

    def record(self) -> dict[str, int | list[float]]:
        """Return the seconds of each state by what they were spent on, by the names of result.json."""
        training, waiting = zip(*self._states, strict=True) if self._states else ((), ())
        return {
            "first": self._first,
            "training": [round(each, 6) for each in training],
            "waiting": [round(each, 6) for each in waiting],
        }
