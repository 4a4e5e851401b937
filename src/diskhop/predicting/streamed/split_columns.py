"""Columns of rows, as bands hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diskhop._native import join_columns, split_columns
from diskhop.hops.stream.parts import Rows


@dataclass(frozen=True, slots=True, eq=False)
class SplitColumns:
    """Columns of some rows, in one or several arrays (rows, columns), next to one another."""

    arrays: Sequence[Rows]
    threads: int

    @property
    def num_rows(self) -> int:
        """Rows of each array."""
        return len(self.arrays[0])

    @property
    def num_columns(self) -> int:
        """Columns of all arrays."""
        return sum(array.shape[1] for array in self.arrays)

    def of(self, which: slice) -> SplitColumns:
        """Return some of the rows."""
        return SplitColumns([array[which] for array in self.arrays], self.threads)

    def followed_by(self, others: SplitColumns) -> SplitColumns:
        """Return these columns and then the others, of the same rows."""
        return SplitColumns([*self.arrays, *others.arrays], self.threads)

    def joined(self) -> Tensor:
        """Return the columns, float32 (rows, columns): a view if they are in one array."""
        if len(self.arrays) == 1:
            return torch.from_numpy(self.arrays[0])
        out = torch.empty(self.num_rows, self.num_columns)
        self.copy_to(out)
        return out

    def copy_to(self, out: Tensor, divisors: Tensor | None = None) -> None:
        """Copy the columns to out (rows, columns), divided by divisors (rows, 1) if there are any; all float32.

        Rows with the divisor 0 become zeros, and these columns may lack them.
        """
        by_row = None if divisors is None else divisors.flatten().numpy()
        join_columns(self.arrays, out.numpy(), self.threads, by_row)

    def fill(self, rows: Tensor) -> None:
        """Copy rows to the columns, float32 (rows, columns)."""
        values = rows if rows.stride(1) == 1 else rows.contiguous()
        split_columns(values.numpy(), self.arrays, self.threads)


def may_be_finite(rows: Tensor) -> bool:
    """Return False if any value is not finite. The sum of finite values may overflow, too."""
    return math.isfinite(rows.sum().item())


def fill_groups(out: Mapping[str, SplitColumns], groups: Mapping[str, Tensor]) -> bool:
    """Fill columns with groups of the same names, float32, of which there may be more.

    Return False if any value of the groups is not finite, and maybe otherwise.
    """
    for name in out.keys() & groups.keys():
        out[name].fill(groups[name].detach())
    return all(may_be_finite(group) for group in groups.values())
