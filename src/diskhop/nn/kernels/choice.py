"""Which code computes on a device: the core on the CPU, Triton's kernels on a GPU that has them, torch elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def runs_core(x: Tensor) -> bool:
    """Return whether the core computes on this tensor: it reads memory of the CPU."""
    return x.device.type == "cpu"


def runs_kernels(x: Tensor) -> bool:
    """Return whether Triton's kernels run on the device of a tensor."""
    return x.is_cuda and has_triton()


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the device of a tensor torch's current one, on which Triton launches kernels."""
    there: AbstractContextManager[object] = torch.cuda.device_of(x)  # type: ignore[no-untyped-call]
    return there


@cache
def has_triton() -> bool:
    """Return whether Triton is installed."""
    return find_spec("triton") is not None
