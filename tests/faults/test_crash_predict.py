"""Predictions that crash before any write, fsync or rename and are resumed: the same bytes, finished ranges kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GCNConv, SAGEConv

from diskhop._native import CrashError
from diskhop.dataset.dataset import Dataset
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.batched import build_graph, tables_of, values
from tests.crashes import EVERY, crash_numbers
from tests.graphs import memory_folder, random_pairs, threads_engine

MIB = 1 << 20
# Tables of two ranges of a MiB, the last one shorter.
NUM_NODES, HIDDEN = 1300, 256


def models() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "list": [SAGEConv(3, HIDDEN), GCNConv(HIDDEN, HIDDEN), SAGEConv(HIDDEN, 2)],
        "knowledge": GCN(3, HIDDEN, 2, 2, jk="cat"),
    }


def predict(dataset: Dataset, model: nn.Module, out: Path, injector: CrashInjector | None = None) -> dict[int, bytes]:
    """Predict with half of the neighbours, keep the first table, and return the bytes of both."""
    tools = TaskTools(threads_engine(None if injector is None else injector.native), injector)
    with WorkFolder(out, injector) as work:
        tables = tables_of(
            dataset,
            model,
            work,
            keep=[1],
            fanout=4,
            store="direct",
            range_bytes=MIB,
            tools=tools,
        )
        return {number: values(tables, number).tobytes() for number in tables.tables}


@pytest.mark.fast(2)
@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("name", models())
@EVERY
def test_after_any_crash_the_bytes_are_the_same(tmp_path: Path, name: str, lost: Lost, every: int) -> None:
    features = np.random.default_rng(0).normal(size=(NUM_NODES, 3)).astype(np.float32)
    with memory_folder(tmp_path) as folder:
        dataset, model = build_graph(folder / "graph", random_pairs(NUM_NODES, 9000), features), models()[name]
        (folder / "whole").mkdir()
        with CrashInjector(folder / "whole", 0) as injector:
            expected = predict(dataset, model, folder / "whole" / "out", injector)
            num_changes = injector.num_changes
        kept_counts = set()
        for nth in crash_numbers(num_changes, every, lost):
            root, after = folder / f"{nth}", folder / f"after-{nth}"
            root.mkdir()
            after.mkdir()
            with CrashInjector(root, nth) as injector:
                with pytest.raises(CrashError):
                    predict(dataset, model, root / "out", injector)
                injector.write_survivors(after, lost)
            done = after / ".out.work" / "done"
            kept_counts.add(len(list(done.glob("layer-*"))) if done.is_dir() else 0)
            assert predict(dataset, model, after / "out") == expected
            work = after / ".out.work"
            assert {path.name for path in (work / "tables").glob("*.bin")} == {f"layer-{n}.bin" for n in expected}
            shutil.rmtree(root)
            shutil.rmtree(after)
        assert len(kept_counts) >= 4
