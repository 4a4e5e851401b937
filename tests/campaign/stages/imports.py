"""Imports of every kind of source, in tasks of a few rows, by way of the disk."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.dataset.sort.plan import SortLimits
from diskhop.dataset.verify import verify
from diskhop.importing.options import ImportOptions
from diskhop.importing.pyg.source import from_pyg
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.campaign.stage import Place, Stage
from tests.graphs import random_pairs
from tests.sources import SOURCES, KnownGraph
from tests.typed_graphs import typed_data
from tests.unit.test_import_ntriples import TEXT, written
from tests.unit.test_import_pbg import write_folder
from tests.unit.test_import_typed_tables import SCHEMA, shop

NUM_NODES, NUM_EDGES = 200, 1500
# Several tasks of each kind, and several spills of edges.
LIMITS = ImportLimits(
    pairs_slice_bytes=2000,
    rows_slice_bytes=4000,
    triples_slice_bytes=2000,
    edges_per_group=NUM_EDGES // 4,
    most_edges_per_group=NUM_EDGES // 4,
    sort=SortLimits(in_memory_bytes=0, spill_bytes=1 << 13, bucket_keys=1 << 9, least_block_bytes=4096),
)
BOTH_WAYS = ImportOptions(undirected=True, duplicates="drop")


def check_graph(out: Path) -> None:
    damage = verify(out / "graph")
    assert not damage, f"verify: {damage}"


def known(kind: str, names: bool, inputs: Path) -> None:
    """Write one graph as a kind of source."""
    ids = [f"n{3 * number}" for number in range(NUM_NODES)] if names else list(range(NUM_NODES))
    edges = random_pairs(NUM_NODES, NUM_EDGES).T
    train = np.arange(0, NUM_NODES, 3)
    folder = inputs / "source"
    folder.mkdir()
    source = SOURCES[kind].write(KnownGraph(ids=ids, edges=edges, train=train), folder)
    assert isinstance(source, Path)
    (inputs / "name").write_text(source.name if source != folder else "")


def attributed(inputs: Path) -> None:
    """Arrays with weights, and attributes of edges and nodes."""
    (inputs / "source").mkdir()
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "edge_index": random_pairs(NUM_NODES, NUM_EDGES),
        "edge_weight": generator.random(NUM_EDGES, np.float32),
        "edge_attr": generator.random((NUM_EDGES, 20)),
        "edge.kind": np.arange(NUM_EDGES),
        "node.time": np.arange(NUM_NODES),
        "x": generator.random((NUM_NODES, 30)),
    }
    for name, array in arrays.items():
        np.save(inputs / "source" / f"{name}.npy", array)


def triples(inputs: Path) -> None:
    (inputs / "source").mkdir()
    text = "".join(f"n{a}\tr{(a + b) % 7}\tn{b}\n" for a, b in random_pairs(NUM_NODES, NUM_EDGES).T.tolist())
    (inputs / "source" / "train.txt.gz").write_bytes(gzip.compress(text.encode()))
    (inputs / "source" / "test.txt").write_text("n1\tr1\tn2\n")


def pbg(inputs: Path) -> None:
    write_folder(inputs).rename(inputs / "source")


def run_import(options: ImportOptions, place: Place) -> None:
    named = place.inputs / "name"
    import_graph(
        place.inputs / "source" / (named.read_text() if named.exists() else ""),
        place.out / "graph",
        options=options,
        engine=place.engine,
        budget=Budget(200_000_000),
        threads=place.threads,
        limits=LIMITS,
        injector=place.cut,
    )


def run_moving_rows(options: ImportOptions, place: Place) -> None:
    """Rows take the way over the disk to their place in hot order, as large tables do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowMover, "_fits", lambda _mover, _table_bytes: False)
        run_import(options, place)


def run_pyg(place: Place) -> None:
    from_pyg(typed_data(), place.out / "graph", memory="200MB")


def nothing(_inputs: Path) -> None:
    """No files: the graph is in memory."""


# How the source is written, and the options of the import.
WRITTEN: dict[str, tuple[Callable[[Path], object], ImportOptions]] = {
    "arrays": (partial(known, "numpy", False), BOTH_WAYS),
    "arrays with attributes": (attributed, ImportOptions()),
    "edge text": (partial(known, "text", False), BOTH_WAYS),
    "edge text of names": (partial(known, "text-parts", True), BOTH_WAYS),
    "an edge table (parquet)": (partial(known, "edge-table", True), BOTH_WAYS),
    "tables (parquet)": (partial(known, "tables", True), ImportOptions()),
    "typed tables": (lambda inputs: shop(inputs / "source", schema=SCHEMA), ImportOptions()),
    "triples": (triples, ImportOptions()),
    "N-Triples": (lambda inputs: written(inputs / "source" / "g.nt", TEXT), ImportOptions(node_types=True)),
    "OGB": (partial(known, "ogb", False), ImportOptions()),
    "GraphBolt": (partial(known, "graphbolt", False), ImportOptions()),
    "PyTorch-BigGraph": (pbg, ImportOptions()),
}
STAGES = (
    *(
        Stage(
            name=f"import of {name}",
            prepare=prepare,
            run=partial(run_import, options),
            done="graph",
            check=check_graph,
        )
        for name, (prepare, options) in WRITTEN.items()
    ),
    Stage(
        name="import of arrays in hot order",
        prepare=partial(known, "numpy", False),
        run=partial(run_moving_rows, ImportOptions(undirected=True, order="hot")),
        done="graph",
        check=check_graph,
    ),
    Stage(
        name="import of PyG's objects",
        prepare=nothing,
        run=run_pyg,
        done="graph",
        check=check_graph,
        takes_cuts=False,
    ),
)
