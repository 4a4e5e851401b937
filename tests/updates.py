"""Graphs in tables that change: an old one, a delta, and the whole that an import of both together would have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from diskhop._native import FaultInjector
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.atomic import Injector
from diskhop.updating.compact import compact_dataset
from diskhop.updating.run import update_dataset
from tests.graphs import threads_engine

PARTS = np.array(["train", "valid", "test", "none"])
# What of the import's options an update has to be told.
TOLD = ("undirected", "self_loops", "duplicates", "weight", "time")
MEMORY_BYTES = 300_000_000


@dataclass
class Tables:
    """A graph in tables. nodes: columns by name. edges: columns by name, source and target among them."""

    nodes: dict[str, NDArray[Any]]
    edges: dict[str, NDArray[Any]]

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        pq.write_table(pa.table(self.nodes), folder / "nodes.parquet")
        pq.write_table(pa.table(self.edges), folder / "edges.parquet")
        return folder


@dataclass
class Change:
    """A delta. removed: pairs of ids, each once. nodes: those changed, then those new, as columns."""

    added: dict[str, NDArray[Any]]
    removed: list[tuple[Any, Any]]
    nodes: dict[str, NDArray[Any]]

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        if len(self.nodes["id"]):
            pq.write_table(pa.table(self.nodes), folder / "nodes.parquet")
        if len(self.added["source"]):
            pq.write_table(pa.table(self.added), folder / "edges.parquet")
        if self.removed:
            sources, targets = zip(*self.removed, strict=True)
            pq.write_table(pa.table({"source": sources, "target": targets}), folder / "removed-edges.parquet")
        return folder


def draw_tables(generator: np.random.Generator, ids: NDArray[Any], num_edges: int, dim: int = 3) -> Tables:
    """A graph of these nodes."""
    return Tables(draw_nodes(generator, ids, dim), draw_edges(generator, ids, num_edges))


def draw_nodes(generator: np.random.Generator, ids: NDArray[Any], dim: int = 3) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {"id": ids, "label": generator.integers(0, 3, len(ids))}
    columns["label"][:3] = [0, 1, 2][: len(ids)]
    # Each part has a node that stays in it.
    columns["split"] = PARTS[np.concatenate([np.arange(3), generator.integers(0, 4, len(ids))])[: len(ids)]]
    return columns | {f"f{column}": generator.random(len(ids), np.float32) for column in range(dim)}


def draw_edges(generator: np.random.Generator, ids: NDArray[Any], num_edges: int) -> dict[str, NDArray[Any]]:
    ends = ids[generator.integers(0, len(ids), (2, num_edges))]
    return {
        "source": ends[0],
        "target": ends[1],
        "amount": generator.random(num_edges, np.float32),
        "when": generator.integers(0, 1000, num_edges),
        "kind": generator.integers(0, 9, num_edges, np.int32),
    }


def apply(old: Tables, change: Change, *, undirected: bool = False) -> Tables:
    """The whole: removed edges are gone, changed rows replaced, new rows at the end."""
    removed = set(change.removed)
    if undirected:
        removed |= {(target, source) for source, target in removed}
    pairs = zip(old.edges["source"].tolist(), old.edges["target"].tolist(), strict=True)
    stays = np.array([pair not in removed for pair in pairs], np.bool_)
    edges = {key: np.concatenate([values[stays], change.added[key]]) for key, values in old.edges.items()}
    nodes = {key: values.copy() for key, values in old.nodes.items()}
    places = {node: place for place, node in enumerate(old.nodes["id"].tolist())}
    for row, node in enumerate(change.nodes["id"].tolist()):
        for key, values in nodes.items():
            if node in places:
                values[places[node]] = change.nodes[key][row]
    is_new = np.array([node not in places for node in change.nodes["id"].tolist()], np.bool_)
    return Tables({key: np.concatenate([values, change.nodes[key][is_new]]) for key, values in nodes.items()}, edges)


def import_tables(source: Path, path: Path, options: ImportOptions, injector: FaultInjector | None = None) -> Dataset:
    engine = threads_engine(injector)
    budget = Budget(MEMORY_BYTES)
    return import_graph(source, path, name="graph", options=options, engine=engine, budget=budget, threads=1)


def update(
    path: Path,
    delta: Path,
    options: ImportOptions | None = None,
    engine_injector: FaultInjector | None = None,
    injector: Injector | None = None,
    **others: Any,
) -> Dataset:
    told = {name: getattr(options, name) for name in TOLD if options is not None}
    if told.get("undirected") is None:
        told["undirected"] = False
    return update_dataset(
        path,
        delta,
        options=ImportOptions(**told),
        engine=threads_engine(engine_injector),
        budget=others.pop("budget", None) or Budget(MEMORY_BYTES),
        threads=1,
        injector=injector,
        **others,
    )


def compact(path: Path, engine_injector: FaultInjector | None = None, injector: Injector | None = None) -> Dataset:
    return compact_dataset(
        path, engine=threads_engine(engine_injector), budget=Budget(MEMORY_BYTES), threads=1, injector=injector
    )
