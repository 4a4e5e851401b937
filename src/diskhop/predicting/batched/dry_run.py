"""A dry run of a layer on a small random block: its width, its memory, and whether one hop determines its result.

A layer can be computed in batches if a destination's row depends on its own in-edges and the rows at both ends, and on
nothing else. Norms over all nodes, degrees of neighbours and a second hop break that. The dry run changes what must not
matter, and refuses a layer whose result changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from diskhop.errors import ConfigError, DiskhopError
from diskhop.nn.dry_run import LiveTensors
from diskhop.nn.layers.aggregate import LayerBlock
from diskhop.nn.reproducible import seed_torch, separate_generators
from diskhop.predicting.batched.blocks import InputBlock
from diskhop.predicting.batched.degrees import Degrees
from diskhop.predicting.batched.modules import Layer, LayerTwin

_ROWS, _SOURCES, _NEIGHBORS = 24, 64, 3
# Blocks on which memory is measured, one with many of each.
_FEW, _MANY = 64, 4096
# Other shapes round differently; anything larger is a different result.
_TOLERANCE, _HALF_TOLERANCE, _ROUNDING = 3e-5, 5e-2, 1e-5
_SCALES = (1.0, 100.0)
# Bytes of the lists as the layer gets them, with degrees and weights.
_EDGE_BYTES, _NODE_BYTES = 56, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Memory of a layer on a block, at most.

    in_dim: columns of the rows that it reads.
    out_dim: columns of the result.
    edge_bytes: bytes per edge.
    source_bytes: bytes per source, destinations included.
    row_bytes: bytes per destination.
    """

    in_dim: int
    out_dim: int
    edge_bytes: float
    source_bytes: float
    row_bytes: float

    def bytes_of(self, num_edges: int, num_sources: int, num_rows: int) -> int:
        """Bytes of tensors while a block is computed, its inputs included."""
        return int(self.edge_bytes * num_edges + self.source_bytes * num_sources + self.row_bytes * num_rows)


def dry_run(layer: Layer, in_dim: int) -> LayerCost:
    """Try a layer on x of in_dim columns. Raises ConfigError, in one line, if it cannot be computed in batches.

    Torch's generator keeps its state.
    """
    with separate_generators():
        twin = layer.open()
        out_dim = _require_one_hop(layer, twin, in_dim)
        edges, sources, rows = (
            _measure(twin, in_dim, *counts) / _MANY
            for counts in ((_MANY, _FEW, _FEW), (_FEW, _MANY, 1), (_FEW, _MANY, _MANY))
        )
    return LayerCost(
        in_dim=in_dim,
        out_dim=out_dim,
        edge_bytes=edges + _EDGE_BYTES,
        source_bytes=sources + 4 * in_dim + _NODE_BYTES,
        row_bytes=max(0.0, rows - sources) + 4 * out_dim + _NODE_BYTES,
    )


def dry_run_rows(label: str, module: nn.Module, in_dims: Sequence[int]) -> LayerCost:
    """Try a row-wise module on a list of tables with in_dims columns each. Raises ConfigError as dry_run()."""
    with separate_generators(), torch.no_grad():
        seed_torch(0)
        tables = [torch.randn(_FEW, dim) for dim in in_dims]
        out = module(tables)
        changed = [torch.cat([table[:-1], torch.randn(1, table.shape[1])]) for table in tables]
        if _differ(out[:-1], module(changed)[:-1]):
            raise ConfigError(f"{label} mixes rows of unrelated nodes; it must compute each row by itself")
        live = LiveTensors([])
        many = [torch.randn(_MANY, dim) for dim in in_dims]
        with live:
            module(many)
    return LayerCost(
        in_dim=sum(in_dims),
        out_dim=out.shape[1],
        edge_bytes=0.0,
        source_bytes=live.peak_bytes / _MANY + 4 * sum(in_dims),
        row_bytes=4 * out.shape[1],
    )


def _require_one_hop(layer: Layer, twin: LayerTwin, in_dim: int) -> int:
    """Return the width of the result. Raises ConfigError if anything but one hop matters."""
    seed_torch(0)
    rows = torch.randn(_SOURCES, in_dim)
    # An activation may be the same for all small values.
    widths = {_require_unchanged(layer, twin, scale * rows) for scale in _SCALES}
    return widths.pop()


def _require_unchanged(layer: Layer, twin: LayerTwin, x: Tensor) -> int:
    """Change what must not matter. Returns the width of the result."""
    pairs = _pairs()
    base = _run(layer, twin, x, pairs)
    if _differ(base, _run(layer, twin, x, pairs)):
        raise ConfigError(f"{layer.label} gives other rows for the same input in eval mode; remove what is random")
    # Unrelated: the last destination, which nothing reads, and the last source, which has no edges.
    unrelated = x.clone()
    unrelated[[_ROWS - 1, _SOURCES - 1]] = 3 * x[[0, 1]]
    if _differ(base[:-1], _run(layer, twin, unrelated, pairs)[:-1]):
        raise ConfigError(
            f"{layer.label} mixes rows of unrelated nodes, as norms over all nodes and global attention do; "
            "it cannot be computed in batches: use norms of single rows, or running statistics"
        )
    to_last = [(source, _ROWS - 1) for source in range(_ROWS, _SOURCES - 1)]
    if _differ(base[:-1], _run(layer, twin, x, [*pairs, *to_last])[:-1]):
        raise ConfigError(
            f"{layer.label} depends on edges into other nodes{_inner(layer)}, as out-degrees and the longest list are; "
            "it cannot be computed in batches: use a layer that reads in-edges only"
        )
    if layer.form == "plain":
        targets = 8 * list(range(_ROWS, _SOURCES - 1))
        into_sources = [(number % (_SOURCES - 1), target) for number, target in enumerate(targets)]
        if _differ(base[:-1], _run(layer, twin, x, [*pairs, *into_sources])[:-1]):
            raise ConfigError(
                f"{layer.label} depends on edges of its neighbours{_inner(layer)}, by their degrees or by a second "
                "hop; pass one layer per hop, and convolutions without degrees of the whole graph (or GCNConv)"
            )
    return int(base.shape[1])


def _pairs() -> list[tuple[int, int]]:
    """Return edges (source, destination), grouped by destination: no destination but the first is a source."""
    pairs = [(0, 0)]
    for row in range(_ROWS):
        pairs += [(_ROWS + (7 * row + 3 * place) % (_SOURCES - 1 - _ROWS), row) for place in range(_NEIGHBORS)]
    return pairs


def _run(layer: Layer, twin: LayerTwin, x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    seed_torch(0)
    try:
        return twin.run(x, _WiderBlock.of_pairs(pairs))
    except DiskhopError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{layer.label} fails on x with {x.shape[1]} columns: {type(error).__name__}: {reason}; it is called as "
            "layer(x, edge_index), so wrap it in a module that takes these two"
        ) from error


class _WiderBlock(InputBlock):
    """A block whose edges may lead to sources too, which the lists of a batch never do."""

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[int, int]]) -> InputBlock:
        pairs = sorted(pairs, key=lambda pair: pair[1])
        listed = torch.tensor([pair for pair in pairs if pair[1] < _ROWS])
        counts = torch.bincount(listed[:, 1], minlength=_ROWS)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(torch.int32)
        lists = LayerBlock(indptr, listed[:, 0].to(torch.int32), _SOURCES)
        degrees = Degrees(torch.full((_SOURCES,), _NEIGHBORS), torch.zeros(_SOURCES, dtype=torch.int64))
        block = cls(lists, degrees)
        block.__dict__["edge_index"] = torch.tensor(pairs).T.contiguous()
        return block


def _measure(twin: LayerTwin, in_dim: int, num_edges: int, num_sources: int, num_rows: int) -> int:
    """Measure the peak bytes of new tensors on a random block."""
    sources = torch.randint(num_sources, (num_edges,), dtype=torch.int32)
    indptr = torch.from_numpy(np.linspace(0, num_edges, num_rows + 1).astype(np.int32))
    lists = LayerBlock(indptr, sources, num_sources)
    degrees = Degrees(torch.full((num_sources,), 2), torch.zeros(num_sources, dtype=torch.int64))
    x, block = torch.randn(num_sources, in_dim), InputBlock(replace(lists, degrees=degrees.proper), degrees)
    live = LiveTensors([x])
    with live:
        twin.run(x, block)
    return live.peak_bytes


def _differ(one: Tensor, other: Tensor) -> bool:
    """Return whether results differ by more than rounding, in proportion to how much their rows differ."""
    tolerance = _HALF_TOLERANCE if _is_rounded(one) else _TOLERANCE
    spread = (one - one.mean(dim=0)).abs().max()
    return bool((one - other).abs().max() > tolerance * spread + _ROUNDING * one.abs().max())


def _is_rounded(values: Tensor) -> bool:
    """Return whether float32 values were computed as bfloat16 or float16."""
    return bool((values == values.to(torch.bfloat16)).all() or (values == values.to(torch.float16)).all())


def _inner(layer: Layer) -> str:
    """Name the convolutions within a layer that is none itself, for messages."""
    inner = [each for each in layer.module.modules() if each is not layer.module and hasattr(each, "propagate")]
    names = {type(each).__name__ for each in inner}
    return f" ({', '.join(sorted(names))} in it)" if names else ""
