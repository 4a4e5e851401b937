"""GraphSAINT's loaders: PyG's fields and arguments, from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import list_derived
from diskhop.errors import ConfigError
from diskhop.sampling.saint import saint_spec

NUM_NODES = 300
RNG = np.random.default_rng(0)
GRAPH = Data(
    x=torch.from_numpy(RNG.random((NUM_NODES, 6), np.float32)),
    y=torch.from_numpy(RNG.integers(0, 3, NUM_NODES)),
    train_mask=torch.from_numpy(RNG.random(NUM_NODES) < 0.3),
    edge_index=torch.from_numpy(RNG.integers(0, NUM_NODES, (2, 1500))),
    edge_attr=torch.from_numpy(RNG.random((1500, 2), np.float32)),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return diskhop.from_pyg(GRAPH, tmp_path_factory.mktemp("graphs") / "random")


def open_loader(kind: str, dataset: Dataset, **options: Any) -> Any:
    given = {"num_steps": 4, "sample_coverage": 5, "memory": "200MB", "batch_size": 30, **options}
    if kind == "RandomWalk":
        given.setdefault("walk_length", 2)
    return getattr(diskhop, f"GraphSAINT{kind}Sampler")(dataset, **given)


@pytest.mark.parametrize("kind", ["Node", "Edge", "RandomWalk"])
@pytest.mark.parametrize("store", ["memory", "direct"])
def test_batches_have_the_attributes_of_their_nodes_and_edges(dataset: Dataset, kind: str, store: str) -> None:
    with open_loader(kind, dataset, store=store) as loader:
        assert len(loader) == len(loader.dataset) == 4
        for batch in loader:
            assert batch.num_nodes == len(batch.n_id) == len(batch.node_norm)
            assert len(batch.edge_norm) == batch.num_edges == len(batch.edge_attr)
            assert torch.equal(batch.x, GRAPH.x[batch.n_id])
            assert torch.equal(batch.train_mask, GRAPH.train_mask[batch.n_id])
            assert torch.equal(batch.n_id[batch.edge_index], GRAPH.edge_index[:, batch.e_id])
            assert torch.equal(batch.edge_attr, GRAPH.edge_attr[batch.e_id])
            expected = GRAPH.subgraph(torch.sort(batch.n_id).values)
            assert batch.num_edges == expected.num_edges
            assert batch.node_norm.dtype == batch.edge_norm.dtype == torch.float32
            assert batch.validate()


def test_clean_keeps_norms_in_use(dataset: Dataset, tmp_path: Path) -> None:
    with open_loader("Node", dataset, save_dir=tmp_path) as loader:
        assert [each.kept_because for each in list_derived(tmp_path)] == ["in use"]
    assert [each.kept_because for each in list_derived(tmp_path)] == [None]
    assert len(loader) == 4, "closed, but there"


def test_passes_differ_and_repeat_by_the_seed(dataset: Dataset) -> None:
    def nodes_of(seed: int) -> list[list[list[int]]]:
        with open_loader("RandomWalk", dataset, seed=seed, sample_coverage=0) as loader:
            return [[batch.n_id.tolist() for batch in loader] for _ in range(2)]

    first, second = nodes_of(1)
    assert first != second
    assert nodes_of(1) == [first, second]
    assert nodes_of(2) != [first, second]


def test_norms_are_kept_where_the_user_says(dataset: Dataset, tmp_path: Path) -> None:
    def norms() -> torch.Tensor:
        with open_loader("Node", dataset, save_dir=tmp_path) as loader:
            found: torch.Tensor = next(iter(loader)).node_norm
            return found

    made = norms()
    (folder,) = tmp_path.iterdir()
    modified = folder.stat().st_mtime_ns
    assert torch.equal(norms(), made)
    assert folder.stat().st_mtime_ns == modified
    with open_loader("Node", dataset, sample_coverage=0) as loader:
        assert "node_norm" not in next(iter(loader))


def test_a_pass_resumes(dataset: Dataset) -> None:
    with open_loader("Edge", dataset, sample_coverage=0) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = [batch.n_id.tolist() for batch in batches]
    with open_loader("Edge", dataset, sample_coverage=0) as loader:
        loader.load_state_dict(state)
        assert [batch.n_id.tolist() for batch in loader] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"walk_length": 0}, "walk_length must be at least 1"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"sampler": [0, 1]}, "has no order of its own"),
        ({"colour": 1}, "has no argument 'colour'"),
    ],
)
def test_bad_arguments_are_refused(dataset: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_loader("RandomWalk", dataset, **options)


def test_neighbor_loader_refuses_it(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="the sampler 'saint-node' arranges batches of its own"):
        diskhop.NeighborLoader(dataset, saint_spec("saint-node", 3))
