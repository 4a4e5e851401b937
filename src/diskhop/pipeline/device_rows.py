"""Rows in front of a store: on a device, and in pinned memory that it reads by itself (DiskGNN, section 4).

The store has the other rows. A batch is assembled on the device, by the address of each of its rows. Until then
its x is the addresses, int64 (nodes, 1), which may be reordered and repeated as features are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import RowReader
from diskhop.counters import FetchCounts
from diskhop.errors import ConfigError
from diskhop.nn.kernels.assembly import assemble
from diskhop.nn.kernels.leveled_rows import LeveledRows
from diskhop.pipeline.decode import stored_rows
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.policies.device_rows import AddressTable, RowLevels, address_table, batch_addresses
from diskhop.protocols import SampledBatch, Table
from diskhop.runtime.blocks import row_ranges
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces, read_resident

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class StagedRows:
    """The rows of a batch that the store brought.

    rows: the others.
    brought: rows as they are stored, in memory.
    places: of the batch's rows in it; None: 0, 1, 2 ...
    """

    rows: DeviceRows
    brought: Tensor
    places: NDArray[np.int64] | None

    def assemble(self, addresses: Tensor, copies: DeviceCopies) -> Tensor:
        """Return features on the device, (nodes, dim), int8 as float32. addresses: x of the batch."""
        staged = copies.copy(self.brought, self.places)
        there = copies.copy(addresses.view(-1))
        levels = LeveledRows(self.rows.device, self.rows.host, staged)
        return copies.run(lambda: assemble(levels, there))


class DeviceRows:
    """The most accessed rows of a table.

    addresses: address of each row of the table; -1 for the store's.
    device: rows on the device, as they are stored.
    host: rows in memory; close() lets the device no longer read them.
    """

    def __init__(self, addresses: AddressTable, device: Tensor, host: Tensor, close: Callable[[], None]) -> None:
        self.addresses = addresses
        self.device = device
        self.host = host
        self.close = close

    def addresses_of(self, sampled: SampledBatch) -> Tensor:
        """Return x of a batch: the address of each node's row, int64 (nodes, 1)."""
        addresses, _ = batch_addresses(self.addresses, sampled.row_ids)
        if sampled.distinct is not None:
            addresses = addresses[sampled.distinct.of_nodes]
        return torch.from_numpy(addresses).view(-1, 1)


def open_device_rows(
    table: Table, dtype: str, resources: StoreResources, levels: RowLevels, copies: DeviceCopies
) -> DeviceRows:
    """Read rows to where they are to lie. The caller has reserved their memory.

    dtype: of the table. levels: the rows. Raises ConfigError for too little memory of the device.
    """
    reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
    shape = len(levels.host), table.row_bytes
    host = stored_rows(read_resident(reader, levels.host, None, shape, resources.memory, for_device=True), dtype)
    try:
        device = copies.empty((len(levels.device), host.shape[1]), host.dtype)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"{len(levels.device)} rows of {table.row_bytes} bytes do not fit the free memory of {copies.device}; use "
            "a smaller --device-memory (device_memory of a loader)"
        ) from error
    for start, stop in row_ranges(len(levels.device), max(1, _PIECE_BYTES // table.row_bytes)):
        # Of the memory of batches in flight, of which there are none yet.
        piece = empty_rows(resources.pool, stop - start, table.row_bytes)
        read_in_pieces(reader, levels.device[start:stop], piece, None, FetchCounts())
        copies.send(stored_rows(piece, dtype), device[start:stop])
    copies.finish()
    close = _page_locked(host, copies.device)
    # The kernel takes memory that the device can read only, also where there are no rows.
    host = host if len(host) else device[:0]
    return DeviceRows(address_table(levels, table.num_rows), device, host, close)


def _page_locked(rows: Tensor, device: torch.device) -> Callable[[], None]:
    """Let a GPU read rows in memory; return what ends that."""
    if device.type != "cuda" or not rows.numel():
        return lambda: None
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    portable = 1
    status = int(runtime.cudaHostRegister(rows.data_ptr(), rows.numel() * rows.element_size(), portable))
    if status != 0:
        raise ConfigError(
            f"{len(rows)} rows in memory cannot be pinned for {device} (CUDA error {status}); use a smaller --cache "
            "(cache of a loader), or raise the limit of locked memory (ulimit -l)"
        )

    def unlock() -> None:
        runtime.cudaHostUnregister(rows.data_ptr())

    return unlock
