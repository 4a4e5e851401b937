"""What hop tables are wanted: a frozen value, whose key names the folder that they lie in, and the rows it keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from diskhop.budget import Budget
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.hops.operators import DIRECTIONS, Operator, parse_operator
from diskhop.hops.tables import TABLE_DTYPES, VERSION
from diskhop.protocols import NodeIds

ALL_ROWS, LABELLED_ROWS = "all", "labelled"
# What helps is mostly this near (PP-GNN, figure 2).
DEFAULT_HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagationSpec:
    """Tables of `hops` hops by each operator, spelled as sign or ppr:alpha=0.1.

    direction: neighbours that are summed: in, as the dataset's lists have them; out, along edges turned round; both,
    every pair that has an edge, once. dtype: float32, float16 or bfloat16. rows: all, labelled (the nodes of all
    splits), or the name of a .npy of node ids, as the source has them. Raises ConfigError.
    """

    operators: tuple[str, ...] = ("sign",)
    hops: int = DEFAULT_HOPS
    direction: str = "in"
    dtype: str = "float32"
    rows: str = ALL_ROWS

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ConfigError(
                f"--hops must be at least 1, got {self.hops}; hop 0 is the features, which are always kept"
            )
        if not self.operators:
            raise ConfigError("--operator must name at least one operator, as sign")
        names = [operator.name for operator in self.parsed()]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"--operator {name} is given more than once; leave one out")
        require_known("direction", self.direction, DIRECTIONS)
        require_known("dtype of hop tables", self.dtype, TABLE_DTYPES)

    def parsed(self) -> tuple[Operator, ...]:
        """The operators."""
        return tuple(parse_operator(text) for text in self.operators)

    def key(self, dataset_hash: str, rows: NodeIds | None) -> str:
        """Text that differs wherever a byte of the tables may. rows: that are kept; None: all."""
        facts = {
            "format": VERSION,
            "dataset": dataset_hash,
            "operators": [operator.name for operator in self.parsed()],
            "hops": self.hops,
            "direction": self.direction,
            "dtype": self.dtype,
            "rows": None if rows is None else f"{xxhash.xxh3_64_intdigest(rows.data):016x}",
        }
        return json.dumps(facts, sort_keys=True)


def folder_name(key: str) -> str:
    """Of the tables with a key."""
    return f"propagated-{xxhash.xxh3_64_intdigest(key.encode()):016x}"


def find_rows(dataset: Dataset, rows: str, budget: Budget) -> NodeIds | None:
    """The nodes whose rows are kept, as the dataset numbers them: int64, ascending; None: all.

    Raises ConfigError for ids that the dataset does not have, BudgetError.
    """
    if rows == ALL_ROWS:
        return None
    if rows == LABELLED_ROWS:
        files = dataset.manifest.files.items()
        num_bytes = sum(entry.num_bytes for name, entry in files if "/splits/" in name)
        if num_bytes == 0:
            raise ConfigError(
                f"{dataset.path}: has no splits, so no rows are labelled; take --rows all or a .npy of ids"
            )
        with budget.reserve("rows kept", 3 * num_bytes):
            return np.unique(np.concatenate(_split_ids(dataset)))
    path = Path(rows)
    if path.suffix != ".npy":
        raise ConfigError(f"--rows '{rows}' must be all, labelled or a .npy file of node ids")
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as .npy ({error}); --rows takes a file of node ids") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) == 0:
        raise ConfigError(f"{path}: has {ids.dtype} of shape {ids.shape}; --rows takes one-dimensional integer ids")
    with budget.reserve("rows kept", 4 * 8 * len(ids)):
        return _own_ids(dataset, np.unique(ids.astype(np.int64)), path, budget)


def _split_ids(dataset: Dataset) -> Sequence[NodeIds]:
    found = []
    for part in ("train", "valid", "test"):
        for number in range(max(1, dataset.num_splits)):
            ids = dataset.split(part, number)
            if ids is not None:
                found.append(ids)
    return found


def _own_ids(dataset: Dataset, ids: NodeIds, path: Path, budget: Budget) -> NodeIds:
    """The nodes, ascending, whose ids in the source are these."""
    with budget.reserve("original ids", 0 if dataset.order == "original" else 3 * 8 * dataset.num_nodes):
        original = dataset.original_ids()
        if original is None:
            is_known = (ids >= 0) & (ids < dataset.num_nodes)
            own = ids
        else:
            own = np.flatnonzero(np.isin(original, ids))
            is_known = np.isin(ids, original[own])
    if not is_known.all():
        raise ConfigError(f"{path}: has id {ids[np.argmin(is_known)]}, which no node of {dataset.path} has")
    return own
