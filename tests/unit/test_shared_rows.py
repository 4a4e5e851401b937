"""Rows of layers that several processes share: the same bytes in any number of them, wherever a run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.planning.predict import StreamedPlan
from tests.batched import build_graph
from tests.executing import Copies
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, streamed

NUM_NODES, DIM = 9000, 30  # three groups of rows
MODELS: dict[str, dict[str, Any]] = {"sage": {}, "gcn": {"norm": "batch"}, "gat": {"residual": True}}
# So little that each layer has several blocks.
MEMORY_BYTES = {"sage": 4_500_000, "gcn": 3_300_000, "gat": 4_500_000}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as found:
        yield found


@pytest.fixture
def graph(folder: Path) -> Dataset:
    """A graph whose first rows have most edges, with self-loops."""
    rng = np.random.default_rng(0)
    pairs = (rng.random((2, 30_000)) ** 3 * NUM_NODES).astype(np.int64)
    return build_graph(folder / "graph", pairs, rng.normal(size=(NUM_NODES, DIM)))


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", MODELS)
def test_processes_share_the_rows_of_every_table(folder: Path, graph: Dataset, model: str) -> None:
    """In parts that run twice, by copies of the job, each within a third of the memory."""
    build = partial(build_network, model, DIM, 4, hidden=20, **MODELS[model])
    plans, executor = list[StreamedPlan](), Copies(3)
    options: dict[str, Any] = {"wanted": (1, 3), "threads": 3}
    expected = streamed(graph, build(), folder / "alone", memory_bytes=3_000_000, **options)
    found = streamed(
        graph,
        build(),
        folder / "shared",
        memory_bytes=MEMORY_BYTES[model],
        build=build,
        executor=executor,
        plans=plans,
        range_bytes=1 << 30,
        **options,
    )
    assert found.keys() == expected.keys()
    for number, rows in expected.items():
        np.testing.assert_array_equal(found[number], rows)
    kinds = {"features", "sums", "layer"} | ({"norms"} if model == "gat" else set())
    ran = {kind for kind in kinds for step, number in executor.parts if f"'{kind}'" in step and number == 2}
    assert ran == kinds
    assert max(layer.num_blocks for layer in plans[0].layers) > 1
    assert plans[0].num_processes * sum(plans[0].reserved.values()) <= MEMORY_BYTES[model]


def test_any_number_of_processes_resumes(folder: Path, graph: Dataset) -> None:
    build = partial(build_network, "sage", DIM, 4, hidden=20)
    options: dict[str, Any] = {"build": build, "threads": 2, "range_bytes": 1 << 30}
    expected = streamed(graph, build(), folder / "alone")[3]

    def stop_at(wanted: str, stage: str, done: int, total: int) -> None:
        if stage == wanted and done >= 4096:
            raise ValueError("stop")

    for count, wanted in ((3, "layer 2"), (2, "layer 3")):
        with pytest.raises(ValueError, match="stop"):
            streamed(
                graph, build(), folder / "work", executor=Copies(count), progress=partial(stop_at, wanted), **options
            )
    stages = list[str]()
    found = streamed(graph, build(), folder / "work", progress=lambda stage, *_: stages.append(stage), **options)
    assert "layer 2" not in stages
    np.testing.assert_array_equal(found[3], expected)


def test_workers_of_a_process_count_one_after_the_other(folder: Path, graph: Dataset) -> None:
    """Messages of two of them to the command would mix."""
    build, plans, executor = partial(build_network, "sage", DIM, 4, hidden=20), list[StreamedPlan](), Copies(2)
    options: dict[str, Any] = {"build": build, "threads": 2, "memory_bytes": 4_500_000, "plans": plans}
    streamed(graph, build(), folder / "work", executor=executor, **options)
    assert plans[0].workers > 1
    assert not executor.overlaps
