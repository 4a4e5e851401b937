"""Commands of each stage on tiny graphs, for faults that are injected once per call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diskhop.runs.start import train
from tests.embedding import committed_bytes, small_triples
from tests.graphs import folder_bytes
from tests.runs import small_graph

_SAMPLED = ["--model", "sage", "--hidden", "8", "--fanout", "2,2", "--batch-size", "40", "--memory", "100MB"]
_OF_PACKED = [*_SAMPLED, "--cache", "1KB", "--epochs", "1"]


class Job(NamedTuple):
    """A command in a new folder, where it leaves `out`, and perhaps derived files in `scratch`.

    prepare: writes what it reads to a folder of inputs. words: the command line without the folders. made: what is
    there once it is done, a glob of the new folder. result: of what is there then, what two runs have in common.
    """

    name: str
    prepare: Callable[[Path], object]
    words: Callable[[Path, Path], list[str]]
    made: str
    result: Callable[[Path], dict[str, bytes]]

    def again(self, inputs: Path, root: Path) -> list[str]:
        """The command that completes what a failed one has left."""
        words = self.words(inputs, root)
        if words[0] in ("train", "embed"):
            return [words[0], "--resume", "--out", words[words.index("--out") + 1]] if has_run(root) else words
        return [*words, "--overwrite"] if words[0] in ("import", "predict") and (root / "out").exists() else words


def has_run(root: Path) -> bool:
    """Whether there is a run to resume."""
    return (root / "out" / "config.toml").exists()


def _small(inputs: Path) -> None:
    small_graph(inputs / "graph", num_nodes=120, num_edges=600, dim=24)


def _source(inputs: Path) -> None:
    (inputs / "source").mkdir()
    generator = np.random.default_rng(0)
    edges, rows = generator.integers(0, 60, (2, 300)), generator.normal(size=(60, 6)).astype(np.float32)
    np.savez(inputs / "source" / "data.npz", edge_index=edges, x=rows, y=np.arange(60) % 3)


def _trained(inputs: Path) -> None:
    _small(inputs)
    options: dict[str, Any] = {
        "hidden": 8,
        "fanout": (2, 2),
        "batch_size": 40,
        "epochs": 1,
        "memory": "100MB",
        "threads": 1,
    }
    train(inputs / "graph", **options, evaluate=False, out=inputs / "run")


def _run_result(root: Path) -> dict[str, bytes]:
    out = root / "out"
    result = json.loads((out / "result.json").read_text())
    losses = json.dumps([epoch["loss"] for epoch in result["epochs"]])
    return {"model": (out / "model.safetensors").read_bytes(), "losses": losses.encode()}


def _files_but(*names: str) -> Callable[[Path], dict[str, bytes]]:
    """All files, without those that say how long it took."""

    def result(root: Path) -> dict[str, bytes]:
        return {name: content for name, content in folder_bytes(root).items() if Path(name).name not in names}

    return result


JOBS = (
    Job(
        "import",
        _source,
        lambda inputs, root: ["import", f"{inputs}/source", f"{root}/out", "--memory", "64MB", "--threads", "1"],
        "out",
        folder_bytes,
    ),
    Job(
        "pack",
        _small,
        lambda inputs, root: ["pack", f"{inputs}/graph", *_OF_PACKED, "--scratch", f"{root}/scratch", "--threads", "1"],
        "scratch/packed-*",
        _files_but("took.json"),
    ),
    Job(
        "propagate",
        _small,
        lambda inputs, root: [
            "propagate", f"{inputs}/graph", "--operator", "sign", "--hops", "2", "--memory", "64MB", "--threads", "1",
            "--scratch", f"{root}/scratch",
        ],
        "scratch/propagated-*",
        folder_bytes,
    ),
    Job(
        "train",
        _small,
        lambda inputs, root: [
            "train", f"{inputs}/graph", *_SAMPLED, "--epochs", "2", "--store", "belady", "--cache", "2KB",
            "--scratch", f"{root}/scratch", "--threads", "1", "--out", f"{root}/out",
        ],
        "out/result.json",
        _run_result,
    ),
    Job(
        "embed",
        small_triples,
        lambda inputs, root: [
            "embed", f"{inputs}/graph", "--model", "complex", "--dim", "4", "--partitions", "4", "--buffer", "3",
            "--batch-size", "64", "--chunk-size", "16", "--negatives", "12", "--epochs", "1", "--no-eval",
            "--memory", "100MB", "--threads", "1", "--out", f"{root}/out",
        ],
        "out/result.json",
        lambda root: committed_bytes(root / "out"),
    ),
    Job(
        "predict",
        _trained,
        lambda inputs, root: [
            "predict", f"{inputs}/run", "--what", "class,probability", "--memory", "64MB", "--threads", "1",
            "--scratch", f"{root}/scratch", "--out", f"{root}/out",
        ],
        "out",
        _files_but("_manifest.json"),
    ),
)  # fmt: skip
