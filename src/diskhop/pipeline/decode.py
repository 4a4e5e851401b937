"""Decoding: bytes of feature rows become tensors."""

from __future__ import annotations

import numpy as np
import torch

from diskhop.protocols import Bytes

_PLAIN = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def stored_rows(raw: Bytes, dtype: str) -> torch.Tensor:
    """View (rows, row bytes) as (rows, dim) of the stored dtype without a copy; int8 rows with their scales' bytes."""
    return torch.from_numpy(raw).view(torch.int8 if dtype == "int8" else _PLAIN[dtype])


def decode_rows(raw: Bytes, dtype: str, dim: int) -> torch.Tensor:
    """View (rows, row bytes) as (rows, dim) of the stored dtype without a copy; int8 rows become float32.

    An int8 row is dim signed bytes and then its float32 scale: value = byte * scale.
    """
    if dtype == "int8":
        scales = raw[:, dim : dim + 4].copy().view(np.float32)
        return torch.from_numpy(raw[:, :dim].view(np.int8)).to(torch.float32).mul_(torch.from_numpy(scales))
    return torch.from_numpy(raw).view(_PLAIN[dtype])
