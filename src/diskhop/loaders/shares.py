"""The batches of a loader that a process gets, where the processes of torch.distributed share out each pass.

Process r of n gets the batches r, r + n, ... of the pass. All get the same number of them, because training by
DistributedDataParallel waits for all: the last round is filled with the first batches of the pass, as torch's
DistributedSampler does.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import torch.distributed as dist

from diskhop.budget import Budget
from diskhop.config.options import require
from diskhop.errors import ConfigError
from diskhop.loaders.checks import budget_of
from diskhop.pipeline.peers import GroupPeers, meet, together
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.system.resident import SharedMemory

InitT = TypeVar("InitT", bound=Callable[..., None])
# Arguments of a loader that its process makes alone.
_ALONE = ("num_replicas", "node_rows")


@dataclass(frozen=True, slots=True)
class PassNumbers:
    """Numbers of the batches that a process gets in a pass, in their order.

    own: of its own batches. repeated: of those that fill the last round.
    """

    own: range
    repeated: tuple[int, ...] = ()

    @classmethod
    def of(cls, ranks: Ranks, num_batches: int) -> PassNumbers:
        """Return the numbers that a process gets of a pass of num_batches."""
        own = range(ranks.rank, num_batches, ranks.count)
        num_rounds = -(-num_batches // ranks.count)
        missing = range(len(own), num_rounds)
        return cls(own, tuple((ranks.rank + each * ranks.count) % num_batches for each in missing))

    def __len__(self) -> int:
        """Return how many batches it gets."""
        return len(self.own) + len(self.repeated)

    def at(self, places: Sequence[int]) -> Sequence[int]:
        """Return the numbers at places of the pass."""
        if isinstance(places, range) and (not self.repeated or len(places) == 0):
            return self.own[places.start : places.stop]
        every = [*self.own, *self.repeated]
        return [every[place] for place in places]

    def place_of(self, number: int) -> int:
        """Return the place of a number."""
        return self.own.index(number) if number in self.own else len(self.own) + self.repeated.index(number)


class LoaderShare:
    """The share of a loader's process, and the other processes that it shares memory with.

    loader: name of the class.
    num_replicas, rank: as torch's DistributedSampler has them; None: those of the process group, if there is one.
    """

    def __init__(self, loader: str, num_replicas: Any, rank: Any) -> None:
        self._loader = loader
        self._ranks: Ranks | None = None if num_replicas is None else _given(loader, num_replicas, rank)
        self._world: GroupPeers | None = None
        self._local: GroupPeers | None = None
        if num_replicas is None and rank is not None:
            raise ConfigError(f"{loader}: rank {reprlib.repr(rank)} needs num_replicas; pass both, or neither")
        if self._ranks is None and _num_processes() > 1:
            self._world, self._local = meet()

    @property
    def ranks(self) -> Ranks:
        """This process and how many share a pass. A group that was made after the loader counts, too."""
        if self._ranks is not None:
            return self._ranks
        num_processes = _num_processes()
        if num_processes == 1:
            return ONE
        local = (0, 1) if self._local is None else (self._local.index, self._local.count)
        return Ranks(dist.get_rank(), num_processes, *local)

    @property
    def peers(self) -> GroupPeers | None:
        """The processes of this machine that the loader shares memory with; None for none."""
        return self._local if self._local is not None and self._local.count > 1 else None

    @property
    def memory(self) -> SharedMemory | None:
        """Memory that they share."""
        return None if self.peers is None else SharedMemory(self.peers)

    def budget_of(self, memory: Any) -> Budget:
        """Return the budget of all processes on this machine. memory: see budget_of()."""
        peers = self.peers
        if isinstance(memory, Budget):
            memory.divide_among(1 if peers is None else peers.count)
            return memory
        if peers is None:
            return budget_of(memory)
        return Budget(peers.first(lambda: budget_of(memory).total_bytes), peers.count)

    def opened(self, close: Callable[[], None]) -> AbstractContextManager[None]:
        """Open something in a block that all processes of the loader run together. close: closes it after an error."""
        return nullcontext() if self._world is None else _opened_together(close)

    def keep_whole(self) -> None:
        """Give this process all batches of its loader, because the order of its inputs is its own."""
        self._ranks = ONE

    def settle(self, arguments: Mapping[str, Any], inputs: str | None) -> None:
        """Compare the arguments of all processes. Those whose inputs differ were given a share, and get all of it.

        inputs: name of the inputs among the arguments; None for none. Raises ConfigError if others differ.
        """
        if self._world is None or self._ranks is not None:
            return
        every = self._world.gather(dict(arguments))
        if inputs is not None and any(each[inputs] != every[0][inputs] for each in every):
            self._ranks = ONE
            return
        self._require_same(every, "which share out its batches")

    def compare(self, arguments: Mapping[str, Any]) -> None:
        """Compare what processes that open the graph together must have in common. Raises ConfigError."""
        if (peers := self.peers) is not None:
            self._require_same(peers.gather(dict(arguments)), "which open the graph together")

    def _require_same(self, every: Sequence[Mapping[str, Any]], why: str) -> None:
        for process, each in enumerate(every):
            for name, value in every[0].items():
                if each[name] != value:
                    raise ConfigError(
                        f"{self._loader}: {name} is {reprlib.repr(value)} in process 0 and "
                        f"{reprlib.repr(each[name])} in process {process}, {why}; pass the same to all of them"
                    )


def made_together(init: InitT) -> InitT:
    """Decorate the __init__ of a loader, which all processes of a group call: if it raises in one, it raises in all."""

    @wraps(init)
    def init_together(self: Any, *arguments: Any, **options: Any) -> None:
        is_alone = _num_processes() == 1 or any(options.get(name) is not None for name in _ALONE)
        with nullcontext() if is_alone else _opened_together(lambda: self.close()):
            init(self, *arguments, **options)

    return cast(InitT, init_together)


@contextmanager
def _opened_together(close: Callable[[], None]) -> Iterator[None]:
    """Open something in a block that all processes of the group run; if it raises in one, all close what is open."""
    with ExitStack() as opened:
        with together():
            yield
            opened.callback(close)
        opened.pop_all()


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _given(loader: str, num_replicas: Any, rank: Any) -> Ranks:
    hint = f"for example {loader}(..., num_replicas=2, rank=0)"
    is_count = isinstance(num_replicas, int) and num_replicas >= 1
    require(is_count, "num_replicas", "a number of processes, at least 1", num_replicas, hint)
    if rank is None:
        rank = 0 if num_replicas == 1 else dist.get_rank() if _num_processes() > 1 else None
    is_rank = isinstance(rank, int) and 0 <= rank < num_replicas
    require(is_rank, "rank", f"a number from 0 to {num_replicas - 1}", rank, hint)
    return Ranks(rank, num_replicas, 0, 1)
