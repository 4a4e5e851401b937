"""Transfer: batches are copied to a device while the one before is computed with.

Copies pass through a ring of pinned buffers, which the device reads by itself, on a stream of their own. A batch is
cut to pieces of a buffer's size, so that the ring's memory does not depend on batches. Everything takes any
torch.device: on the CPU the same code runs, and copies at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.errors import PipelineError
from diskhop.pipeline.batch import InFlightBatch
from diskhop.pipeline.in_flight import InFlightBatches
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.channels import Channel

# Large enough for a link's full rate; two of them let one be filled while the other is read.
BUFFER_BYTES = 4 << 20
NUM_BUFFERS = 2
RING_BYTES = NUM_BUFFERS * BUFFER_BYTES


class PinnedRing:
    """Buffers through which copies to a device pass in turn. One thread at a time uses it.

    device: that copies go to.
    buffer_bytes: of each buffer.
    num_buffers: buffers in the ring, at least 2.
    """

    def __init__(self, device: torch.device, buffer_bytes: int = BUFFER_BYTES, num_buffers: int = NUM_BUFFERS) -> None:
        self.buffer_bytes = buffer_bytes
        is_pinned = device.type == "cuda"
        self._buffers = [torch.empty(buffer_bytes, dtype=torch.uint8, pin_memory=is_pinned) for _ in range(num_buffers)]
        self._sent: list[torch.cuda.Event | None] = [None] * num_buffers
        self._turn = 0

    def take(self) -> Tensor:
        """Wait for the copy from the next buffer and return it, uint8 (buffer_bytes)."""
        sent, self._sent[self._turn] = self._sent[self._turn], None
        if sent is not None:
            sent.synchronize()
        return self._buffers[self._turn]

    def give(self, sent: torch.cuda.Event | None) -> None:
        """Put the buffer at the end of the ring. sent: when the copy from it is complete; None: it is."""
        self._sent[self._turn] = sent
        self._turn = (self._turn + 1) % len(self._buffers)


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """When a batch's tensors are on the device. sent: None if they are there already."""

    sent: torch.cuda.Event | None
    tensors: tuple[Tensor, ...]

    def wait(self) -> None:
        """Let the current stream of the device wait for the tensors, and their memory for its work with them."""
        if self.sent is None:
            return
        stream = torch.cuda.current_stream(self.sent.device)
        stream.wait_event(self.sent)
        for tensor in self.tensors:
            tensor.record_stream(stream)


class DeviceCopies:
    """Copies tensors to a device through a ring, whose memory the caller has reserved. One thread at a time uses it.

    Torch fills the ring's buffers, with as many threads as a model on the CPU would have: one core has a fifth of a
    link's rate, and the model is on the device.

    device: the device.
    ring: buffers for it; None: RING_BYTES of them.
    """

    def __init__(self, device: torch.device, ring: PinnedRing | None = None) -> None:
        self.device = device
        self._ring = ring or PinnedRing(device)
        self._stream = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copied: list[Tensor] = []

    def copy(self, tensor: Tensor, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Return a copy on the device; finish() says when it is complete. The tensor may change after this returns.

        rows: of the tensor, in their order; None: all.
        """
        if rows is None:
            out = self.empty(tensor.shape, tensor.dtype)
            self.send(tensor, out)
            return out
        out = self.empty((len(rows), *tensor.shape[1:]), tensor.dtype)
        if out.numel():
            into = out.view(-1).view(torch.uint8)
            self._send_rows(_bytes_of(tensor.contiguous()).reshape(len(tensor), -1), rows, into)
        return out

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor on the device for send(); finish() counts it among those copied."""
        with self._on_stream():
            out = torch.empty(tuple(shape), dtype=dtype, device=self.device)
        self._copied.append(out)
        return out

    def send(self, tensor: Tensor, into: Tensor) -> None:
        """Copy a tensor into one on the device of the same shape and dtype, whose memory is contiguous; see copy()."""
        assert tensor.device.type == "cpu", "batches are made in memory"
        if tensor.numel():
            self._send_bytes(_bytes_of(tensor.contiguous()), into.view(-1).view(torch.uint8))

    def fetch(self, tensor: Tensor, into: Tensor) -> None:
        """Copy a contiguous tensor on the device into one in memory of the same shape and dtype; complete on return."""
        source, target = tensor.view(-1).view(torch.uint8), _bytes_of(into)
        waiting: tuple[Tensor, torch.cuda.Event | None, int] | None = None
        for start, stop in row_ranges(len(source), self._ring.buffer_bytes):
            buffer = self._ring.take()[: stop - start]
            with self._on_stream():
                buffer.copy_(source[start:stop], non_blocking=True)
            sent = self._record()
            self._ring.give(sent)
            # The buffer before is emptied while this one is filled.
            if waiting is not None:
                _empty(*waiting, target)
            waiting = buffer, sent, start
        if waiting is not None:
            _empty(*waiting, target)

    def mark(self) -> torch.cuda.Event | None:
        """Return when the current stream of the device has done all work so far; for wait_for(). None: it has."""
        return None if self._stream is None else torch.cuda.current_stream(self.device).record_event()

    def wait_for(self, mark: torch.cuda.Event | None) -> None:
        """Let all copies from now on begin after the work before a mark."""
        if self._stream is not None and mark is not None:
            self._stream.wait_event(mark)

    def pick(self, tensor: Tensor, rows: NDArray[np.int64], dim: int) -> Tensor:
        """Return rows of a tensor that is on the device, along one of its dimensions; see copy()."""
        index = self.copy(torch.from_numpy(rows))
        return self.run(lambda: tensor.index_select(dim, index))

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """Return the result of work on the device, after all copies that were begun; finish() counts it among them."""
        with self._on_stream():
            out = work()
        self._copied.append(out)
        return out

    def finish(self) -> Arrival:
        """Return when everything copied since the last call is on the device."""
        copied, self._copied = tuple(self._copied), []
        return Arrival(self._record(), copied)

    def _send_bytes(self, source: NDArray[np.uint8], into: Tensor) -> None:
        for start, stop in row_ranges(len(source), self._ring.buffer_bytes):
            buffer = self._ring.take()[: stop - start]
            buffer.copy_(torch.from_numpy(source[start:stop]))
            self._send(buffer, into[start:stop])

    def _send_rows(self, source: NDArray[np.uint8], rows: NDArray[np.int64], into: Tensor) -> None:
        row_bytes = source.shape[1]
        if row_bytes > self._ring.buffer_bytes:
            for place, row in enumerate(rows):
                self._send_bytes(source[row], into[place * row_bytes : (place + 1) * row_bytes])
            return
        for start, stop in row_ranges(len(rows), self._ring.buffer_bytes // row_bytes):
            buffer = self._ring.take()[: (stop - start) * row_bytes]
            # A store's may be read-only, which torch warns of.
            places = torch.from_numpy(np.require(rows[start:stop], requirements="W"))
            torch.index_select(torch.from_numpy(source), 0, places, out=buffer.view(-1, row_bytes))
            self._send(buffer, into[start * row_bytes : stop * row_bytes])

    def _send(self, buffer: Tensor, into: Tensor) -> None:
        with self._on_stream():
            into.copy_(buffer, non_blocking=True)
        self._ring.give(self._record())

    def _record(self) -> torch.cuda.Event | None:
        return None if self._stream is None else self._stream.record_event()

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


# Replaces a batch's tensors by their copies on the device.
Move: TypeAlias = Callable[[InFlightBatch, DeviceCopies], None]


@dataclass(frozen=True, slots=True, eq=False)
class Destination:
    """Where the batches of a pass are delivered. move: copies what the consumer reads of a batch."""

    copies: DeviceCopies
    move: Move


class Transfer:
    """The stage that copies collected batches to a device, one ahead of the consumer's; see Stage."""

    name = "transfer"
    num_threads = 1
    capacity = 1

    def __init__(self, destination: Destination, num_batches: int, in_flight: InFlightBatches) -> None:
        self._destination = destination
        self._num_batches = num_batches
        self._in_flight = in_flight

    def run(self, incoming: Channel[InFlightBatch], outgoing: Channel[InFlightBatch]) -> None:
        """See Stage."""
        copies = self._destination.copies
        for _ in range(self._num_batches):
            batch = incoming.get()
            started = time.perf_counter()
            try:
                self._destination.move(batch, copies)
            except torch.OutOfMemoryError as error:
                raise PipelineError(
                    f"batch {batch.sampled.number} of {batch.sampled.num_nodes} nodes does not fit the free memory of "
                    f"{copies.device}; use a smaller batch size or fan-out"
                ) from error
            finally:
                batch.arrival = copies.finish()
            batch.staged, batch.staged_by_type = None, {}
            if batch.counts is not None:
                batch.counts.transfer_seconds += time.perf_counter() - started
            # The store's buffers are free again; the batch's own memory is, once the consumer releases it.
            self._in_flight.release_ticket(batch)
            outgoing.put(batch.index, batch)

    def close(self, error: BaseException | None) -> None:
        """See Stage."""


def _empty(buffer: Tensor, sent: torch.cuda.Event | None, start: int, target: NDArray[np.uint8]) -> None:
    """Copy a buffer to its place in memory, once the device has filled it."""
    if sent is not None:
        sent.synchronize()
    np.copyto(target[start : start + len(buffer)], buffer.numpy())


def _bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    return tensor.view(-1).view(torch.uint8).numpy()
