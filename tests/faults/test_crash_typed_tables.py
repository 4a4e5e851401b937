"""Imports of tables per type and of N-Triples that stopped anywhere resume, and give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.io.faults import CrashInjector
from tests.crashes import Crashes
from tests.graphs import memory_folder, threads_engine
from tests.unit.test_import_ntriples import TEXT, written
from tests.unit.test_import_typed_tables import SCHEMA, shop

LIMITS = ImportLimits(triples_slice_bytes=400)
SOURCES: dict[str, tuple[Callable[[Path], Path], ImportOptions]] = {
    "tables": (partial(shop, schema=SCHEMA), ImportOptions()),
    "ntriples": (lambda folder: written(folder / "g.nt", TEXT).parent, ImportOptions(node_types=True)),
}
EVERY = pytest.mark.parametrize("every", [120, pytest.param(1, marks=pytest.mark.slow)])


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


def import_source(source: Path, options: ImportOptions, graph: Path, injector: CrashInjector | None = None) -> None:
    import_graph(
        source,
        graph,
        engine=threads_engine() if injector is None else Engine("threads", 1, injector.native),
        budget=Budget(200 << 20),
        threads=1,
        injector=injector,
        options=options,
        limits=LIMITS,
    )


@pytest.mark.parametrize("kind", SOURCES)
@EVERY
def test_after_any_crash_the_same_import_ends_the_same(tmp_path: Path, kind: str, every: int) -> None:
    make, options = SOURCES[kind]
    run = partial(import_source, make(tmp_path / "source"), options)
    for graph in Crashes(tmp_path, run).each(every, "data"):
        if not graph.exists():
            run(graph)
