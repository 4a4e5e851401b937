"""Errors of a model's values on parts of a split, in one pass over the table of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from diskhop.budget import Budget
from diskhop.predicting.metrics.measure import (
    Progress,
    block_rows,
    labelled_rows,
    least_memory,
    require_finite,
    rows_in_block,
)
from diskhop.predicting.metrics.outputs import Labels
from diskhop.predicting.metrics.values import ValueErrors
from diskhop.predicting.rows import RowTable
from diskhop.predicting.scaling import Scaling
from diskhop.protocols import NodeRows


def measure_values(
    table: RowTable,
    labels: Labels,
    parts: Mapping[str, NodeRows],
    budget: Budget,
    scaling: Scaling,
    *,
    progress: Progress = lambda done, total: None,
) -> dict[str, dict[str, Any]]:
    """Return the errors of each part, by its name, in the units of the labels.

    table: outputs of all nodes. scaling: their units. labels: float32 (nodes, columns), NaN for none; held by the
    caller. parts: rows of each part; those without a label do not count. progress: called with rows done and in total.
    Raises ConfigError for a part without labels and for outputs that are not finite, BudgetError.

    A part has `nodes`, the number of labelled nodes; `rmse`, `mae` and `r2`, each the mean over the columns that have
    it, None without such; `values`, an object per column with its number (`value`), `labels`, `rmse`, `mae`, `r2`, and
    `mean` and `deviation` of its labels; and `notes`.
    """
    with ExitStack() as held:
        for name, num_bytes in least_memory(labels, parts, table.dim).items():
            held.enter_context(budget.reserve(name, num_bytes))
        measured = {name: labelled_rows(name, rows, labels) for name, rows in parts.items()}
        errors = {name: ValueErrors(table.dim) for name in parts}
        start = 0
        for block in table.blocks(block_rows(table.dim)):
            for name, rows in measured.items():
                for first, last in rows_in_block(rows, start, start + len(block)):
                    found = rows[first:last]
                    require_finite(block[found - start], found)
                    errors[name].update(scaling.restored(block[found - start]), labels[found])
            start += len(block)
            progress(start, table.num_rows)
    return {name: {"nodes": len(rows), **_describe(errors[name])} for name, rows in measured.items()}


def _describe(errors: ValueErrors) -> dict[str, Any]:
    found = errors.values()
    notes = [] if found["r2"] is not None else ["R2 has no value: no column has labels that differ"]
    columns = [{"value": number, **column} for number, column in enumerate(errors.columns())]
    return {**found, "values": columns, "notes": notes}
