"""Predictions that tests write, and the same values by the plainest means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.name_lines import to_lines
from diskhop.io.atomic import Injector
from diskhop.io.checksums import sum_file
from diskhop.predicting.columns import WORDS, Outputs
from diskhop.predicting.output import Predictions, predictions_folder, read_predictions_manifest, write_predictions
from diskhop.predicting.rows import ArrayRows
from diskhop.predicting.sizes import OutputLimits
from diskhop.protocols import NodeRows
from diskhop.runtime.jobs import Executor
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from tests.graphs import random_pairs, threads_engine

ALL = Outputs(words=tuple(word for word in WORDS if word != "value"))
# Several parts, groups and reads of a few nodes.
TINY = OutputLimits(group_bytes=400, group_rows=3, part_bytes=500, read_bytes=24)


def node_dataset(
    folder: Path, ids: list[int] | list[str], *, rows: NDArray[np.int64] | None = None, classes: list[str] | None = None
) -> Dataset:
    """A dataset of nodes with these ids, in the source's order; rows: the node at each row, for a hot order."""
    count = len(ids)
    order = np.arange(count) if rows is None else rows
    are_names = isinstance(ids[0], str)
    with DatasetBuilder(folder, name="nodes", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", count)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(random_pairs(count, 5)))
        builder.add_labels("node", [np.arange(count) % 3], 3)
        builder.add_split("node", "test", [np.arange(0, count, 2)])
        numbers = np.arange(count) if are_names else np.array(ids, np.int64)
        if rows is not None or not np.array_equal(numbers, np.arange(count)):
            builder.add_original_ids("node", [numbers[order]], "hot" if rows is not None else "original")
        if rows is not None and (np.diff(numbers) < 0).any():
            builder.add_positions("node", [order])
        if are_names:
            builder.add_names("nodes", [to_lines(map(str, ids))], count)
        if classes is not None:
            builder.add_names("classes", [to_lines(classes)], len(classes))
        return builder.finish()


def rows_of(dataset: Dataset, num_classes: int = 3, dim: int = 5, seed: int = 0) -> dict[Any, ArrayRows]:
    """Logits and embeddings by row."""
    generator = np.random.default_rng(seed)
    shapes = {"logits": num_classes, "embedding": dim}
    return {
        name: ArrayRows((3 * generator.standard_normal((dataset.num_nodes, width))).astype(np.float32))
        for name, width in shapes.items()
    }


def write(
    destination: Path,
    dataset: Dataset,
    tables: Mapping[Any, ArrayRows],
    outputs: Outputs = ALL,
    *,
    format_name: str = "parquet",
    nodes: NodeRows | None = None,
    memory_bytes: int = 1 << 30,
    threads: int = 2,
    overwrite: bool = False,
    engine: Engine | None = None,
    injector: Injector | None = None,
    facts: Mapping[str, Any] | None = None,
    key: str = "rows",
    limits: OutputLimits | None = None,
    executor: Executor | None = None,
) -> Predictions:
    """Write predictions as a command does, and remove the work folder."""
    tools = TaskTools(engine or threads_engine(), injector, executor=executor)
    with ExitStack() as held:
        folder = held.enter_context(WorkFolder(destination, injector))
        staged = held.enter_context(predictions_folder(destination, overwrite=overwrite, injector=injector))
        work = WorkTools(folder, tools, Budget(memory_bytes), threads, silent, held)
        written = write_predictions(
            staged,
            dataset,
            outputs,
            tables,
            work,
            key=key,
            nodes=nodes,
            format_name=format_name,
            facts=facts,
            limits=limits,
        )
        folder.remove()
    return written


def values_of(tables: Mapping[Any, ArrayRows]) -> dict[str, NDArray[Any]]:
    """The values of every column by row, computed in float64."""
    logits, embedding = (np.concatenate(list(tables[name].blocks(7))) for name in ("logits", "embedding"))
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    return {
        "class": logits.argmax(axis=1),
        "probability": probabilities.max(axis=1),
        "probabilities": probabilities,
        "logits": logits,
        "embedding": embedding,
    }


def check_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest and check what it says of the files, which are all files of the folder."""
    manifest = read_predictions_manifest(folder)
    assert {path.name for path in folder.iterdir()} == {*manifest["files"], "_SUCCESS", "_manifest.json"}
    assert (folder / "_SUCCESS").read_bytes() == b""
    for name, entry in manifest["files"].items():
        content = np.fromfile(folder / name, np.uint8)
        assert entry["bytes"] == len(content)
        assert entry["xxh3_64"] == f"{sum_file(content).digest:016x}"
    return manifest
