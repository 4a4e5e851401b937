"""Small graphs to train on, and what two runs are compared by."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.dataset.dataset import Dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.start import train

OPTIONS: dict[str, Any] = {
    "hidden": 16,
    "fanout": (4, 4),
    "batch_size": 50,
    "epochs": 4,
    "memory_bytes": 200_000_000,
    "threads": 1,
    "engine": "threads",
}


def small_graph(path: Path, **changes: Any) -> Dataset:
    """A graph with planted classes; `changes` to what GraphConfig is told."""
    wanted: dict[str, Any] = {
        "kind": "sbm",
        "num_nodes": 600,
        "num_edges": 4800,
        "dim": 16,
        "num_classes": 4,
        "homophily": 0.9,
        "signal": 0.5,
        "train_fraction": 0.5,
        "eval_fraction": 0.2,
        "seed": 1,
        **changes,
    }
    return generate_graph(path, GraphConfig(**wanted), engine=open_engine("threads").engine)


def noisy_graph(path: Path, **changes: Any) -> Dataset:
    """A graph of 2,000 nodes whose classes neighbours tell less of than in small_graph()."""
    wanted: dict[str, Any] = {
        "num_nodes": 2000,
        "dim": 30,
        "num_classes": 5,
        "num_edges": 12_000,
        "homophily": 0.7,
        "signal": 1.5,
        "train_fraction": 0.4,
        "seed": 5,
        **changes,
    }
    return small_graph(path, **wanted)


def import_arrays(folder: Path, name: str = "source", **arrays: Any) -> Dataset:
    source = folder / name
    source.mkdir()
    np.savez(source / "data.npz", **arrays)
    return import_graph(source, folder / f"{name}-imported", engine=open_engine("threads").engine)


def random_arrays(num_nodes: int = 200) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, num_nodes)
    features = generator.normal(size=(num_nodes, 4)).astype(np.float32)
    features[np.arange(num_nodes), labels] += 3
    return {"edge_index": generator.integers(0, num_nodes, (2, 800)), "x": features, "y": labels}


def losses(out: Path) -> list[str]:
    return [json.dumps(json.loads(line)["loss"]) for line in (out / "metrics.jsonl").read_text().splitlines()]


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_run(first: Path, second: Path) -> None:
    assert losses(first) == losses(second)
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


class StageCounter(Callback):
    def __init__(self) -> None:
        self.num_batches: Counter[str] = Counter()

    def batch_done(self, progress: BatchProgress) -> None:
        self.num_batches[progress.stage] += 1


class InterruptedRunError(Exception):
    """The error that interrupt() ends a run with."""


class _Interrupter(Callback):
    def __init__(self, num_epochs: int) -> None:
        self._left = num_epochs

    def epoch_done(self, record: dict[str, Any]) -> bool:
        self._left -= 1
        if self._left == 0:
            raise InterruptedRunError
        return False


def interrupt(dataset: Dataset, out: Path, num_epochs: int, **options: Any) -> None:
    """Start a run and end it after some epochs, as a crash would."""
    with contextlib.suppress(InterruptedRunError):
        train(dataset, out=out, callbacks=[_Interrupter(num_epochs)], **options)
    assert not (out / "result.json").exists()
