"""Graphs that are generated or updated, and what is derived from a graph: packed batches, hop tables."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.generating import GraphConfig, TypedConfig, generate_graph, generate_typed_graph
from diskhop.generating.expand import expand_graph
from diskhop.generating.expand_config import ExpandConfig
from tests.campaign.stage import Place, Stage
from tests.campaign.stages.imports import check_graph, nothing
from tests.faults.test_update_crashes import compact, update
from tests.faults.test_update_crashes import prepare as updated
from tests.graphs import make_dataset
from tests.packed import pack_small
from tests.propagation import propagate_small
from tests.runs import small_graph

MEMORY = Budget(100_000_000)
# Four batches of an epoch, which share rows two by two.
PACKING: dict[str, Any] = {
    "batch_size": 10, "fanout": (2, 2), "cache_bytes": 600, "epochs": 2, "disk_bytes": 560_000,
}  # fmt: skip
# Blocks of a few of 9 columns by rows; lists that are sorted first.
PROPAGATIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "by rows": (5000, {"memory_bytes": 320_000, "operators": ("sign", "heat"), "hops": 2, "rows": "labelled"}),
    "by lists": (60, {"memory_bytes": 3_000_000, "operators": ("sgc", "ppr"), "hops": 2, "direction": "both"}),
}


def generate(place: Place) -> None:
    config = GraphConfig(
        kind="kronecker", num_nodes=3000, num_edges=20_000, dim=16, num_classes=4, train_fraction=0.1, order="hot"
    )
    generate_graph(
        place.out / "graph", config, engine=place.engine, budget=MEMORY, threads=place.threads, injector=place.cut
    )


def generate_typed(place: Place) -> None:
    config = TypedConfig(shape="company", num_nodes=2000, num_edges=20_000, dim=8)
    generate_typed_graph(
        place.out / "graph", config, engine=place.engine, budget=MEMORY, threads=place.threads, injector=place.cut
    )


def expand(place: Place) -> None:
    expand_graph(
        open_dataset(place.inputs / "graph"),
        place.out / "graph",
        ExpandConfig(factor=3),
        engine=place.engine,
        budget=MEMORY,
        threads=place.threads,
        injector=place.cut,
    )


def pack(place: Place) -> None:
    graph = open_dataset(place.inputs / "graph")
    pack_small(graph, place.out / "s", engine=place.engine, injector=place.cut, threads=place.threads, **PACKING)


def propagate(options: dict[str, Any], place: Place) -> None:
    graph = open_dataset(place.inputs / "graph")
    propagate_small(graph, place.out / "s", engine=place.engine, injector=place.cut, threads=place.threads, **options)


def make_graph(num_nodes: int, inputs: Path) -> None:
    make_dataset(inputs / "graph", num_nodes=num_nodes, num_edges=4 * num_nodes, dim=9)


def copy_graph(inputs: Path, out: Path) -> None:
    shutil.copytree(inputs / "graph", out / "graph")


def update_and_compact(place: Place) -> None:
    graph = place.out / "graph"
    if open_dataset(graph).manifest.generation == 2:
        update(graph, place.inputs / "delta", place.engine, place.cut)
    compact(graph, place.engine, place.cut)


STAGES = (
    Stage(name="generate", prepare=nothing, run=generate, done="graph", check=check_graph),
    Stage(name="generate, typed", prepare=nothing, run=generate_typed, done="graph", check=check_graph),
    Stage(
        name="generate, expanded",
        prepare=lambda inputs: small_graph(inputs / "graph"),
        run=expand,
        done="graph",
        check=check_graph,
    ),
    Stage(
        name="pack",
        prepare=lambda inputs: small_graph(inputs / "graph", num_nodes=80, num_edges=400, dim=129),
        run=pack,
        done="s/[!.]*",
        timed=lambda name: name.endswith("took.json"),
    ),
    *(
        Stage(
            name=f"propagate {name}",
            prepare=partial(make_graph, num_nodes),
            run=partial(propagate, options),
            done="s/[!.]*",
        )
        for name, (num_nodes, options) in PROPAGATIONS.items()
    ),
    Stage(
        name="update, compact",
        prepare=updated,
        begin=copy_graph,
        run=update_and_compact,
        # The next update removes it.
        spare=lambda name: name.startswith(".graph.work"),
        check=check_graph,
    ),
)
