"""The processes of a torch.distributed process group that run on one machine.

Which ones do is found out once, when they first meet: they see the same /proc and the same network.
"""

from __future__ import annotations

from collections.abc import Callable
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

    group: the processes of this machine.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

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
        found: Any = None
        error = None
        if self.index == 0:
            try:
                found = make()
            except Exception as raised:
                error = raised
        sent = [found, None if error is None else portable_error(error)]
        _together(lambda: dist.broadcast_object_list(sent, group=self._group, group_src=0))
        if error is not None or sent[1] is not None:
            raise error or sent[1]
        return sent[0]  # type: ignore[no-any-return]

    def every(self, do: Callable[[], T]) -> T:
        """See Peers."""
        try:
            value, own = do(), None
        except Exception as error:
            value, own = None, error
        errors = self.gather(None if own is None else portable_error(own))
        if own is not None:
            raise own
        for each in errors:
            if each is not None:
                raise each
        return value  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Return the values of all peers, in their order."""
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


def shared_memory(budget: Budget) -> SharedMemory | None:
    """Return the memory of processes that share a budget, which call this together; None for one process alone."""
    return None if budget.num_processes == 1 else SharedMemory(meet()[1])


def _meet() -> tuple[GroupPeers, GroupPeers]:
    # Groups of their own, because that of the script may be for GPUs.
    world = GroupPeers(dist.new_group(backend="gloo", timeout=_TIMEOUT))
    machines = world.gather(_machine())
    groups = {}
    for machine in dict.fromkeys(machines):
        ranks = [rank for rank, each in enumerate(machines) if each == machine]
        # Every process has to make every group, also those that it is not in.
        groups[machine] = dist.new_group(ranks, backend="gloo", timeout=_TIMEOUT)
    return world, GroupPeers(groups[machines[world.index]])


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
