"""Rows of a table in the memories that a GPU reads.

Rows of int8 have their float32 scale behind them, as in the dataset, and become float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class LeveledRows:
    """The memories that rows of one table lie in, each of (rows, dim), or int8 (rows, dim + 4) with scales.

    device: on the device.
    host: in pinned memory, which the device reads by itself.
    staged: on the device, of the batch alone.
    """

    device: Tensor
    host: Tensor
    staged: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """Number type of assembled rows."""
        return torch.float32 if self.staged.dtype == torch.int8 else self.staged.dtype

    @property
    def dim(self) -> int:
        """Columns of assembled rows."""
        return self.staged.shape[1] - (SCALE_BYTES if self.staged.dtype == torch.int8 else 0)
