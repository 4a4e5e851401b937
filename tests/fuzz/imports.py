"""Whole imports of small sources, for the targets of texts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.errors import BudgetError, ConfigError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import threads_engine

# Wrong content, a source that a budget is too small for, and one that only an option makes clear.
ERRORS = (SourceError, ConfigError, BudgetError)


@cache
def _engine() -> Engine:
    return threads_engine()


def import_source(source: Path, destination: Path, format_name: str | None = None) -> None:
    """Import a source as `diskhop import` does, with 256 MB, and read what came of it."""
    options = ImportOptions()
    dataset = import_graph(
        source,
        destination,
        format_name=format_name,
        engine=_engine(),
        budget=Budget(256 << 20),
        threads=1,
        options=options,
    )
    assert dataset.num_edges >= 0
