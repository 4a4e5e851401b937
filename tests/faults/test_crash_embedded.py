"""Datasets with embeddings as features that crash before any write, fsync or rename: nothing, or all of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import diskhop
from diskhop._native import CrashError
from diskhop.dataset.verify import verify
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runs.embedding.features import from_embeddings
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runtime.tasks import TaskTools
from tests.crashes import EVERY, crash_numbers
from tests.graphs import folder_bytes, memory_folder, threads_engine


def make(run: OpenRun, root: Path, injector: CrashInjector | None = None) -> None:
    tools = TaskTools(threads_engine(None if injector is None else injector.native), injector)
    from_embeddings(run, root / "graph", root / "source", memory="50MB", threads=1, tools=tools)


@pytest.mark.parametrize("lost", ["names", "data"])
@EVERY
def test_after_any_crash_the_dataset_is_whole_or_missing(tmp_path: Path, lost: Lost, every: int) -> None:
    (tmp_path / "edges.txt").write_text("".join(f"n{each} n{(each + 3) % 40}\n" for each in range(40)))
    options = ImportOptions(ids="string", header=False)
    source = import_graph(tmp_path / "edges.txt", tmp_path / "source", options=options, engine=threads_engine())
    diskhop.embed(source, out=tmp_path / "run", dim=4, epochs=1, memory="50MB", evaluate=False)
    run = open_run(tmp_path / "run")
    make(run, tmp_path)
    expected = folder_bytes(tmp_path / "graph")
    with memory_folder(tmp_path) as folder:
        (folder / "whole").mkdir()
        shutil.copytree(source.path, folder / "whole/source")
        with CrashInjector(folder / "whole", 0) as counter:
            make(run, folder / "whole", counter)
            num_changes = counter.num_changes
        for nth in crash_numbers(num_changes, every, lost):
            root, after = folder / f"{nth}", folder / f"after-{nth}"
            root.mkdir()
            after.mkdir()
            shutil.copytree(source.path, root / "source")
            with CrashInjector(root, nth) as injector:
                with pytest.raises(CrashError):
                    make(run, root, injector)
                injector.write_survivors(after, lost)
            if not (after / "graph").exists():
                make(run, after)
            assert folder_bytes(after / "graph") == expected
            assert verify(after / "graph") == []
            assert folder_bytes(after / "source") == folder_bytes(source.path)
            shutil.rmtree(root)
            shutil.rmtree(after)
