"""PyTorch Geometric's own tests of loaders, on diskhop's loaders: every test that applies passes, or a reason is here.

DISKHOP_PYG_CHECKOUT names a folder that holds the test/ folder of a PyG release near the installed one, as in
`git clone --depth 1 --branch 2.8.0 https://github.com/pyg-team/pytorch_geometric`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric.typing import WITH_TORCH_SPARSE

from tests.graphs import SHARED_DATA
from tests.pyg_plugin import LOG

CHECKOUT = os.environ.get("DISKHOP_PYG_CHECKOUT", "")
FILES = [
    "neighbor_loader",
    "link_neighbor_loader",
    "hgt_loader",
    "graph_saint",
    "cluster",
    "shadow",
    "imbalanced_sampler",
    "zip_loader",
]
# Tests that cannot pass, by name, with the reason.
REASONS = {
    r"pyg_lib_and_torch_sparse": "compares operators of two packages of PyG; uses no loader",
    r"shadow_k_hop_sampler": "has the graph as a SparseTensor, and passes where torch-sparse is installed",
    r"in_memory_dataset_imbalanced_sampler": "uses no loader of one large graph",
    r"hgt_loader$": "makes a SparseTensor, and passes where torch-sparse is installed",
}


@pytest.mark.skipif(not CHECKOUT, reason="DISKHOP_PYG_CHECKOUT names no checkout of PyG's tests")
def test_pygs_tests_of_loaders_pass(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # PyG's own settings leave out tests that read a data set
    root = Path(__file__).parents[2]
    tests = [str(Path(CHECKOUT, "test", "loader", f"test_{name}.py").resolve()) for name in FILES]
    plugins = [f"-p{name}" for name in ("tests.pyg_plugin", "tests.pyg_cora", "no:cacheprovider")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *tests]
    command += ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(Path(CHECKOUT).resolve())]
    search_path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, LOG: str(log), "PYTHONPATH": search_path, "FULL_TEST": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert log.exists(), done.stdout + done.stderr
    results = [json.loads(line) for line in log.read_text().splitlines()]
    failed = [
        f"{each['file']}::{each['name']}: {each['reason']}"
        for each in results
        if not each["passed"] and not each["skipped"] and not any(re.search(key, each["name"]) for key in REASONS)
    ]
    assert not failed, "\n".join(failed)
    num_on_cora = 3 * (SHARED_DATA / "cora").exists()
    num_sparse = 2 * WITH_TORCH_SPARSE
    assert sum(each["passed"] for each in results) >= 86 + num_on_cora + num_sparse
