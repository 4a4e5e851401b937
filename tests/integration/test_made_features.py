"""Features that stand in for those of a graph without any, in the loader and in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import diskhop
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from tests.runs import import_arrays, random_arrays


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    arrays = random_arrays()
    del arrays["x"]
    return import_arrays(tmp_path_factory.mktemp("bare"), **arrays)


def batches_of(dataset: Dataset, **options: Any) -> list[Data]:
    arguments: dict[str, Any] = {"batch_size": 64, "memory": "100MB", "shuffle": True, **options}
    with diskhop.NeighborLoader(dataset, [3, 2], **arguments) as loader:
        return list(loader)


def test_a_batch_of_a_graph_without_features_has_no_x_as_pygs(bare: Dataset) -> None:
    for options in ({}, {"features": "none"}, {"out_dtype": torch.float16}):
        for batch in batches_of(bare, **options):
            assert batch.x is None
            assert "x" not in batch
            assert len(batch.y) == len(batch.n_id) == batch.num_nodes


def test_a_batch_without_x_and_y_knows_its_number_of_nodes(tmp_path: Path) -> None:
    """Nodes without edges among the last ones are counted too."""
    dataset = import_arrays(tmp_path, edge_index=np.array([[0], [1]]), original_ids=np.arange(5))
    for batch in batches_of(dataset):
        assert batch.num_nodes == len(batch.n_id) == 5


def test_degrees_are_those_of_the_graph(bare: Dataset) -> None:
    indptr = np.fromfile(bare.topology.indptr_path, np.int64)
    for batch in batches_of(bare, features="degree"):
        expected = np.log1p(np.diff(indptr)[batch.n_id.numpy()])
        np.testing.assert_allclose(batch.x.numpy(), np.stack([np.ones_like(expected), expected], axis=1), rtol=1e-6)


def test_onehot_has_a_column_per_node(bare: Dataset) -> None:
    for batch in batches_of(bare, features="onehot"):
        assert torch.equal(batch.x, torch.eye(bare.num_nodes)[batch.n_id])


def test_random_values_are_those_of_the_node_and_the_seed(bare: Dataset) -> None:
    def values_of(seed: int) -> torch.Tensor:
        found = torch.full((bare.num_nodes, 64), torch.nan)
        for batch in batches_of(bare, features="random", seed=seed):
            before = found[batch.n_id]
            assert (before.isnan() | (before == batch.x)).all()
            found[batch.n_id] = batch.x
        return found

    values = values_of(0)
    assert torch.equal(values, values_of(0))
    assert not torch.equal(values, values_of(1))
    assert abs(values.mean()) < 0.05
    assert abs(values.var() - 1) < 0.05
    assert len(np.unique(values.numpy())) > 0.99 * values.numel()


def test_what_cannot_stand_in_is_refused(bare: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown kind of features 'ones'"):
        batches_of(bare, features="ones")
    with pytest.raises(ConfigError, match=r"has features .4 columns., and features 'degree' stand in for missing ones"):
        batches_of(import_arrays(tmp_path, **random_arrays()), features="degree")
    edges = np.random.default_rng(0).integers(0, 5000, (2, 9000))
    large = import_arrays(tmp_path, "large", edge_index=edges, y=np.arange(5000) % 2)
    with pytest.raises(ConfigError, match="features 'onehot' are for at most 4,096; use --features random"):
        batches_of(large, features="onehot")
    with pytest.raises(ConfigError, match="onehot"):
        diskhop.train(large, features="onehot", memory="100MB")


@pytest.mark.parametrize(("kind", "columns"), [(None, 2), ("degree", 2), ("onehot", 200), ("random", 64)])
def test_training_takes_them(bare: Dataset, tmp_path: Path, kind: str | None, columns: int) -> None:
    options: dict[str, Any] = {} if kind is None else {"features": kind}
    done = diskhop.train(bare, out=tmp_path / "run", epochs=1, memory="100MB", **options)
    assert isinstance(done.config, SampledConfig)
    assert done.config.features == (kind or "degree")
    assert any(columns in tensor.shape[1:] for tensor in done.model.state_dict().values())
    resumed = diskhop.train(out=tmp_path / "run", resume=True, epochs=1)
    assert resumed.config == done.config


def test_training_on_a_graph_with_features_refuses_others(tmp_path: Path) -> None:
    dataset = import_arrays(tmp_path, **random_arrays())
    with pytest.raises(ConfigError, match=r"--features degree is for graphs without features, .* remove --features"):
        diskhop.train(dataset, features="degree", memory="100MB")
