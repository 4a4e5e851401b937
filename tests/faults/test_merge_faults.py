"""Claims about merged lists and crashes: before any change to the disk, what is left is nothing or the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop._native import CrashError, Engine
from diskhop.budget import Budget
from diskhop.dataset.merge import MergeTools, merged_lists
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import crash_numbers
from tests.graphs import folder_bytes, threads_engine
from tests.typed import make_typed

_REVERSED = ("author__writes__paper",)


def test_a_crash_leaves_nothing_or_all(tmp_path: Path) -> None:
    dataset = make_typed(tmp_path / "g")

    def make(scratch: Path, injector: CrashInjector | None) -> Path:
        engine = threads_engine() if injector is None else Engine("threads", 1, injector.native)
        tools = MergeTools(scratch=scratch, engine=engine, budget=Budget(1 << 30), injector=injector)
        return merged_lists(dataset, tools, _REVERSED).indices_path.parent

    (tmp_path / "whole").mkdir()
    with CrashInjector(tmp_path / "whole", 0) as counter:
        expected = folder_bytes(make(tmp_path / "whole", counter))
        num_changes = counter.num_changes
    assert num_changes > 10
    losses: tuple[Lost, ...] = ("names", "data")
    for lost in losses:
        for nth in crash_numbers(num_changes, 2, lost):
            root, after = tmp_path / f"{lost}-{nth}", tmp_path / f"{lost}-{nth}-after"
            root.mkdir()
            after.mkdir()
            with CrashInjector(root, nth) as injector:
                with pytest.raises(CrashError):
                    make(root, injector)
                injector.write_survivors(after, lost)
            assert folder_bytes(make(after, None)) == expected
