"""The ranks of a run: processes that train together, as torchrun numbers them in their environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from diskhop.errors import ConfigError

ItemT = TypeVar("ItemT")

_RANK, _COUNT, _LOCAL_RANK, _LOCAL_COUNT = NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together.

    rank: its number, from 0.
    count: number of processes.
    local_rank: its number among those on this machine, from 0.
    local_count: number of processes on this machine.
    """

    rank: int
    count: int
    local_rank: int
    local_count: int

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone writes and prints."""
        return self.rank == 0

    def share(self, numbers: Sequence[ItemT]) -> Sequence[ItemT]:
        """Return every count-th item from this rank's on: the shares of all ranks are the whole."""
        return numbers[self.rank :: self.count]


# A process that trains alone.
ONE = Ranks(rank=0, count=1, local_rank=0, local_count=1)


def read_ranks(environ: Mapping[str, str]) -> Ranks:
    """Read the ranks from torchrun's variables; ONE if there are none.

    Raises ConfigError for variables that are missing or contradict each other.
    """
    given = [name for name in (_COUNT, _RANK) if name in environ]
    if not given:
        return ONE
    way = f"start with torchrun, which sets all of them, or run first: unset {' '.join(given)}"
    names = NAMES if environ.get(_COUNT) == "1" else (*NAMES, *_ADDRESS)
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise ConfigError(f"{given[0]} is '{environ[given[0]]}', which needs {', '.join(missing)} too: {way}")
    for name in NAMES:
        if not environ[name].isdecimal():
            raise ConfigError(f"{name} must be a whole number from 0, got '{environ[name]}': {way}")
    values = {name: int(environ[name]) for name in NAMES}
    for name, count in ((_RANK, _COUNT), (_LOCAL_RANK, _LOCAL_COUNT)):
        if values[name] >= values[count]:
            raise ConfigError(f"{name} must be less than {count}, got {values[name]} of {values[count]}: {way}")
    if values[_LOCAL_COUNT] > values[_COUNT]:
        raise ConfigError(
            f"{_LOCAL_COUNT} must be at most {_COUNT}, got {values[_LOCAL_COUNT]} of {values[_COUNT]}: {way}"
        )
    return Ranks(*values.values())


def most_per_machine(every: Iterable[Ranks]) -> int:
    """Return how many ranks the machine with most of them has."""
    return max(each.local_count for each in every)


def was_restarted(environ: Mapping[str, str]) -> bool:
    """Whether torchrun has started the ranks again, after one of them failed."""
    return environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
