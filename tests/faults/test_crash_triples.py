"""An import of triples that stopped anywhere resumes with the same command, and gives the same bytes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.errors import SourceError
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.importing.triples import tasks as triple_tasks
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import EVERY, Crashes
from tests.graphs import folder_bytes, memory_folder, threads_engine

# Several slices per text.
LIMITS = ImportLimits(triples_slice_bytes=120)
NAMES = {
    "train.txt": "".join(f"n{n % 7}\tr{n % 3}\tn{n % 5}\n" for n in range(40)),
    "test.txt": "n1\tr1\tn2\n",
}
IDS = {
    "train.del": "".join(f"{n % 7}\t{n % 3}\t{n % 5}\n" for n in range(40)),
    "entities.dict": "".join(f"{n}\tn{n}\n" for n in range(7)),
    "relations.dict": "".join(f"{n}\tr{n}\n" for n in range(3)),
}


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


@pytest.fixture(params=[NAMES, IDS], ids=["names", "ids"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of gzip files, some of which are parsed in several slices."""
    folder = tmp_path / "kg"
    folder.mkdir()
    for name, text in request.param.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slices that were parsed, as they are."""
    names: list[str] = []
    for kind in (triple_tasks.ParseTexts, triple_tasks.ParseIds):
        write = kind.write

        def counted(task: Any, *arguments: Any, write: Any = write) -> None:
            names.append(task.name)
            write(task, *arguments)

        monkeypatch.setattr(kind, "write", counted)
    return names


def import_triples(source: Path, graph: Path, injector: CrashInjector | None = None) -> None:
    import_graph(
        source,
        graph,
        engine=threads_engine() if injector is None else Engine("threads", 1, injector.native),
        budget=Budget(200 << 20),
        threads=1,
        limits=LIMITS,
        injector=injector,
    )


@pytest.mark.fast(2)
@pytest.mark.parametrize("lost", ["names", "data"])
@EVERY
def test_after_any_crash_the_same_import_ends_the_same(
    tmp_path: Path, source: Path, lost: Lost, every: int, parsed: list[str]
) -> None:
    crashes = Crashes(tmp_path, partial(import_triples, source))
    num_slices = len(parsed)
    assert num_slices > len(list(source.iterdir()))
    most_saved = 0
    parsed.clear()
    for graph in crashes.each(every, lost):
        num_before = len(parsed)
        if not graph.exists():
            import_triples(source, graph)
            # One slice may have been on its way.
            assert len(parsed) <= num_slices + 1
            most_saved = max(most_saved, num_before)
        parsed.clear()
    assert most_saved == num_slices


def test_a_source_that_changed_is_parsed_again(tmp_path: Path, source: Path, parsed: list[str]) -> None:
    part = next(source.glob("train.*"))
    text = gzip.decompress(part.read_bytes())
    part.write_bytes(gzip.compress(text + b"\n1\t2"))
    with pytest.raises(SourceError, match="line 42: a row must have 3 columns") as caught:
        import_triples(source, tmp_path / "graph")
    assert caught.value.__notes__ == [
        f"finished work is kept in {tmp_path / '.graph.work'}: it is reused after the correction"
    ]
    parsed.clear()
    part.write_bytes(gzip.compress(text + b"\n"))
    import_triples(source, tmp_path / "graph")
    num_parsed = len(parsed)
    parsed.clear()
    import_triples(source, tmp_path / "other")
    assert len(parsed) == num_parsed
    assert folder_bytes(tmp_path / "graph") == folder_bytes(tmp_path / "other")
    assert not (tmp_path / ".graph.work").exists()
