"""The processes of a torch.distributed process group that run on one machine.

Which ones do is found out once, when they first meet: they see the same /proc and the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from diskhop.budget import Budget
from diskhop.errors import RankError
from diskhop.runtime.jobs import portable_error
from diskhop.system.resident import Peers, SharedMemory

T = TypeVar("T")
# As long as gloo waits, which is what scripts on CPUs are used to.
_TIMEOUT = timedelta(minutes=30)
_NAMESPACES = ("pid", "net")


class GroupPeers(Peers):
    """Peers that talk through a process group of their own. See Peers.

    Whatever they do together begins with the errors of all, so that one that has given up answers any of it.

    group: the processes of this machine, or of all machines.
    local: the processes of this machine, where the group is of all machines; None where it is that of the machine.
    """

    def __init__(self, group: dist.ProcessGroup, local: GroupPeers | None = None) -> None:
        self._group = group
        self._local = local
        # Blocks of together() that are running, and the last error in them that all have: it keeps what it refers to.
        self._depth = 0
        self._shared: BaseException | None = None

    @property
    def index(self) -> int:
        """See Peers."""
        return self._group.rank()

    @property
    def count(self) -> int:
        """See Peers."""
        return self._group.size()

    def first(self, make: Callable[[], T]) -> T:
        """See Peers."""
        found = [self.every(lambda: make() if self.index == 0 else None)]
        _together(lambda: dist.broadcast_object_list(found, group=self._group, group_src=0))
        return found[0]  # type: ignore[return-value]

    def every(self, do: Callable[[], T]) -> T:
        """See Peers."""
        try:
            value = do()
        except Exception as error:
            self._share(error)
            raise
        self._share(None)
        return value

    def gather(self, value: T) -> list[T]:
        """Return the values of all peers, in their order."""
        self._share(None)
        return self._gather(value)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block in all of them: if it raises in one, it raises in all, wherever they wait for that one."""
        self._depth += 1
        try:
            try:
                yield
            except Exception as error:
                # A process that has lost another one cannot reach it.
                if error is not self._shared and not isinstance(error, RankError):
                    self._share(error)
                raise
            self._share(None)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._shared = None

    def _share(self, own: Exception | None) -> None:
        """Tell the others about an error. Raises that of another one, unless this process has one."""
        if self._local is not None:
            # Before a machine waits for others: one of its processes that gave up is waited for here.
            self._local._share(None)
        found = self._gather(None if own is None else portable_error(own))
        error = own or next((each for each in found if each is not None), None)
        self._shared = error if self._depth else None
        if own is None and error is not None:
            try:
                raise error
            finally:
                del error, found  # or the error would keep its own frames, and memory in them

    def _gather(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.count
        _together(lambda: dist.all_gather_object(found, value, group=self._group))
        return found


# The process group that met last, and its peers: a script has one.
_met: list[Any] = [None, None]


def meet() -> tuple[GroupPeers, GroupPeers]:
    """Return the peers on all machines, and those on this one. All processes of the process group call it together."""
    if _met[0] is not dist.group.WORLD:
        _met[:] = dist.group.WORLD, _meet()
    return _met[1]  # type: ignore[no-any-return]


def part() -> None:
    """Forget the process group that met: its connections close once nothing refers to it."""
    _met[:] = None, None


def shared_memory(budget: Budget) -> SharedMemory | None:
    """Return the memory of processes that share a budget, which call this together; None for one process alone."""
    return None if budget.num_processes == 1 else SharedMemory(meet()[1])


@contextmanager
def together() -> Iterator[None]:
    """Run a block in all processes of the process group: if it raises in one, it raises in all.

    They may do things together in it, those of one machine or all.
    """
    world, local = meet()
    with world.together(), local.together():
        yield


def _meet() -> tuple[GroupPeers, GroupPeers]:
    # Groups of their own, because that of the script may be for GPUs.
    everywhere = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    world = GroupPeers(everywhere)
    machines = world.gather(_machine())
    groups = {}
    for machine in dict.fromkeys(machines):
        ranks = [rank for rank, each in enumerate(machines) if each == machine]
        # Every process has to make every group, also those that it is not in.
        groups[machine] = dist.new_group(ranks, backend="gloo", timeout=_TIMEOUT)
    local = GroupPeers(groups[machines[world.index]])
    return GroupPeers(everywhere, local), local


def _machine() -> tuple[str, ...]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return (boot, *(str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES))


def _together(act: Callable[[], None]) -> None:
    try:
        act()
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        raise RankError(
            [
                f"another process that shares the graph ended, or does something else: {text}; all of them must open "
                "the same loaders in the same order (one that a single process uses: num_replicas=1)"
            ]
        ) from error
