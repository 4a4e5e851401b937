"""Reading a split that is given: a folder with the validation and test edges as arrays of source ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.errors import ConfigError
from diskhop.sampling.edge_split.rules import GivenRule
from diskhop.sampling.edge_split.target import EndIds, SplitTarget

_FILES = ("valid.npy", "test.npy")
_MAPPED_BYTES = 1 << 16
# Per pair: ids and rows of both ends with the work of finding them, its number with the copies of sorting, and a mark.
_PAIR_BYTES = 4 * 16 + 4 * 8 + 1


class GivenSplit(NamedTuple):
    """A rule of given edges, and a digest that other edges have another of."""

    rule: GivenRule
    digest: str


def read_given(dataset: Dataset, folder: Path, budget: Budget, target: SplitTarget | None = None) -> GivenSplit:
    """Read the edges to hold out. target: the edge type that they are of; None for a graph with one.

    Raises ConfigError for files that are missing or no edges of the graph, and BudgetError before they are read.
    """
    paths = [folder / name for name in _FILES]
    mapped = [_map_edges(path) for path in paths]
    ids = EndIds.of(dataset, target)
    work_bytes = _PAIR_BYTES * sum(each.shape[1] for each in mapped) + ids.num_bytes
    with budget.reserve("given split", work_bytes):
        lists = EdgeLists.of(dataset.topology) if target is None else target.lists
        num_nodes = dataset.num_nodes if target is None else target.types.total_nodes
        return _read_rule(num_nodes, lists, paths, mapped, ids)


def _read_rule(
    num_nodes: int, lists: EdgeLists, paths: list[Path], mapped: list[NDArray[Any]], ids: EndIds
) -> GivenSplit:
    parts = [ids.rows(edges.astype(np.int64), str(path)) for path, edges in zip(paths, mapped, strict=True)]
    rule = GivenRule(num_nodes, *parts)
    rule.require_edges(lists, [str(path) for path in paths], ids.ids_of)
    digest = " ".join(xxhash.xxh3_64_hexdigest(np.ascontiguousarray(part).data) for part in parts)
    return GivenSplit(rule, digest)


def _map_edges(path: Path) -> NDArray[Any]:
    """Return the ids of both ends (2, edges), mapped from a file."""
    if not path.exists():
        raise ConfigError(
            f"{path}: is missing; --link-split FOLDER needs {' and '.join(_FILES)} with the edges to hold out, or give "
            "shares, as --link-split .8,.1,.1"
        )
    try:
        # A file without edges cannot be mapped.
        edges = np.load(path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > _MAPPED_BYTES else None)
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
    ends: NDArray[Any] = edges if edges.shape[0] == 2 else edges.T
    return ends
