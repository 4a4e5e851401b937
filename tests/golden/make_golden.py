"""Makes the golden datasets: `python -m tests.golden.make_golden FOLDER`. Their bytes are the format: they stay."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.runtime.blocks import in_blocks


def make_plain(destination: Path, engine: Engine) -> Dataset:
    """A graph of one node type: a ring with chords, two features a node."""
    num_nodes = 12
    nodes = np.arange(num_nodes)
    ring = np.stack([nodes, (nodes + 1) % num_nodes])
    chords = np.stack([nodes, nodes * 5 % num_nodes])
    with DatasetBuilder(destination, name="plain", engine=engine, budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", num_nodes)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(np.concatenate([ring, chords], axis=1)))
        features = np.stack([nodes / 4, -nodes / 8], axis=1)
        builder.add_features("node", in_blocks(features, 64), dim=2, dtype="float32")
        builder.add_labels("node", [np.where(nodes == 11, -1, nodes % 3)])
        for part, ids in (("train", nodes[:6]), ("valid", nodes[9:5:-1]), ("test", nodes[10:])):
            builder.add_split("node", part, [ids])
        return builder.finish()


def make_typed(destination: Path, engine: Engine) -> Dataset:
    """Papers and authors: weights, edge ids, int8 and padded float16 features, tasks, two splits, triples, names."""
    with DatasetBuilder(destination, name="typed", engine=engine, budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("paper", 5)
        builder.add_nodes("author", 3)
        writes = np.array([[2, 0, 1, 0, 2, 2], [4, 3, 0, 4, 4, 1]])
        weights = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
        builder.add_edge_list("writes", "author", "paper", ArrayEdges(writes), edge_id_dtype="int64", weights=weights)
        builder.add_edge_list("cites", "paper", "paper", ArrayEdges(np.array([[0, 1, 1, 4], [1, 2, 2, 4]])))
        values = np.array([[1, -2, 4], [0, 0, 0], [0.5, 127, -127], [3, 3, 3], [-1, 0, 1]])
        builder.add_features("paper", [values], dim=3, dtype="int8")
        builder.add_features("author", [values[:3]], dim=3, dtype="float16", row_stride=8)
        builder.add_tasks("paper", [np.array([[0.0, 1.0]] * 4 + [[np.nan, 1.0]])], 2)
        builder.add_original_ids("paper", [np.array([3, 1, 0, 2, 4])])
        for number, order in enumerate(([0, 1, 2, 3, 4], [4, 2, 0, 1, 3])):
            for part, ids in (("train", order[:2]), ("valid", order[2:4]), ("test", order[4:])):
                builder.add_split("paper", part, [np.array(ids)], number, 2)
        builder.add_triples("author", "train", [np.array([[0, 0, 1], [1, 1, 2]])], 2)
        builder.add_names("relations", [np.frombuffer("knows\nmarried é\n".encode(), np.uint8)], 2)
        return builder.finish()


def main(folder: Path) -> None:
    """Make both below an existing folder."""
    engine = Engine("threads", 4)
    make_plain(folder / "plain", engine)
    make_typed(folder / "typed", engine)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
