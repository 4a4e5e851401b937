"""The row-wise end of a model with jumping knowledge: one table from those of all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from diskhop._native import Engine
from diskhop.dataset.dataset import Dataset
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.batched.batches import LayerRun, not_finite
from diskhop.predicting.batched.dry_run import LayerCost
from diskhop.predicting.batched.modules import twin_of
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, MakeRows, RowFile
from diskhop.runtime.progress import Progress

# Bytes of a block of rows of all tables: blocks depend on the widths alone, since products round by their shapes.
_BLOCK_BYTES = 1 << 20


def head_bytes(cost: LayerCost, inputs: Sequence[RowFile]) -> dict[str, int]:
    """Return the memory of a head by name, in bytes. inputs: tables of all layers."""
    block_rows = _block_rows(inputs)
    return {"computing layers": cost.bytes_of(0, block_rows, block_rows), "writing rows": WRITING_BYTES}


def compute_head(
    dataset: Dataset,
    label: str,
    head: nn.Module,
    cost: LayerCost,
    inputs: Sequence[RowFile],
    out: RowFile,
    run: LayerRun,
    progress: Progress,
    stage: str,
) -> None:
    """Write the missing rows of a head from the tables of all layers. label: its name for messages.

    Raises BudgetError, and PredictionError for a result that is not finite.
    """
    with run.budget.reserve("computing layers", sum(head_bytes(cost, inputs).values())):
        out.write(_HeadRows(dataset, label, head, inputs), run.tools, progress, stage)


@dataclass(frozen=True, slots=True, eq=False)
class _HeadRows:
    """The rows of a head (see RowMaker)."""

    dataset: Dataset
    label: str
    head: nn.Module
    inputs: Sequence[RowFile]

    @contextmanager
    def open(self, _engine: Engine) -> Iterator[MakeRows]:
        """See RowMaker."""
        twin, block_rows = twin_of(self.head), _block_rows(self.inputs)
        dtype = next((each.dtype for each in self.head.parameters()), torch.float32)

        def make(first: int, end: int, append: AppendRows) -> None:
            row = first
            for blocks in zip(*(each.blocks(block_rows, first, end) for each in self.inputs), strict=True):
                with torch.no_grad():
                    rows = twin([torch.from_numpy(block).to(dtype) for block in blocks]).float().numpy()
                is_finite = np.isfinite(rows).all(axis=1)
                if not is_finite.all():
                    raise not_finite(self.dataset.only_nodes, self.label, row + int(np.argmin(is_finite)))
                append(rows)
                row += len(rows)

        with reproducible(1):
            yield make


def _block_rows(inputs: Sequence[RowFile]) -> int:
    return max(1, _BLOCK_BYTES // (4 * sum(each.dim for each in inputs)))
