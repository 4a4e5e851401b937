"""Rows of the features that stand in for those of a graph without any; see dataset/made_features.py."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.dataset.made_features import DEGREE, ONEHOT, RANDOM, MadeFeatures
from diskhop.protocols import NodeIds
from diskhop.runtime.blocks import row_ranges

# Steps and factors of SplitMix64 (Steele, Lea and Flood, 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_ROWS_PER_BLOCK = 4096


def make_rows(made: MadeFeatures, rows: NodeIds, in_degrees: torch.Tensor | None) -> torch.Tensor:
    """Return the features of nodes, float32 (rows, dim).

    rows: their rows in the dataset. in_degrees: int64 (rows), for the kind 'degree'.
    """
    if made.kind == DEGREE:
        assert in_degrees is not None
        logarithms = in_degrees.to(torch.float32).log1p_()
        return torch.stack([torch.ones_like(logarithms), logarithms], dim=1)
    if made.kind == RANDOM:
        return torch.from_numpy(_random_rows(rows, made.dim, made.seed))
    x = torch.zeros(len(rows), made.dim)
    if made.kind == ONEHOT:
        x.scatter_(1, torch.from_numpy(np.ascontiguousarray(rows))[:, None], 1.0)
    return x


def _random_rows(rows: NodeIds, dim: int, seed: int) -> NDArray[np.float32]:
    """Return uniform values of mean 0 and variance 1, which depend on seed, row and column alone."""
    out = np.empty((len(rows), dim), np.float32)
    key = _mixed(np.array([seed], np.uint64) + _GOLDEN)
    columns = np.arange(1, dim + 1, dtype=np.uint64)
    for start, stop in row_ranges(len(rows), _ROWS_PER_BLOCK):
        counters = rows[start:stop].astype(np.uint64)[:, None] * np.uint64(dim) + columns
        # The highest 24 bits, exact in float32.
        uniform = (_mixed(counters * _GOLDEN + key) >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
        out[start:stop] = (uniform - np.float32(0.5)) * np.float32(12**0.5)
    return out


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> _SHIFTS[2])
