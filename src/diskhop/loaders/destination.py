"""Delivery of a loader's batches on a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from diskhop.config.options import require
from diskhop.loaders.checks import size_of
from diskhop.loaders.loader_data import LoaderData
from diskhop.loaders.typed_data import TypedLoaderData
from diskhop.nn.devices import AUTO, CPU, choose_device, read_cuda
from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.batch import InFlightBatch
from diskhop.pipeline.transfer import Destination, DeviceCopies


def device_of(wanted: torch.device | str | None) -> torch.device | None:
    """Check the device that a user asks for; None: batches are delivered in memory, where they are made.

    Raises ConfigError for a device that cannot be used.
    """
    is_device = wanted is None or isinstance(wanted, torch.device | str)
    require(is_device, "device", "a torch.device or its name", wanted, "pass device='cuda'")
    if wanted is None:
        return None
    chosen = choose_device(str(wanted), read_cuda(), "device")
    return None if chosen.name == CPU else torch.device(chosen.name)


def describe_auto(wanted: torch.device | str | None, device_memory: int | str | None) -> str:
    """Say in one line why 'auto' is the CPU, where it is; ''. Memory of a device has no effect then."""
    chosen = choose_device(AUTO, read_cuda())
    if wanted != AUTO or chosen.name != CPU:
        return ""
    unused = f"; device_memory {device_memory!r} is not used" if size_of("device_memory", device_memory) else ""
    return f"Device cpu: {chosen.reason}{unused}"


def require_device(device: torch.device | None, wanted: torch.device | str | None, device_memory: Any) -> None:
    """Refuse memory of a device for batches that are delivered in memory. device: that `wanted` is."""
    fits = device is not None or wanted == AUTO or not size_of("device_memory", device_memory)
    hint = "leave it out, or add device='cuda'"
    require(fits, "device_memory", "None for batches in memory", device_memory, hint)


def memory_for_rows(device: torch.device) -> int:
    """Return the bytes of a device that rows may take unless users say: half of what is free; the model needs some."""
    if device.type != "cuda":
        return 0
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return free_bytes // 2


def delivered_on(
    copies: DeviceCopies, features: Callable[[Tensor, str], Tensor], data: LoaderData | TypedLoaderData
) -> Destination:
    """Return the destination of batches that a loader makes.

    features: converts rows of a node type on the device to x of a batch; the type is '' for a graph of one. data: the
    graph.
    """

    def move(batch: InFlightBatch, copies: DeviceCopies) -> None:
        is_users = isinstance(data, LoaderData) and data.is_set("x")
        for store in batch.prepared.stores:
            for name, value in list(store.items()):
                node_type = store._key if isinstance(store._key, str) else ""
                staged = batch.staged_by_type.get(node_type, batch.staged)
                if name == "x" and staged is not None and not is_users:
                    found = staged.assemble(value, copies)
                    store[name] = copies.run(partial(features, found, node_type))
                elif isinstance(value, Tensor):
                    store[name] = copies.copy(value)
                elif isinstance(value, Block):
                    store[name] = value.mapped(copies.copy)
        # What the consumer reads is on the device.
        batch.x = torch.empty(0, 0)
        batch.x_by_type = None

    return Destination(copies, move)
