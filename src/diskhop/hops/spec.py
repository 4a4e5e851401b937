"""Options of hop tables: a frozen value with a key that names their folder, and the rows that they keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from diskhop.budget import Budget
from diskhop.config.hop import WEIGHTS_NEED_IN, HopConfig
from diskhop.config.options import like, option, validate
from diskhop.config.rules import at_least, one_of
from diskhop.config.train import EDGE_WEIGHTS, IGNORE, USE
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_arrays import read_id_array
from diskhop.errors import ConfigError
from diskhop.hops.operators import Operator, parse_operator
from diskhop.hops.tables import VERSION
from diskhop.protocols import NodeRows, SourceIds

ALL_ROWS, LABELLED_ROWS = "all", "labelled"
# More hops rarely help (PP-GNN, figure 2).
DEFAULT_HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagationSpec:
    """Options of hop tables. Raises ConfigError.

    operators: operators, written as sign or ppr:alpha=0.1.
    hops: number of hops by each operator.
    direction: neighbours to sum: in (lists of the dataset), out (reversed edges), or both (each connected pair once).
    dtype: float32, float16 or bfloat16.
    edge_weights: use or ignore weights of edges; '': use them where there are some, and the direction is in.
    rows: rows to store: all, labelled (nodes of any split), or a .npy file of source ids.

    >>> diskhop.PropagationSpec(operators=("sign", "ppr:alpha=0.1"), hops=3).hops
    3
    """

    operators: tuple[str, ...] = like(HopConfig, "operators", ("sign",))
    hops: int = like(HopConfig, "hops", DEFAULT_HOPS, rule=at_least(1))
    direction: str = like(HopConfig, "direction", "in")
    dtype: str = like(HopConfig, "dtype", "float32")
    edge_weights: str = like(
        HopConfig,
        "edge_weights",
        "",
        rule=one_of(("", *EDGE_WEIGHTS)),
        panel="Sampling",
        shown="use, where the graph has weights and the direction is in",
    )
    rows: str = option(
        ALL_ROWS,
        help="Rows to store: all, labelled (nodes of any split), or a .npy file of node ids.",
        panel="Storage",
    )

    def __post_init__(self) -> None:
        validate(self)

    def check(self) -> None:
        """Check what options mean together."""
        names = [operator.name for operator in self.parsed()]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"--operator {name} is given more than once; give it once")

    def parsed(self) -> tuple[Operator, ...]:
        """Parse the operators."""
        return tuple(parse_operator(text) for text in self.operators)

    def uses_weights(self, dataset: Dataset) -> bool:
        """Return whether the sums of a dataset's tables use weights. Raises ConfigError where they cannot."""
        has_weights = dataset.only_edges.weight_column() is not None
        if self.edge_weights == USE and not has_weights:
            raise ConfigError(
                f"{dataset.path}: has no edge weights, which --edge-weights use needs; remove it, or import the graph "
                "with weights (--weight COLUMN)"
            )
        if self.edge_weights == USE and self.direction != "in":
            raise ConfigError(WEIGHTS_NEED_IN.format(self.direction))
        return has_weights and self.direction == "in" and self.edge_weights != IGNORE

    def key(self, dataset_hash: str, rows: NodeRows | None, *, is_weighted: bool = False) -> str:
        """Return a text that differs wherever a byte of the tables may.

        rows: nodes with stored rows; None: all. is_weighted: whether sums use weights.
        """
        facts = {
            "format": VERSION,
            "dataset": dataset_hash,
            "operators": [operator.name for operator in self.parsed()],
            "hops": self.hops,
            "direction": self.direction,
            "dtype": self.dtype,
            "rows": None if rows is None else f"{xxhash.xxh3_64_intdigest(rows.data):016x}",
            **({"edge_weights": USE} if is_weighted else {}),
        }
        return json.dumps(facts, sort_keys=True)


def folder_name(key: str) -> str:
    """Name the folder of the tables with a key."""
    return f"propagated-{xxhash.xxh3_64_intdigest(key.encode()):016x}"


def find_rows(dataset: Dataset, rows: str, budget: Budget) -> NodeRows | None:
    """Find the nodes with stored rows, as the dataset numbers them: int64, ascending; None: all.

    Raises ConfigError for ids that the dataset does not have, BudgetError.
    """
    if rows == ALL_ROWS:
        return None
    if rows == LABELLED_ROWS:
        files = dataset.manifest.files.items()
        num_bytes = sum(entry.num_bytes for name, entry in files if "/splits/" in name)
        if num_bytes == 0:
            raise ConfigError(
                f"{dataset.path}: has no splits, so no rows are labelled; use --rows all, or --rows ids.npy"
            )
        with budget.reserve("rows kept", 3 * num_bytes):
            return NodeRows(np.unique(np.concatenate(_split_rows(dataset))))
    path = Path(rows)
    if path.suffix != ".npy":
        raise ConfigError(f"--rows '{rows}' must be all, labelled or a .npy file of node ids; for example --rows all")
    ids = read_id_array(path, "--rows")
    with (
        budget.reserve("rows kept", 4 * 8 * len(ids)),
        budget.reserve("original ids", 8 * dataset.num_nodes * dataset.has_original_ids),
    ):
        wanted = SourceIds(np.unique(ids.astype(np.int64)))
        return NodeRows(np.sort(dataset.id_map().rows(wanted, str(path))))


def _split_rows(dataset: Dataset) -> Sequence[NodeRows]:
    found = []
    for part in ("train", "valid", "test"):
        for number in range(max(1, dataset.num_splits)):
            ids = dataset.split_rows(part, number)
            if ids is not None:
                found.append(ids)
    return found
