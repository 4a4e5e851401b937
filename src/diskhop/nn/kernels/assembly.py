"""Assembly of a batch's features from rows on the device, in pinned memory, and staged; see policies/device_rows."""

from __future__ import annotations

import torch
from torch import Tensor

from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.leveled_rows import SCALE_BYTES, LeveledRows
from diskhop.policies.device_rows import DEVICE, HOST, STAGED, index_of, level_of


def assemble(rows: LeveledRows, addresses: Tensor) -> Tensor:
    """Return x, (nodes, dim). addresses: int64 (nodes), on the device of the staged rows."""
    if runs_kernels(rows.staged):
        from diskhop.nn.kernels.triton_assembly import assemble_by_triton

        return assemble_by_triton(rows, addresses)
    return assembly_reference(rows, addresses)


def assembly_reference(rows: LeveledRows, addresses: Tensor) -> Tensor:
    """Compute assemble() by torch alone."""
    out = torch.empty(len(addresses), rows.dim, dtype=rows.dtype, device=addresses.device)
    levels, indices = level_of(addresses), index_of(addresses)
    for level, memory in ((DEVICE, rows.device), (HOST, rows.host), (STAGED, rows.staged)):
        places = (levels == level).nonzero().view(-1)
        found = memory.index_select(0, indices[places].to(memory.device)).to(out.device)
        out.index_copy_(0, places, _decoded(found))
    return out


def _decoded(rows: Tensor) -> Tensor:
    """Return rows of the table's dtype as those of x."""
    if rows.dtype != torch.int8:
        return rows
    # A copy: scales must lie where their size divides the address.
    scales = rows[:, -SCALE_BYTES:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    return rows[:, :-SCALE_BYTES].float() * scales
