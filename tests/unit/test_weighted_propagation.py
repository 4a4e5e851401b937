"""Hop tables of weighted graphs equal products in float64, whatever the signs of the weights and the memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import diskhop
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.errors import ConfigError
from diskhop.hops.make import weighted_lists
from diskhop.hops.make.weighted_lists import looped_lists, sum_weights, write_looped_lists
from diskhop.hops.operators import parse_operator
from diskhop.hops.spec import PropagationSpec
from diskhop.runtime.tasks import TaskTools
from tests.examples import examples
from tests.graphs import memory_folder, threads_engine
from tests.propagation import propagate_small, table_values
from tests.runs import import_arrays

NUM_NODES, HOPS = 3000, 3
OPERATORS = ["sgc", "sign", "row", "ppr:alpha=0.2", "heat:t=2"]


def random_graph(num_nodes: int, num_edges: int, seed: int, *, is_signed: bool, dim: int = 9) -> dict[str, Any]:
    """Edges with repeats, and with each node's edge to itself at most once."""
    generator = np.random.default_rng(seed)
    edges = generator.integers(0, num_nodes, (2, num_edges))
    is_loop = edges[0] == edges[1]
    loops = np.unique(edges[0][is_loop])
    edges = np.concatenate([edges[:, ~is_loop], np.stack([loops, loops])], axis=1)
    weights = generator.uniform(0.1, 2, (edges.shape[1],))
    if is_signed:
        weights *= generator.choice([-1, 1], len(weights))
    return {
        "edge_index": edges,
        "edge_weight": weights.astype(np.float32),
        "x": generator.normal(size=(num_nodes, dim)).astype(np.float32),
        "y": np.arange(num_nodes) % 3,
    }


@pytest.fixture(scope="module", params=[False, True], ids=["positive", "signed"])
def arrays(request: pytest.FixtureRequest) -> dict[str, Any]:
    return random_graph(NUM_NODES, 30_000, 3, is_signed=request.param, dim=400)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> Dataset:
    return import_arrays(tmp_path_factory.mktemp("weighted"), **arrays)


def matrix_of(arrays: dict[str, Any], kind: str) -> scipy.sparse.csr_array:
    """The matrix of an operator, with the absolute weights of a node's list as its degree."""
    (sources, targets), weights = arrays["edge_index"], arrays["edge_weight"].astype(np.float64)
    num_nodes = len(arrays["x"])
    if kind == "sgc":
        missing = np.setdiff1d(np.arange(num_nodes), sources[sources == targets])
        sources, targets = np.concatenate([sources, missing]), np.concatenate([targets, missing])
        weights = np.concatenate([weights, np.ones(len(missing))])
    adjacency = scipy.sparse.csr_array((weights, (targets, sources)), shape=(num_nodes, num_nodes))
    degrees = np.bincount(targets, np.abs(weights), minlength=num_nodes)
    inverse = np.divide(1, degrees, out=np.zeros(num_nodes), where=degrees > 0)
    if kind == "row":
        return scipy.sparse.diags_array(inverse) @ adjacency
    scale = scipy.sparse.diags_array(np.sqrt(inverse))
    return scale @ adjacency @ scale


def expected_tables(arrays: dict[str, Any], operator: str) -> list[NDArray[np.float64]]:
    parsed = parse_operator(operator)
    matrix, x = matrix_of(arrays, parsed.kind), arrays["x"].astype(np.float64)
    powers = [x]
    for _ in range(HOPS):
        powers.append(matrix @ powers[-1])
    if parsed.kind == "ppr":
        alpha, ranks = parsed.parameters["alpha"], [x]
        for _ in range(HOPS):
            ranks.append((1 - alpha) * (matrix @ ranks[-1]) + alpha * x)
        return ranks[1:]
    if parsed.kind == "heat":
        t = parsed.parameters["t"]
        factors = np.exp(-t) * np.cumprod([1.0, *(t / np.arange(1, HOPS + 1))])
        terms = np.cumsum([factor * power for factor, power in zip(factors, powers, strict=True)], axis=0)
        return list(terms[1:])
    return powers[1:]


@pytest.mark.fast(4)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("memory_bytes", [100_000_000, 3_000_000])
def test_tables_equal_scipy_with_weights(
    dataset: Dataset, arrays: dict[str, Any], tmp_path: Path, operator: str, memory_bytes: int
) -> None:
    made = propagate_small(dataset, tmp_path, operators=(operator,), hops=HOPS, memory_bytes=memory_bytes, threads=2)
    assert made.plan is not None
    assert (made.plan.num_blocks > 1) == (memory_bytes < 10_000_000)
    for number, expected in enumerate(expected_tables(arrays, operator), start=1):
        np.testing.assert_allclose(table_values(made.tables, number), expected, rtol=1e-5, atol=1e-5)


def test_sgc_is_pygs_gcn_norm(dataset: Dataset, arrays: dict[str, Any], tmp_path: Path) -> None:
    if (arrays["edge_weight"] < 0).any():
        pytest.skip("PyG's degrees of signed weights are differences, whose roots are not numbers")
    edges, weights = gcn_norm(
        torch.from_numpy(arrays["edge_index"]), torch.from_numpy(arrays["edge_weight"]).double(), NUM_NODES
    )
    ends = edges.numpy()
    matrix = scipy.sparse.csr_array((weights.numpy(), (ends[1], ends[0])), shape=(NUM_NODES, NUM_NODES))
    expected = matrix @ arrays["x"].astype(np.float64)
    tables = propagate_small(dataset, tmp_path, operators=("sgc",), hops=1).tables
    np.testing.assert_allclose(table_values(tables, 1), expected, rtol=1e-5, atol=1e-5)


def test_weights_are_part_of_the_tables_name(dataset: Dataset, tmp_path: Path) -> None:
    used = propagate_small(dataset, tmp_path, hops=1)
    again = propagate_small(dataset, tmp_path, hops=1, edge_weights="use")
    ignored = propagate_small(dataset, tmp_path, hops=1, edge_weights="ignore")
    assert again.plan is None, "use is the default where there are weights"
    assert again.tables.path == used.tables.path != ignored.tables.path
    assert used.tables.operators[0].parameters["edge_weights"] == "use"
    assert not np.allclose(table_values(used.tables, 1), table_values(ignored.tables, 1))
    both = propagate_small(dataset, tmp_path, hops=1, direction="both")
    assert "edge_weights" not in both.tables.operators[0].parameters


def test_weights_that_cannot_be_used_are_one_line(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--edge-weights use needs --direction in, got both"):
        propagate_small(dataset, tmp_path, hops=1, direction="both", edge_weights="use")
    arrays = random_graph(20, 50, 1, is_signed=False)
    del arrays["edge_weight"]
    with pytest.raises(ConfigError, match="has no edge weights, which --edge-weights use needs"):
        propagate_small(import_arrays(tmp_path, **arrays), tmp_path, hops=1, edge_weights="use")


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 90),
    at_once=st.sampled_from([(1, 1), (3, 2), (7, 5), (1000, 1000)]),
)
def test_every_node_has_one_edge_to_itself(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_nodes: int, num_edges: int, at_once: tuple[int, int]
) -> None:
    """However the lists are cut into pieces."""
    generator = np.random.default_rng(seed)
    edges = generator.integers(0, num_nodes, (2, num_edges))
    edges[:, : num_edges // 3] = edges[0, : num_edges // 3]
    weights = generator.normal(size=num_edges).astype(np.float32)
    with memory_folder(tmp_path_factory.getbasetemp()) as folder, pytest.MonkeyPatch.context() as patch:
        arrays: dict[str, Any] = {"edge_index": edges, "edge_weight": weights, "num_nodes": np.int64(num_nodes)}
        dataset = import_arrays(folder, **arrays)
        patch.setattr(weighted_lists, "_EDGES_AT_ONCE", at_once[0])
        patch.setattr(weighted_lists, "_NODES_AT_ONCE", at_once[1])
        stored = dataset.edge_weights()
        assert stored is not None
        write_looped_lists(dataset.topology, stored, folder / "lists", TaskTools(threads_engine()))
        lists = looped_lists(dataset.topology, folder / "lists")
        sums = sum_weights(lists, 0, num_nodes)
        indptr = np.fromfile(lists.indptr_path, "<i8", num_nodes + 1)
        indices = np.fromfile(lists.indices_path, "<u4", lists.num_edges, offset=lists.indices_offset)
        assert lists.weights_path is not None
        found = np.fromfile(lists.weights_path, "<f4", lists.num_edges, offset=lists.weights_offset)
        own_indptr = map_array(dataset.topology.indptr_path, np.int64, num_nodes + 1)
        own = map_array(dataset.topology.indices_path, dataset.topology.index_dtype, num_edges)
        assert indptr[0] == 0
        assert indptr[-1] == lists.num_edges
        for node in range(num_nodes):
            part = slice(own_indptr[node], own_indptr[node + 1])
            neighbors, given_weights = own[part], stored[part]
            loops = given_weights[neighbors == node]
            expected = [*given_weights[neighbors != node].tolist(), float(loops[-1]) if len(loops) else 1.0]
            got = slice(indptr[node], indptr[node + 1])
            assert indices[got].tolist() == [*neighbors[neighbors != node].tolist(), node]
            assert found[got].tolist() == expected
            assert sums[node] == pytest.approx(np.abs(expected).sum(), rel=1e-6)


def test_the_command_says_whether_weights_are_used(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, said in (
        ([], "use: the graph has some"),
        (["--direction", "both"], "ignore: they are those of --direction in"),
        (["--edge-weights", "ignore"], "ignore: requested"),
    ):
        assert run(["propagate", str(dataset.path), "--hops", "1", "--scratch", str(tmp_path), *options]) == 0
        assert re.search(rf"^edge weights +{said}", capsys.readouterr().out, re.MULTILINE)


def test_python_takes_the_option(dataset: Dataset, tmp_path: Path) -> None:
    spec = diskhop.PropagationSpec(hops=1, edge_weights="ignore")
    assert not spec.uses_weights(dataset)
    assert PropagationSpec(hops=1).uses_weights(dataset)
