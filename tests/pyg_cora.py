"""A plugin of pytest that gives PyTorch Geometric's tests the graph Cora from ../shared/data, without a download.

It writes the files of the Planetoid repository where PyG would put its download: in the file system in memory that the
tests keep their data sets in. PyG reads them with its own code. Without ../shared/data, the tests download as ever.
"""

from __future__ import annotations

import pickle
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.graphs import SHARED_DATA

# The folder of PyG's fixture get_dataset, and of Planetoid(root, 'Cora') in it.
_FOLDER = "memory://pyg_test_datasets/Planetoid/Cora/Cora/raw"


def pytest_configure(config: pytest.Config) -> None:
    """Write the files before a test asks for them."""
    path = SHARED_DATA / "cora" / "data.npz"
    if path.exists():
        for name, content in _files(dict(np.load(path))).items():
            with fsspec.open(f"{_FOLDER}/ind.cora.{name}", "wb") as file:
                file.write(content)


def _files(arrays: dict[str, Any]) -> dict[str, bytes]:
    """Return the content of each file: test nodes are the last ones, training nodes the first."""
    num_train, first_test = len(arrays["train_idx"]), len(arrays["y"]) - len(arrays["test_idx"])
    x = csr_matrix((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), arrays["x_shape"])
    y = np.eye(int(arrays["y"].max()) + 1, dtype=np.int32)[arrays["y"]]
    graph: dict[int, list[int]] = {node: [] for node in range(len(y))}
    for source, destination in arrays["edge_index"].T.tolist():
        graph[source].append(destination)
    values = {"x": x[:num_train], "tx": x[first_test:], "allx": x[:first_test], "graph": graph}
    values |= {"y": y[:num_train], "ty": y[first_test:], "ally": y[:first_test]}
    ids = "".join(f"{node}\n" for node in arrays["test_idx"].tolist())
    return {name: pickle.dumps(value) for name, value in values.items()} | {"test.index": ids.encode()}
