"""Reading a split that is given: a folder with the validation and test edges as arrays of source ids."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import SourceIds
from diskhop.sampling.edge_split.rules import GivenRule

_FILES = ("valid.npy", "test.npy")


class GivenSplit(NamedTuple):
    """A rule of given edges, and a digest that other edges have another of."""

    rule: GivenRule
    digest: str


def read_given(dataset: Dataset, folder: Path) -> GivenSplit:
    """Read the edges to hold out. Raises ConfigError for files that are missing or no edges of the graph."""
    paths = [folder / name for name in _FILES]
    parts = [_read_edges(dataset, path) for path in paths]
    rule = GivenRule(dataset.num_nodes, *parts)
    rule.require_edges(dataset.topology, [str(path) for path in paths], dataset.id_map())
    digest = " ".join(xxhash.xxh3_64_hexdigest(np.ascontiguousarray(part).data) for part in parts)
    return GivenSplit(rule, digest)


def _read_edges(dataset: Dataset, path: Path) -> NDArray[np.int64]:
    """Return rows of both ends, int64 (2, edges)."""
    if not path.exists():
        raise ConfigError(
            f"{path}: is missing; --link-split FOLDER needs {' and '.join(_FILES)} with the edges to hold out, or give "
            "shares, as --link-split .8,.1,.1"
        )
    try:
        edges = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as .npy ({error}); write the edges with numpy.save") from error
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise ConfigError(
            f"{path}: has {edges.dtype} of shape {edges.shape}; needs integer node ids, (2, edges) or (edges, 2)"
        )
    if edges.shape == (2, 2):
        raise ConfigError(
            f"{path}: two edges of shape (2, 2) may be (2, edges) or (edges, 2); write one of them twice, as (3, 2)"
        )
    ends = np.ascontiguousarray(edges if edges.shape[0] == 2 else edges.T, np.int64)
    rows = dataset.id_map().rows(SourceIds(ends.ravel()), str(path))
    return np.asarray(rows).reshape(ends.shape)
