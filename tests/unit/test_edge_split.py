"""Splits of edges: exact shares, an edge and its opposite together, graphs of messages without what is held out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.link import LinkConfig, parse_shares
from diskhop.config.options import option_fields
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.errors import BudgetError, ConfigError, DestinationError
from diskhop.io.atomic import remove_tree
from diskhop.io.locks import is_at
from diskhop.protocols import NodeRows
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.edge_split.blocks import EdgeBlock, read_edges
from diskhop.sampling.edge_split.rules import TEST, TRAIN, VALID, count_edges, draw_rule, pair_keys
from diskhop.sampling.edge_split.split import EdgeSplit, open_split, plan_split
from tests.runs import folder_bytes, import_arrays, small_graph

SHARES = "0.8,0.1,0.1"
BUDGET_BYTES = 10**9


def graph(folder: Path, edges: NDArray[np.int64], num_nodes: int = 60, *, both: bool = True, **more: Any) -> Dataset:
    """Import a graph with edges (2, n), in both directions if need be."""
    if both:
        edges = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    x = np.ones((num_nodes, 2), np.float32)
    return import_arrays(folder, edge_index=edges, x=x, **more)


def random_edges(num_edges: int = 300, num_nodes: int = 60) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, num_nodes, (2, num_edges))


def split_of(dataset: Dataset, wanted: str = SHARES, number: int = 0) -> EdgeSplit:
    budget = Budget(BUDGET_BYTES)
    return open_split(dataset, plan_split(dataset, wanted, number, budget), None, budget)


def pairs_of(dataset: Dataset) -> set[tuple[int, int]]:
    """All edges, as source and destination."""
    blocks = list(read_edges(EdgeLists.of(dataset.topology)))
    return {(int(u), int(v)) for block in blocks for u, v in zip(block.sources, block.destinations, strict=True)}


def links_of(split: EdgeSplit, part: int) -> set[tuple[int, int]]:
    links = split.links[part]
    return {(int(u), int(v)) for u, v in links.take(np.arange(len(links))).T}


def reversed_pairs(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(v, u) for u, v in pairs}


@pytest.mark.parametrize("both", [True, False], ids=["undirected", "directed"])
def test_held_out_edges_are_in_no_graph_of_messages(tmp_path: Path, both: bool) -> None:
    dataset = graph(tmp_path, random_edges(), both=both)
    split = split_of(dataset)
    train, valid, test = (links_of(split, part) for part in (TRAIN, VALID, TEST))
    assert split.plan.counts.is_undirected is both
    loops = {(u, v) for u, v in pairs_of(dataset) if u == v}
    everything = pairs_of(dataset)
    closed = [part | (reversed_pairs(part) & everything) for part in (train, valid, test)]
    assert set.union(*closed, loops) == everything
    assert sum(map(len, closed)) == len(set.union(*closed))
    # PyG's rule: messages of validation use training edges, those of test also validation edges.
    assert pairs_of(split.train_graph) == closed[0] | loops
    assert pairs_of(split.test_graph) == closed[0] | closed[1] | loops
    assert split.train_graph.num_nodes == dataset.num_nodes
    assert len({dataset.hash, split.train_graph.hash, split.test_graph.hash}) == 3


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_pairs=st.integers(20, 400),
    valid=st.integers(0, 4),
    test=st.integers(0, 4),
    number=st.integers(0, 5),
)
def test_shares_are_exact_to_the_pair(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_pairs: int, valid: int, test: int, number: int
) -> None:
    edges = np.random.default_rng(seed).integers(0, 50, (2, num_pairs))
    dataset = graph(tmp_path_factory.mktemp("g"), edges, 50)
    shares = (1 - (valid + test) / 10, valid / 10, test / 10)
    lists = EdgeLists.of(dataset.topology)
    counts = count_edges(lists, draw_rule(lists, shares, number))
    num_edges = sum(counts.positives) * 2
    held = counts.edges[VALID], counts.edges[VALID] + counts.edges[TEST]
    for found, share in zip(held, (shares[VALID], shares[VALID] + shares[TEST]), strict=True):
        # A pair of two edges is in one part.
        assert 0 <= num_edges * share - found < 2 + 1e-6


def test_an_edge_and_its_opposite_have_one_key() -> None:
    block = EdgeBlock(0, np.array([1, 5, 3]), np.array([5, 1, 3]))
    keys = pair_keys(block, 7)
    assert keys[0] == keys[1] != keys[2]
    assert pair_keys(block, 8)[0] != keys[0]


def test_other_numbers_draw_other_splits_and_the_same_number_the_same_bytes(tmp_path: Path) -> None:
    dataset = graph(tmp_path, random_edges())
    first, second = split_of(dataset), split_of(dataset, number=1)
    assert links_of(first, TEST) != links_of(second, TEST)
    before = folder_bytes(first.path)
    (first.path / "test.bin").write_bytes(b"damaged")
    again = split_of(dataset)
    assert again.path == first.path
    assert folder_bytes(again.path) == before


def test_of_two_that_find_damage_one_writes_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = graph(tmp_path, random_edges())
    path = split_of(dataset).path
    whole = (path / "test.bin").read_bytes()
    (path / "test.bin").write_bytes(b"damaged")
    before = os.open(path, os.O_RDONLY)

    def lock_after_another(work: WorkFolder) -> None:
        """The other has found the same damage, and is done when this one may write."""
        (path / "test.bin").write_bytes(whole)
        lock(work)

    lock = WorkFolder.lock
    monkeypatch.setattr(WorkFolder, "lock", lock_after_another)
    assert len(split_of(dataset).links[TEST])
    assert is_at(before, path), "it is not removed under the other"
    os.close(before)


def test_a_file_in_the_place_of_a_split_is_one_line(tmp_path: Path) -> None:
    dataset = graph(tmp_path, random_edges())
    path = split_of(dataset).path
    remove_tree(path)
    path.write_text("no folder")
    with pytest.raises(DestinationError, match=path.name):
        split_of(dataset)


def test_numbers_are_of_the_datasets_edges_and_ascend(tmp_path: Path) -> None:
    dataset = graph(tmp_path, random_edges())
    split = split_of(dataset)
    numbers = [links.numbers for links in split.links]
    assert all((np.diff(each) > 0).all() for each in numbers)
    sources = np.concatenate([block.sources for block in read_edges(EdgeLists.of(dataset.topology))])
    np.testing.assert_array_equal(split.links[TEST].take(np.arange(3))[0], sources[numbers[TEST][:3]])


def test_weights_go_with_their_edges(tmp_path: Path) -> None:
    edges = np.unique(random_edges(), axis=1)
    weights = np.linspace(0.1, 1, edges.shape[1]).astype(np.float32)
    dataset = graph(tmp_path, edges, both=False, edge_weight=weights)
    of_pair = dict(zip(map(tuple, edges.T.tolist()), weights.tolist(), strict=True))
    kept = split_of(dataset).train_graph
    found = kept.edge_weights()
    assert found is not None
    ends = [
        (int(u), int(v))
        for b in read_edges(EdgeLists.of(kept.topology))
        for u, v in zip(b.sources, b.destinations, strict=True)
    ]
    assert [of_pair[each] for each in ends] == found.tolist()


def test_given_edges_are_held_out_with_their_opposites(tmp_path: Path) -> None:
    dataset = graph(tmp_path, random_edges())
    given_edges = np.array(sorted((u, v) for u, v in pairs_of(dataset) if u < v))
    np.save(tmp_path / "valid.npy", given_edges[:7])
    np.save(tmp_path / "test.npy", given_edges[7:20].T[::-1])
    split = split_of(dataset, str(tmp_path))
    assert links_of(split, VALID) == {(int(u), int(v)) for u, v in given_edges[:7]}
    assert links_of(split, TEST) == {(int(u), int(v)) for u, v in given_edges[7:20]}
    assert not links_of(split, TEST) & (pairs_of(split.test_graph) | reversed_pairs(pairs_of(split.test_graph)))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[1, 2], [58, 59], [2, 3]], "the nodes 58 and 59 have no edge in the graph"),
        ([[1, 2], [2, 3]], r"shape \(2, 2\) may be \(2, edges\) or \(edges, 2\); write one of them twice"),
        ([[5, 5]], "has an edge from node 5 to itself, which is never held out; leave it out"),
        ([[0, 99]], "99"),
        ([0, 1], "needs integer node ids"),
    ],
)
def test_given_edges_that_cannot_be_held_out_are_refused(tmp_path: Path, edges: object, message: str) -> None:
    dataset = graph(tmp_path, np.array([[0, 1, 2, 3, 5], [1, 2, 3, 4, 5]]))
    np.save(tmp_path / "valid.npy", np.array([[0, 1]]))
    np.save(tmp_path / "test.npy", np.array(edges))
    with pytest.raises(ConfigError, match=message):
        split_of(dataset, str(tmp_path))


def test_given_edges_are_in_the_budget(tmp_path: Path) -> None:
    nodes = np.arange(4000)
    dataset = graph(tmp_path, np.stack([nodes[:-1], nodes[1:]]), num_nodes=4000)
    np.save(tmp_path / "valid.npy", np.stack([nodes[:2000], nodes[1:2001]]))
    np.save(tmp_path / "test.npy", np.stack([nodes[2000:3000], nodes[2001:3001]], axis=1).astype(np.uint16))
    budget = Budget(BUDGET_BYTES)
    plan = plan_split(dataset, str(tmp_path), 0, budget)
    assert budget.table()["given split"] >= 48 * 3000
    assert plan.rule.num_bytes == 8 * 3000
    assert plan.counts.positives == (999, 2000, 1000)
    with pytest.raises(BudgetError, match="given split") as refused:
        plan_split(dataset, str(tmp_path), 0, Budget(1_100_000))
    assert refused.value.smallest_bytes is not None
    plan_split(dataset, str(tmp_path), 0, Budget(refused.value.smallest_bytes))


def test_errors_name_the_ids_of_the_source(tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph", order="hot")
    id_map, edges = dataset.id_map(), pairs_of(dataset)
    assert not id_map.ids_are_rows
    missing = next((0, node) for node in range(1, 600) if not {(0, node), (node, 0)} & edges)
    ids = sorted(id_map.ids(NodeRows(np.array(missing))).tolist())
    assert ids != list(missing)
    for name in ("valid", "test"):
        np.save(tmp_path / f"{name}.npy", np.array([ids])[: name == "test"])
    with pytest.raises(ConfigError, match=f"the nodes {ids[0]} and {ids[1]} have no edge in the graph"):
        split_of(dataset, str(tmp_path))


def test_two_edges_are_held_out_as_they_are_given(tmp_path: Path) -> None:
    dataset = graph(tmp_path, np.array([[0, 1, 2, 3], [1, 2, 3, 4]]))
    np.save(tmp_path / "valid.npy", np.array([[0, 1]]))
    np.save(tmp_path / "test.npy", np.array([[1, 2], [2, 3], [2, 3]]))
    assert links_of(split_of(dataset, str(tmp_path)), TEST) == {(1, 2), (2, 3)}


def test_a_missing_file_and_an_edge_in_both_files_are_refused(tmp_path: Path) -> None:
    dataset = graph(tmp_path, random_edges())
    with pytest.raises(ConfigError, match=r"valid.npy: is missing; --link-split FOLDER needs valid.npy and test.npy"):
        split_of(dataset, str(tmp_path))
    edge = np.array(next(iter((u, v) for u, v in sorted(pairs_of(dataset)) if u != v)))[None]
    for name in ("valid", "test"):
        np.save(tmp_path / f"{name}.npy", edge)
    with pytest.raises(ConfigError, match="share 1 edges"):
        split_of(dataset, str(tmp_path))


def test_a_part_without_edges_is_refused(tmp_path: Path) -> None:
    dataset = graph(tmp_path, np.array([[0, 1, 2], [1, 2, 3]]))
    with pytest.raises(ConfigError, match=r"--link-split 0.9,0.05,0.05 leaves no edges for valid"):
        split_of(dataset, "0.9,0.05,0.05")
    assert not list(dataset.path.glob("derived/*"))


def test_shares_keep_all_their_digits() -> None:
    parse = option_fields(LinkConfig)["link_split"].parse
    assert parse is not None
    text = "0.79999999,0.10000000,.10000001"
    parsed = parse(text)
    assert parsed == "0.79999999,0.1,0.10000001"
    assert parse_shares(parsed) == parse_shares(text)
    assert parse_shares("0.80001,0.1,0.1") is None
    assert parse("1,0,0") == "1,0,0"


@pytest.mark.parametrize("text", [".8,.1,.2", "1", ".5,.5", "0,.5,.5", "1.2,-.1,-.1", "nan,.1,.1"])
def test_shares_must_sum_to_1(text: str) -> None:
    assert parse_shares(text) is None
