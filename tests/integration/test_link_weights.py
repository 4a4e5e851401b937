"""Links on a graph with edge weights: weights go with the edges that are left, in sums and in draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.nn.layers.aggregate import Block
from diskhop.runs.callbacks import Callback
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.links.prepare import prepare_links
from diskhop.runs.start import train
from tests.links import OPTIONS, open_feed, resolved
from tests.runs import import_arrays


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 200, (2, 1500)), axis=1)
    # A weight says which edge it belongs to.
    weights = (edges[0] * 200 + edges[1] + 1).astype(np.float32)
    return import_arrays(
        tmp_path_factory.mktemp("graphs"),
        edge_index=edges,
        edge_weight=weights,
        x=rng.normal(size=(200, 8)).astype(np.float32),
    )


@pytest.mark.parametrize("changes", [{"model": "gcn", "fanout": (-1,)}, {"model": "sage"}, {"weighted": True}], ids=str)
def test_each_message_has_the_weight_of_its_edge(dataset: Dataset, changes: dict[str, Any]) -> None:
    with open_feed(dataset, edge_weights="use", **changes) as feed, feed.train(0) as batches:
        for batch in batches:
            messages = batch.prepared.messages
            targets = np.repeat(np.arange(len(messages.indptr) - 1), np.diff(messages.indptr))
            sources, destinations = messages.node_ids[messages.sources], messages.node_ids[targets]
            found = batch.prepared.weights.edges.numpy()
            np.testing.assert_array_equal(found, (sources * 200 + destinations + 1).astype(np.float32))


@pytest.mark.parametrize("edge_weights", ["use", "ignore"])
def test_no_degree_tells_which_edges_are_left_out(dataset: Dataset, edge_weights: str) -> None:
    """GCN gets the degrees of a graph without these edges, or training could tell edges from negatives by them."""
    config, task = resolved(dataset, model="gcn", fanout=(-1, -1), edge_weights=edge_weights)
    prepared = prepare_links(dataset, config, task, Budget(config.memory_bytes), Callback())
    model = prepared.make_model()
    blocks: list[Block] = []
    model.register_forward_pre_hook(lambda _, inputs: blocks.append(inputs[1]))
    num_left_out = 0
    with prepared.open(model) as feed, feed.train(0) as batches:
        for batch in batches:
            feed.forward(model, batch)
            block, lists = blocks.pop(), np.diff(batch.prepared.messages.indptr)
            assert block.degrees is not None
            np.testing.assert_array_equal(block.degrees[: len(lists)].numpy(), lists)
            assert block.weights is None or block.weights.strengths is None
            num_left_out += int(batch.prepared.left_out.sum())
    assert num_left_out > 0


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_a_weighted_run_is_measured_with_the_weights_that_it_trained_with(
    dataset: Dataset, tmp_path: Path, model: str
) -> None:
    options = {**OPTIONS, "model": model, "fanout": (-1,), "edge_weights": "use", "epochs": 1}
    tested = train(dataset, out=tmp_path / "run", **options).result["test"]
    found = evaluate_run(tmp_path / "run", part="test")["parts"]["test"]
    assert found["auc"] == pytest.approx(tested["auc"], abs=5e-3)
