"""The ranks of a run as a group: what each sends to the others over torch's process groups.

Everything is sent by gloo, but for tensors on GPUs, which NCCL sends where each rank has a GPU of its own.

All ranks make the same calls in the same order. A rank that fails leaves its message where rank 0 finds it, and closes
its connections, which ends the others wherever they wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout

from diskhop.errors import ConfigError, DiskhopError, RankError
from diskhop.pipeline.peers import part
from diskhop.runs.rank_devices import NCCL, Transport, choose_transport, rank_device
from diskhop.runtime.process import end_with_parent, ended_by_signals
from diskhop.runtime.ranks import ONE, Ranks

T = TypeVar("T")

# Until all ranks have started.
_START_SECONDS = 300
# Until torchrun's store answers, which it opens before it starts ranks: one that does not has ended.
_LAUNCHER_SECONDS = 15
_SECONDS_PER_ATTEMPT, _SECONDS_BETWEEN_ATTEMPTS = 5.0, 0.2
# A rank may wait for another one that prepares a run for days. One that ends is noticed at once.
_WAIT = timedelta(days=30)
# Until all ranks are in a collective of NCCL, which each begins after all have met by gloo.
_NCCL_WAIT = timedelta(minutes=5)
# Until rank 0 has shown the message of another rank, which then ends.
_HEARD_SECONDS = 30
# Until a rank that fails has left its message.
_MESSAGE_SECONDS = 2
_SECONDS_BETWEEN_LOOKS = 0.05
_ERROR, _HEARD = "error", "heard"
_NOTHING = object()


class Group:
    """This rank, and what it exchanges with the others. With one rank, nothing is sent."""

    def __init__(self, ranks: Ranks = ONE) -> None:
        self.ranks = ranks
        self._of_devices: dist.ProcessGroup | None = None

    @property
    def is_alone(self) -> bool:
        """Whether there is no other rank."""
        return self.ranks.count == 1

    def gather(self, item: T) -> list[T]:
        """Return the items of all ranks in their order, on every rank."""
        if self.is_alone:
            return [item]
        found: list[Any] = [None] * self.ranks.count
        with _noticing():
            dist.all_gather_object(found, item)
        return found

    def gather_in_turns(self, items: Sequence[T]) -> Iterator[T]:
        """Return the items that ranks have for batches of their shares, in the order of the batches."""
        rounds: Iterable[tuple[Any, ...]] = zip_longest(*self.gather(items), fillvalue=_NOTHING)
        return (item for item in chain.from_iterable(rounds) if item is not _NOTHING)

    def each_of(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items of all ranks, on every rank: those of rank 0 first. One at a time is in memory."""
        if self.is_alone:
            yield from items
            return
        for rank, count in enumerate(self.gather(len(items))):
            for number in range(count):
                yield self._from_rank(rank, items[number] if rank == self.ranks.rank else None)

    def from_first(self, item: T) -> T:
        """Return rank 0's item, on every rank."""
        return item if self.is_alone else self._from_rank(0, item)

    def first(self, make: Callable[[], T]) -> T:
        """Return what rank 0 makes, on every rank; the others make nothing."""
        return self.from_first(make() if self.ranks.is_first else None)  # type: ignore[return-value]

    def connect(self, device: torch.device | None) -> Transport:
        """Choose what tensors on devices are sent by, and open it. device: of this rank; None: the CPU."""
        transport = choose_transport(self.gather(rank_device(device)), has_nccl=dist.is_nccl_available())
        if transport.backend == NCCL and not self.is_alone:
            assert device is not None
            self._of_devices = open_nccl(device)
        return transport

    def stays_on_device(self, own: Tensor) -> bool:
        """Whether a tensor is sent from device to device: connect() has found a way."""
        return self._of_devices is not None and own.is_cuda

    def gather_tensors(self, own: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, of the same shape and dtype, in their order.

        Tensors that stay on devices are there, others in memory.
        """
        if not self.stays_on_device(own):
            return self.begin_gather(own)()
        found = [own.new_empty(own.shape) for _ in range(self.ranks.count)]
        with _noticing():
            dist.all_gather(found, own, group=self._of_devices)
        return found

    def begin_gather(self, own: Tensor) -> Callable[[], list[Tensor]]:
        """Send a tensor to all ranks from memory, without waiting for theirs, of the same shape and dtype.

        Returns what waits for them and returns all, in the order of the ranks.
        """
        own = own.cpu()
        found = [own.new_empty(own.shape) for _ in range(self.ranks.count)]
        with _noticing():
            work = dist.all_gather(found, own, async_op=True)

        def wait() -> list[Tensor]:
            with _noticing():
                work.wait()
            return found

        return wait

    def abort(self) -> None:
        """Close connections between devices without waiting: other ranks may never join what was begun."""
        if self._of_devices is not None:
            self._of_devices.abort()
            self._of_devices = None

    def send(self, item: Any, rank: int) -> None:
        """Send an item to another rank. Threads may send to different ranks at the same time."""
        with _noticing():
            dist.send_object_list([item], dst=rank)

    def receive(self, rank: int) -> Any:
        """Wait for the next item of another rank."""
        found = [None]
        with _noticing():
            dist.recv_object_list(found, src=rank)
        return found[0]

    def wait(self) -> None:
        """Wait until all ranks are here."""
        if not self.is_alone:
            with _noticing():
                dist.barrier()

    def _from_rank(self, rank: int, item: Any) -> Any:
        """Return a rank's item, on every rank."""
        found = [item]
        with _noticing():
            dist.broadcast_object_list(found, src=rank)
        return found[0]


@contextmanager
def open_group(ranks: Ranks) -> Iterator[Group]:
    """Open the group of these ranks, and close it on leaving.

    An error of any rank ends all: rank 0 raises its own or, as RankError, that of another one. Raises ConfigError if
    the ranks do not find each other.
    """
    if ranks.count == 1:
        yield Group(ranks)
        return
    if dist.is_initialized():
        raise ConfigError(
            "training opens torch's process group itself: remove torch.distributed.init_process_group(), or use "
            "diskhop.NeighborLoader in a loop of your own"
        )
    end_with_parent(signal.SIGTERM)
    with ended_by_signals():
        store = _connect(ranks)
    group = Group(ranks)
    try:
        yield group
    except DiskhopError as error:
        group.abort()
        if not ranks.is_first:
            if isinstance(error, RankError):
                error.exit_code = _exit_code_of_first(store) or error.exit_code
            else:
                _leave_message(store, error)
            raise
        found = _find_message(store) if isinstance(error, RankError) else None
        store.set(_HEARD, str((found or error).exit_code))
        if found is None:
            raise
        for note in getattr(error, "__notes__", ()):
            found.add_note(note)
        raise found from error
    finally:
        group.abort()
        part()
        if dist.is_initialized():
            dist.destroy_process_group()


def _connect(ranks: Ranks) -> Any:
    """Connect all ranks and return the store that they share."""
    try:
        _await_store(ranks)
        timeout = timedelta(seconds=_START_SECONDS)
        store, _, _ = next(dist.rendezvous("env://", ranks.rank, ranks.count, timeout=timeout))  # type: ignore[attr-defined]
        # torchrun keeps the store when it starts ranks again: addresses and errors in it are those of ranks that ended.
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group("gloo", store=store, rank=ranks.rank, world_size=ranks.count, timeout=timeout)
        # A rank that fails at once closes its connections, for which another one might still wait.
        dist.barrier()
        _set_pg_timeout(_WAIT)
    except (RuntimeError, ValueError, OSError) as error:
        if dist.is_initialized():
            dist.destroy_process_group()
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ConfigError(
            f"rank {ranks.rank} of {ranks.count} does not reach the others at MASTER_ADDR:MASTER_PORT {where}: start "
            "all of them, and name an address that every machine reaches"
        ) from error
    return store


def _await_store(ranks: Ranks) -> None:
    """Wait until the store of all ranks takes connections: torch prints pages about each attempt. Raises OSError."""
    is_of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    if ranks.is_first and not is_of_launcher:
        return  # this rank opens it
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    ends = time.monotonic() + (_LAUNCHER_SECONDS if is_of_launcher else _START_SECONDS)
    while True:
        try:
            socket.create_connection(address, _SECONDS_PER_ATTEMPT).close()
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        else:
            return


def open_nccl(device: torch.device) -> dist.ProcessGroup:
    """Connect the GPUs of all ranks. device: of this rank. Raises ConfigError."""
    try:
        group: dist.ProcessGroup = dist.new_group(backend=NCCL, timeout=_NCCL_WAIT, device_id=device)
    except RuntimeError as error:
        what = str(error).strip().split("\n")[0]
        raise ConfigError(
            f"NCCL does not connect {device} with the GPUs of the other processes: {what}; set NCCL_DEBUG=INFO for "
            "its reasons, or use --device cpu"
        ) from error
    return group


@contextmanager
def _noticing() -> Iterator[None]:
    """Turn a connection that another rank has closed into a RankError."""
    try:
        yield
    except RuntimeError as error:
        # torchrun reports it.
        line = "" if "TORCHELASTIC_RUN_ID" in os.environ else "another process of this run ended"
        raise RankError([line]) from error


def _leave_message(store: Any, error: DiskhopError) -> None:
    """Leave an error for rank 0, and wait until it has it. Another rank may have been faster."""
    lines = [*error.lines[:-1], "; ".join([error.lines[-1], *getattr(error, "__notes__", ())])]
    try:
        store.compare_set(_ERROR, "", json.dumps([lines, error.exit_code]))
    except RuntimeError:  # rank 0, which has the store, has ended with an error of its own
        return
    # Rank 0 waits for this rank: its connections tell that it ended.
    part()
    dist.destroy_process_group()
    _wait_for(store, _HEARD, _HEARD_SECONDS)


def _exit_code_of_first(store: Any) -> int:
    """Return the exit code of rank 0, after it has failed; 0 if it ended without one."""
    text = _wait_for(store, _HEARD, _MESSAGE_SECONDS)
    return int(text) if text else 0


def _find_message(store: Any) -> RankError | None:
    """Return the error of another rank; None if it ended without one."""
    text = _wait_for(store, _ERROR, _MESSAGE_SECONDS)
    return RankError(*json.loads(text)) if text else None


def _wait_for(store: Any, key: str, seconds: float) -> str:
    """Return what a rank has left under a key, '' if there is nothing. Not store.wait(), which warns on stderr."""
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            if store.check([key]):
                return str(store.get(key).decode())
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    except RuntimeError:  # the process with the store has ended
        pass
    return ""
