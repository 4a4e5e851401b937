"""Small graphs to embed, runs of embeddings on them, and what is close to exact arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine

NUM_NODES, NUM_RELATIONS = 60, 3
# Float32 against float64: sums of up to some hundred terms of size 1.
TOLERANCE = 1e-4
OPTIONS: dict[str, Any] = {
    "model": "complex", "dim": 8, "loss": "softmax", "lr": 0.1, "init_scale": 0.3, "batch_size": 64, "chunk_size": 16,
    "negatives": 12, "epochs": 2, "partitions": 4, "buffer": 3, "partition_order": "auto", "memory_bytes": 200_000_000,
    "eval_edges": 30, "eval_candidates": 20, "engine": "threads", "threads": 1,
}  # fmt: skip


def embed_config(**changes: Any) -> EmbedConfig:
    return EmbedConfig(**{**OPTIONS, **changes})


def small_triples(folder: Path, seed: int = 0, copies: int = 1) -> Dataset:
    """A ring in which relation r leads r + 1 further; every tenth triple is for validation and as many for testing.

    copies: of each triple that is trained on.
    """
    triples = np.array(
        [(node, step, (node + step + 1) % NUM_NODES) for node in range(NUM_NODES) for step in range(NUM_RELATIONS)]
    )
    np.random.default_rng(seed).shuffle(triples)
    source = folder / "source"
    source.mkdir(parents=True)
    np.savez(
        source / "data.npz",
        train=np.tile(triples[36:], (copies, 1)), valid=triples[:18], test=triples[18:36],
        num_entities=NUM_NODES, num_relations=NUM_RELATIONS,
    )  # fmt: skip
    return import_graph(source, folder / "graph", engine=open_engine("threads").engine)


def committed_bytes(out: Path) -> dict[str, bytes]:
    """Committed partitions, relations and losses of a run, without times: equal in equal runs."""
    commit = json.loads((out / "commit.json").read_text())
    found = {
        f"partition {number}": (out / "partitions" / f"{number:05}-{'ab'[version[0]]}.bin").read_bytes()
        for number, version in enumerate(commit["partitions"])
    }
    relations = out / f"relations-{'ab'[commit['relations']]}.safetensors"
    if relations.exists():  # a model that has none
        found["relations"] = relations.read_bytes()
    found["history"] = repr([(each["epoch"], each["loss"], each.get("valid")) for each in commit["history"]]).encode()
    return found


def assert_close(ours: Any, exact: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(exact), atol=TOLERANCE, rtol=TOLERANCE)
