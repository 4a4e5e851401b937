"""Propagation of a published graph equals PyG's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SGConv
from torch_geometric.transforms import SIGN

from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from tests.graphs import SHARED_DATA, edges_of
from tests.propagation import propagate_small, table_values

HOPS = 3


@pytest.fixture(scope="module")
def cora(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data is absent")
    destination = tmp_path_factory.mktemp("cora") / "cora"
    return import_graph(SHARED_DATA / "cora", destination, engine=open_engine("threads").engine)


def pyg_data(dataset: Dataset) -> Data:
    table = dataset.feature_table()
    assert table is not None
    x = np.fromfile(table.path, np.float32).reshape(table.num_rows, -1)[:, : dataset.feature_dim]
    return Data(x=torch.from_numpy(x.copy()), edge_index=torch.tensor(edges_of(dataset)).t().contiguous())


@pytest.mark.filterwarnings("ignore:Sparse")  # PyG's own, of how torch checks what it is given
def test_sign_equals_the_transform(cora: Dataset, tmp_path: Path) -> None:
    data = SIGN(HOPS)(pyg_data(cora))
    tables = propagate_small(cora, tmp_path, hops=HOPS).tables
    for hop in range(1, HOPS + 1):
        np.testing.assert_allclose(table_values(tables, hop), data[f"x{hop}"].numpy(), rtol=1e-5, atol=1e-6)


def test_sgc_equals_the_convolution(cora: Dataset, tmp_path: Path) -> None:
    data = pyg_data(cora)
    convolution = SGConv(cora.feature_dim, 1, K=HOPS, bias=False)
    # What the linear layer is given is the propagated table.
    given: list[torch.Tensor] = []
    convolution.lin.register_forward_pre_hook(lambda _module, inputs: given.append(inputs[0]))
    convolution(data.x, data.edge_index)
    tables = propagate_small(cora, tmp_path, operators=("sgc",), hops=HOPS).tables
    np.testing.assert_allclose(table_values(tables, HOPS), given[0].numpy(), rtol=1e-5, atol=1e-6)


def test_a_twentieth_of_the_table_gives_the_same_bytes(cora: Dataset, tmp_path: Path) -> None:
    table_bytes = cora.num_nodes * cora.feature_dim * 4
    found = []
    for share in (20, 1):
        done = propagate_small(cora, tmp_path / f"{share}", memory_bytes=table_bytes // share, hops=1)
        assert done.plan is not None
        assert sum(done.plan.reserved.values()) <= table_bytes // share
        found.append(done.tables.files)
    assert found[0] == found[1]
