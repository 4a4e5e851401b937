"""Rows in front of a store: on a device, and in pinned memory that it reads by itself (DiskGNN, section 4).

The store has the other rows. A batch is assembled on the device, by the address of each of its rows. Until then
its x is the addresses, int64 (nodes, 1), which may be reordered and repeated as features are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from diskhop.pipeline.batch import Staged
from diskhop.pipeline.decode import stored_rows
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.policies.device_rows import AddressTable, RowLevels, address_table, batch_addresses, set_addresses
from diskhop.protocols import NodeIds, Table, TableGroup
from diskhop.runtime.blocks import row_ranges
from diskhop.stores.group_share import GroupShare
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

    def addresses_of(self, row_ids: NodeIds, of_nodes: NDArray[np.int64] | None) -> Tensor:
        """Return x of a batch: the address of each node's row, int64 (nodes, 1).

        row_ids: the distinct rows of the batch. of_nodes: which of them each node has; None: each its own.
        """
        addresses, _ = batch_addresses(self.addresses, row_ids)
        return torch.from_numpy(addresses if of_nodes is None else addresses[of_nodes]).view(-1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class GroupDeviceRows:
    """The most accessed rows of a graph with types.

    addresses: of all merged rows; -1 for those of the stores, and of types without features.
    parts: by node type; their addresses are parts of the same memory.
    """

    addresses: AddressTable
    parts: Mapping[str, DeviceRows]

    def close(self) -> None:
        """Let the device no longer read rows in memory."""
        with ExitStack() as stack:
            for part in self.parts.values():
                stack.callback(part.close)


def copy_typed(x: Mapping[str, Tensor], staged: Mapping[str, Staged], copies: DeviceCopies) -> dict[str, Tensor]:
    """Return features of each type on a device. staged: of the types whose x are addresses; see DeviceRows."""
    return {
        name: staged[name].assemble(rows, copies) if name in staged else copies.copy(rows) for name, rows in x.items()
    }


def open_group_rows(
    table: TableGroup, resources: StoreResources, levels: RowLevels, copies: DeviceCopies
) -> GroupDeviceRows:
    """Read merged rows to where they are to lie, type by type; see open_device_rows()."""
    share = resources.share
    assert isinstance(share, GroupShare)
    addresses = np.full(table.num_rows, -1, np.int64)
    with ExitStack() as opened:
        parts = {}
        for part in table.parts:
            own = RowLevels(*(part.find(rows)[1] for rows in (levels.device, levels.host)))
            of_part = replace(resources, staging_bytes=share.parts[part.name].staging_bytes)
            found = addresses[part.first_row :][: part.table.num_rows]
            parts[part.name] = open_device_rows(part.table, part.dtype, of_part, own, copies, found)
            opened.callback(parts[part.name].close)
        opened.pop_all()
    return GroupDeviceRows(addresses, parts)


def open_device_rows(
    table: Table,
    dtype: str,
    resources: StoreResources,
    levels: RowLevels,
    copies: DeviceCopies,
    addresses: AddressTable | None = None,
) -> DeviceRows:
    """Read rows to where they are to lie. The caller has reserved their memory.

    dtype: of the table. levels: the rows. addresses: memory for the address of each row; None: own memory. Raises
    ConfigError for too little memory of the device.
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
    if addresses is None:
        addresses = address_table(levels, table.num_rows)
    else:
        set_addresses(addresses, levels)
    return DeviceRows(addresses, device, host, close)


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
        # Of a pass that ended early, batches may still be assembled from these rows.
        torch.cuda.synchronize(device)
        runtime.cudaHostUnregister(rows.data_ptr())

    return unlock
