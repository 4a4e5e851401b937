"""Finding the hop tables of a dataset: their folder, and folders of earlier versions of the dataset."""

from __future__ import annotations

from pathlib import Path

from diskhop.budget import Budget
from diskhop.config.train import USE
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import TABLES_FILE
from diskhop.derived.scratch import scratch_path
from diskhop.errors import FormatError, ReadError
from diskhop.hops.spec import PropagationSpec, find_rows, folder_name
from diskhop.hops.tables import HopTables, TableOperator, open_hop_tables
from diskhop.system.memory import default_memory_bytes


def find_hop_tables(
    dataset: Dataset, spec: PropagationSpec, scratch: Path | None = None, budget: Budget | None = None
) -> HopTables | None:
    """Open the tables that propagate() built for a spec; None if there are none. Raises ConfigError, FormatError."""
    rows = find_rows(dataset, spec.rows, budget or Budget(default_memory_bytes()))
    key = spec.key(dataset.hash, rows, is_weighted=spec.uses_weights(dataset))
    path = scratch_path(dataset.path, scratch) / folder_name(key)
    return open_hop_tables(path, dataset.hash) if path.exists() else None


def find_stale_tables(folder: Path, dataset: Dataset, spec: PropagationSpec) -> list[Path]:
    """List folders of tables for this spec that earlier versions of the dataset left in its own folder."""
    if folder != scratch_path(dataset.path, None):
        return []
    wanted = (table_operators(spec, is_weighted=spec.uses_weights(dataset)), spec.hops, spec.dtype)
    found = []
    for manifest in sorted(folder.glob(f"propagated-*/{TABLES_FILE}")):
        try:
            tables = open_hop_tables(manifest.parent)
        except (FormatError, ReadError):
            continue
        if (tables.operators, tables.hops, tables.dtype) == wanted and tables.dataset_hash != dataset.hash:
            found.append(manifest.parent)
    return found


def table_operators(spec: PropagationSpec, *, is_weighted: bool) -> tuple[TableOperator, ...]:
    """Return the operators of a spec as the manifest stores them. is_weighted: whether sums use weights of edges."""
    shared = {"direction": spec.direction, **({"edge_weights": USE} if is_weighted else {})}
    return tuple(
        TableOperator(name=operator.file_name, parameters={"kind": operator.kind, **operator.parameters, **shared})
        for operator in spec.parsed()
    )
