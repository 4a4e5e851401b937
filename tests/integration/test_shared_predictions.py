"""Every model's rows are shared by processes, with the bytes of one; each part of the work may run twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.predicting.disk import ALL_FREE
from diskhop.predicting.row_files import RowFile
from diskhop.runs.nodes.opened import MODELS, open_classifier
from diskhop.runs.predict.tables import OutputRun
from diskhop.runs.predict.wanted import Wanted
from diskhop.runs.start import train
from diskhop.runtime.jobs import pickle_job
from diskhop.runtime.plain import encode_job
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.executing import Copies
from tests.graphs import memory_folder, random_pairs, threads_engine
from tests.runs import import_arrays
from tests.typed_passes import build_relation_network, in_passes, make_relation_network, make_relations
from tests.typed_predictions import graph as typed_graph
from tests.typed_predictions import train_run

NUM_NODES = 700
OPTIONS: dict[str, Any] = {"epochs": 1, "batch_size": 200, "memory": "100MB", "threads": 2, "engine": "threads"}
SAMPLED = Wanted(layer=1, fanout=(3, 3))


@pytest.fixture(scope="module")
def graph(module_folder: Path) -> Dataset:
    """A graph with self-loops and edge weights."""
    rng = np.random.default_rng(0)
    pairs = random_pairs(NUM_NODES, 4000)
    pairs[:, :20] = np.arange(20)
    return import_arrays(
        module_folder,
        "graph",
        edge_index=pairs,
        edge_weight=rng.uniform(0.5, 2, 4000).astype(np.float32),
        x=rng.normal(size=(NUM_NODES, 16)).astype(np.float32),
        y=rng.integers(0, 4, NUM_NODES),
        train_idx=np.arange(200),
        val_idx=np.arange(200, 300),
        test_idx=np.arange(300, NUM_NODES),
    )


def outputs(
    run: Path, work: Path, wanted: Wanted, executor: Copies | None = None, scratch: str | None = None
) -> dict[str, bytes]:
    """All rows of the outputs of a run's model."""
    classifier = open_classifier(run, MODELS)
    output_run = OutputRun(
        classifier=classifier,
        dataset=classifier.open_dataset(),
        budget=Budget(200_000_000),
        space=ALL_FREE,
        threads=2,
        tools=TaskTools(threads_engine(), executor=executor),
        scratch=scratch,
    )
    found = {}
    with WorkFolder(work) as folder, output_run.compute(wanted, folder) as tables:
        for name in ("logits", "embedding"):
            table = getattr(tables, name)
            if table is not None:
                found[name] = b"".join(block.tobytes() for block in table.blocks(100))
    return found


@pytest.fixture
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few rows, as many as direct writes allow."""
    monkeypatch.setattr(RowFile, "range_rows", property(lambda file: 4096 // math.gcd(4096, 4 * file.dim)))


def require_shared(run: Path, tmp_path: Path, wanted: Wanted, encode: Callable[..., Any], *, least_parts: int) -> None:
    alone = outputs(run, tmp_path / "alone", wanted, scratch=str(tmp_path / "a"))
    executor = Copies(2, encode)
    assert outputs(run, tmp_path / "shared", wanted, executor, str(tmp_path / "s")) == alone
    assert len(executor.parts) >= least_parts


def test_rows_of_hop_models_are_shared(graph: Dataset, tmp_path: Path, short_ranges: None) -> None:
    train(graph, out=tmp_path / "run", model="sign", hidden=12, layers=2, hops=2, **OPTIONS)
    require_shared(tmp_path / "run", tmp_path, Wanted(layer=1), encode_job, least_parts=2)


def test_rows_of_sampled_layers_are_shared(graph: Dataset, tmp_path: Path, short_ranges: None) -> None:
    options = {**OPTIONS, "hidden": 16, "fanout": (4, 4), "evaluate": False}
    train(graph, out=tmp_path / "run", model="sage", **options)
    require_shared(tmp_path / "run", tmp_path, SAMPLED, encode_job, least_parts=4)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [SAMPLED, Wanted()], ids=["sampled", "all"])
def test_rows_of_weighted_layers_are_shared(graph: Dataset, tmp_path: Path, short_ranges: None, wanted: Wanted) -> None:
    for name, weights in (("weighted", "use"), ("plain", "ignore")):
        options = {**OPTIONS, "hidden": 16, "fanout": (4, 4), "evaluate": False, "edge_weights": weights}
        train(graph, out=tmp_path / name / "run", model="gcn", **options)
    require_shared(tmp_path / "weighted" / "run", tmp_path / "weighted", wanted, pickle_job, least_parts=4)
    # Without weights, degrees need the self-loops of all nodes.
    if wanted.fanout:
        require_shared(tmp_path / "plain" / "run", tmp_path / "plain", wanted, encode_job, least_parts=4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rgat", "hgt"])
def test_rows_of_typed_layers_are_shared(tmp_path: Path, short_ranges: None, model: str) -> None:
    _, dataset = typed_graph(tmp_path / "graph")
    run = train_run(dataset, tmp_path / "run", model=model)
    require_shared(run, tmp_path, Wanted(layer=1), encode_job, least_parts=4)


@pytest.mark.parametrize("model", ["rgcn", pytest.param("hetero-sage", marks=pytest.mark.slow)])
def test_rows_over_relations_are_shared(tmp_path: Path, model: str) -> None:
    """Those of learned rows in memory stay in their process."""
    with memory_folder(tmp_path) as folder:
        graph = make_relations(folder, {"a": 9000, "b": 5000, "c": 50}, 20_000, 20)
        network = make_relation_network(graph, model, 5, 20)
        options: dict[str, Any] = {"wanted": (1, 2), "threads": 2}
        expected = in_passes(graph, network, folder / "alone", memory_bytes=2_000_000, **options)
        plans: list[Any] = []
        executor = Copies(2)
        found = in_passes(
            graph,
            network,
            folder / "shared",
            build=build_relation_network(graph, model, 5, 20),
            executor=executor,
            memory_bytes=4_500_000,
            range_bytes=1 << 30,
            plans=plans,
            **options,
        )
    assert found.keys() == expected.keys()
    for number, rows in expected.items():
        np.testing.assert_array_equal(found[number], rows)
    steps = {step for step, _ in executor.parts}
    assert any("(0, 'a')" in step for step in steps)
    assert any("'writes'" in step for step in steps)
    assert any("(2, 'a')" in step for step in steps)
    assert not any("(0, 'b')" in step for step in steps)
    assert plans[0].num_processes * sum(plans[0].reserved.values()) <= 4_500_000
