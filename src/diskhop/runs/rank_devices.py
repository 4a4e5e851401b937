"""The way of gradients between ranks: from GPU to GPU by NCCL where each rank has one of its own, else by gloo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch

from diskhop.nn.devices import CUDA

GLOO, NCCL = "gloo", "nccl"


class RankDevice(NamedTuple):
    """The device that a rank computes on.

    name: as torch.device() takes it.
    card: identity of the GPU, which no other one has; '' for the CPU.
    """

    name: str
    card: str


class Transport(NamedTuple):
    """The way that gradients are sent. backend: of torch.distributed. reason: one line."""

    backend: str
    reason: str


def rank_device(device: torch.device | None) -> RankDevice:
    """Describe the device of this rank; None: the CPU."""
    if device is None or device.type != CUDA:
        return RankDevice("cpu", "")
    # Ranks may see other GPUs under one number: each may have its own CUDA_VISIBLE_DEVICES.
    return RankDevice(str(device), str(torch.cuda.get_device_properties(device).uuid))


def choose_transport(devices: Sequence[RankDevice], *, has_nccl: bool) -> Transport:
    """Choose what ranks on these devices send gradients by; the same answer on every rank. has_nccl: torch has it."""
    count = len(devices)
    without = next((rank for rank, each in enumerate(devices) if not each.card), None)
    if without is not None:
        return Transport(GLOO, f"process {without} computes on {devices[without].name}")
    card, num_sharing = Counter(each.card for each in devices).most_common(1)[0]
    if num_sharing > 1:
        name = next(each.name for each in devices if each.card == card)
        num_cards = len({each.card for each in devices})
        return Transport(
            GLOO,
            f"{num_sharing} processes share {name}, which NCCL refuses: start as many as there are GPUs ({num_cards})",
        )
    if not has_nccl:
        return Transport(GLOO, "this build of torch has no NCCL")
    return Transport(NCCL, f"each of {count} processes has a GPU of its own")


def describe(transport: Transport) -> str:
    """Say it in one line of a plan."""
    if transport.backend == NCCL:
        return f"Gradients: from GPU to GPU by NCCL ({transport.reason})"
    return f"Gradients: through memory by gloo ({transport.reason})"
