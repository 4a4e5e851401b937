"""Small graphs as arrays, imported and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from diskhop.dataset.dataset import Dataset
from diskhop.exporting.formats import export_dataset
from diskhop.importing.run import import_graph
from tests.graphs import threads_engine

Arrays = dict[str, Any]


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    options.setdefault("name", "g")
    return import_graph(source, destination, engine=threads_engine(), **options)


def exported(dataset: Dataset, destination: Path, format_name: str, **options: Any) -> Path:
    return export_dataset(dataset, destination, format_name=format_name, engine=threads_engine(), **options).path


def save(folder: Path, arrays: Arrays) -> Path:
    folder.mkdir()
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value)
    return folder


def saved(folder: Path) -> Arrays:
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def table(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(f"SELECT {columns} FROM read_parquet('{path}')").fetchall()


def sorted_edges(pairs: Any) -> list[tuple[int, int]]:
    return sorted(map(tuple, np.asarray(pairs).T.tolist()))


def random_arrays(generator: np.random.Generator, num_nodes: int, num_edges: int) -> Arrays:
    """Arrays of a graph with any of what nodes may have."""
    arrays: Arrays = {"edge_index": generator.integers(0, num_nodes, (2, num_edges)), "num_nodes": num_nodes}
    if generator.random() < 0.7:
        dtype = [np.float32, np.float16][generator.integers(2)]
        arrays["x"] = generator.normal(size=(num_nodes, generator.integers(1, 6))).astype(dtype)
    kind = generator.integers(3)
    if kind == 1:
        arrays["y"] = generator.integers(-1, 3, num_nodes)
        arrays["num_classes"] = 3 + generator.integers(3)
    elif kind == 2:
        arrays["y"] = generator.choice([0.0, 1.0, np.nan], (num_nodes, generator.integers(1, 4)))
    parts = [part for part in ("train", "val", "test") if generator.random() < 0.7]
    num_splits = generator.integers(1, 4)
    for part in parts:
        if num_splits == 1:
            arrays[f"{part}_idx"] = generator.permutation(num_nodes)[: generator.integers(1, num_nodes + 1)]
        else:
            arrays[f"{part}_masks"] = generator.random((num_splits, num_nodes)) < 0.5
            arrays[f"{part}_masks"][:, 0] = True
    if generator.random() < 0.3:
        arrays["edge_weight"] = generator.normal(size=num_edges).astype(np.float32)
    if generator.random() < 0.3:
        arrays["edge_time"] = generator.integers(-(2**60), 2**60, num_edges)
    return arrays
