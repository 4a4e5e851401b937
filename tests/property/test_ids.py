"""Any id that a user gets names the same node or edge in the source, whatever the source, the order and the ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits
from tests.examples import examples
from tests.graphs import memory_folder
from tests.sources import SOURCES, KnownGraph, import_known

MEMORY = "64MB"
LETTERS = "abcé"


@st.composite
def graphs(draw: st.DrawFn, kind: str) -> KnownGraph:
    """A graph that a kind of source can have, with ids of any kind that it can have."""
    num_nodes = draw(st.integers(2, 9))
    id_kind = draw(st.sampled_from(SOURCES[kind].id_kinds))
    if id_kind == "plain":
        ids: list[Any] = list(range(num_nodes))
    elif id_kind == "names":
        names = st.text(LETTERS, min_size=1, max_size=3)
        ids = draw(st.lists(names, min_size=num_nodes, max_size=num_nodes, unique=True))
    else:
        most = draw(st.sampled_from([12, 2**20, 2**33, 2**63 - 1]))
        ids = draw(st.lists(st.integers(0, most), min_size=num_nodes, max_size=num_nodes, unique=True))
    ends = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=20))
    if not SOURCES[kind].has_nodes:  # every node has an edge, since nothing else tells of it
        edges += [(node, (node + 1) % num_nodes) for node in range(num_nodes)]
        edges = draw(st.permutations(edges))
    if id_kind == "ascending" or not SOURCES[kind].has_nodes:
        ids.sort(key=lambda each: each.encode() if isinstance(each, str) else each)
    train = draw(st.lists(ends, min_size=1, unique=True))
    return KnownGraph(ids=ids, edges=np.array(edges, np.int64), train=np.array(sorted(train)))


def named(dataset: Dataset, ids: Any) -> list[Any]:
    """The ids as the source writes them: names, if it has names."""
    names = dataset.names("nodes")
    numbers = [int(each) for each in ids]
    return numbers if names is None else [names[number] for number in numbers]


def passed(dataset: Dataset, nodes: Any) -> list[Any]:
    """The batches of a pass that takes all neighbours."""
    with diskhop.NeighborLoader(dataset, [-1], nodes, batch_size=3, memory=MEMORY, store="memory") as loader:
        return list(loader)


def check_nodes(graph: KnownGraph, dataset: Dataset, has_nodes: bool) -> None:
    """Every way to name the training nodes means the same nodes, in the order given, with their features and labels."""
    every = dataset.node_ids()
    assert named(dataset, every) == graph.ids
    wanted = [graph.ids[position] for position in graph.train]
    ways: list[Any] = [graph.mask, torch.from_numpy(graph.mask), every[graph.train], every[graph.train].tolist()]
    if dataset.names("nodes") is not None:
        ways += [wanted, np.array(wanted)]
    if has_nodes:
        split = dataset.split("train")
        assert split is not None
        assert named(dataset, split) == wanted
        ways += ["train", split]
        labels = dataset.labels
        assert labels is not None
        np.testing.assert_array_equal(labels, graph.labels)
    for nodes in ways:
        batches = passed(dataset, nodes)
        seeds = [seed for batch in batches for seed in named(dataset, batch.n_id[: batch.batch_size])]
        assert seeds == wanted
        is_mask = getattr(nodes, "dtype", None) in (np.bool_, torch.bool)
        input_ids = np.concatenate([batch.input_id for batch in batches])
        np.testing.assert_array_equal(input_ids, graph.train if is_mask else np.arange(len(wanted)))
        for batch in batches if has_nodes else []:
            positions = batch.x[:, 0].numpy().astype(np.int64)
            assert named(dataset, batch.n_id) == [graph.ids[position] for position in positions]
            np.testing.assert_array_equal(batch.y, graph.labels[positions])


def check_edges(graph: KnownGraph, dataset: Dataset, options: ImportOptions) -> None:
    """`e_id` leads to the edges of the source, each edge that was not dropped once for each of its directions."""
    found: list[tuple[int, Any, Any]] = []
    for batch in passed(dataset, None):
        ids = named(dataset, batch.n_id)
        ends = batch.edge_index.numpy()
        if options.edge_ids == "drop":
            assert "e_id" not in batch
            return
        found += [(int(number), ids[source], ids[node]) for number, source, node in zip(batch.e_id, *ends, strict=True)]
    expected = set()
    for number, (source, node) in enumerate(graph.named_edges):
        if not (options.self_loops == "drop" and source == node):
            expected.add((number, source, node))
            if options.undirected:
                expected.add((number, node, source))
    assert len(set(found)) == len(found)
    assert set(found) <= expected
    if options.duplicates == "drop":
        assert {edge[1:] for edge in found} == {edge[1:] for edge in expected}
    else:
        assert set(found) == expected


def check_hops(graph: KnownGraph, dataset: Dataset, scratch: Path) -> None:
    """HopLoader takes and gives the same ids and masks, also from tables of some rows alone."""
    ids = dataset.node_ids()[graph.train]
    np.save(scratch.parent / "ids.npy", ids)
    for rows, ways in (("all", [graph.mask, ids]), (str(scratch.parent / "ids.npy"), [graph.mask, ids, None])):
        spec = diskhop.PropagationSpec(hops=1, rows=rows)
        tables = diskhop.propagate(dataset, spec, memory=MEMORY, scratch=scratch).tables
        for nodes in ways:
            seen: list[Any] = []
            with diskhop.HopLoader(tables, nodes, batch_size=2, memory=MEMORY) as loader:
                for batch in loader:
                    positions = batch.x[0, :, 0].numpy().astype(np.int64)
                    assert named(dataset, batch.nodes) == [graph.ids[position] for position in positions]
                    seen += named(dataset, batch.nodes)
            assert sorted(seen) == sorted(graph.ids[position] for position in graph.train)


@pytest.mark.fast(4)
@pytest.mark.parametrize("kind", SOURCES)
@examples(6)
@given(data=st.data())
def test_ids_name_the_same_nodes_and_edges_as_in_the_source(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    graph = data.draw(graphs(kind))
    options = ImportOptions(
        order=data.draw(st.sampled_from([None, "hot"])),
        undirected=data.draw(st.sampled_from([None, True])),
        duplicates=data.draw(st.sampled_from([None, "drop"])),
        self_loops=data.draw(st.sampled_from([None, "drop"])),
        edge_ids=data.draw(st.sampled_from([None, "keep", "drop"])),
    )
    limits = ImportLimits(pairs_slice_bytes=data.draw(st.sampled_from([16, 4 << 20])), rows_slice_bytes=16)
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        dataset = import_known(graph, kind, folder, options, limits)
        check_nodes(graph, dataset, SOURCES[kind].has_nodes)
        check_edges(graph, dataset, options)
        if SOURCES[kind].has_nodes:
            check_hops(graph, dataset, folder / "scratch")
