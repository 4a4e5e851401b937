"""An update and a compaction end with the bytes of an import of the whole, whatever changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskhop.dataset.verify import verify
from diskhop.importing.options import ImportOptions
from diskhop.updating.lists import ListMerge, SortedPairs
from tests.graphs import folder_bytes, memory_folder
from tests.updates import Change, Tables, apply, compact, draw_edges, draw_nodes, draw_tables, import_tables, update


def check_equal(folder: Path, tables: Tables, changes: list[Change], options: ImportOptions) -> None:
    """Update step by step, and compare with imports of the wholes."""
    graph = import_tables(tables.write(folder / "old"), folder / "graph", options).path
    for number, change in enumerate(changes):
        updated = update(graph, change.write(folder / f"delta-{number}"), options)
        tables = apply(tables, change, undirected=bool(options.undirected))
        assert updated.manifest.generation == 2 + number
        assert verify(graph) == []
    whole = import_tables(tables.write(folder / "whole"), folder / "expected", options)
    if options.order is None:
        expected = folder_bytes(whole.path)
        del expected["manifest.json"]
        assert folder_bytes(updated.content).items() >= expected.items(), "files are equal before compaction, too"
    compact(graph)
    assert folder_bytes(graph) == folder_bytes(whole.path)


def draw_change(generator: np.random.Generator, tables: Tables, sizes: tuple[int, int, int, int], new: Any) -> Change:
    """Draw a delta. sizes: edges to add, pairs to remove, nodes to change, nodes to add. new: ids to draw from."""
    num_added, num_removed, num_changed, num_new = sizes
    ids = tables.nodes["id"]
    added_ids = new[:num_new]
    # The first three nodes keep a label and a part each, so that none is without nodes.
    changed = generator.choice(ids[3:], min(num_changed, max(0, len(ids) - 3)), replace=False)
    nodes = draw_nodes(generator, np.concatenate([changed, added_ids]).astype(ids.dtype))
    order = generator.permutation(len(nodes["id"]))
    nodes = {key: values[order] for key, values in nodes.items()}
    pairs = list(zip(tables.edges["source"].tolist(), tables.edges["target"].tolist(), strict=True))
    removed = list(dict.fromkeys(pairs[place] for place in generator.integers(0, len(pairs), num_removed)))
    added = draw_edges(generator, np.concatenate([ids, added_ids]).astype(ids.dtype), num_added)
    return Change(added, removed, nodes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tables, list[Change], ImportOptions]:
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["plain", "sparse", "names"]))
    num_nodes = draw(st.integers(4, 12))
    pool = np.arange(40) if kind == "plain" else generator.permutation(1000)[:40]
    if kind == "names":
        pool = np.array([f"n\\{number}\n" if number % 5 == 0 else f"n{number}" for number in pool])
    tables = draw_tables(generator, pool[:num_nodes], draw(st.integers(1, 40)))
    order: Literal["hot"] | None = draw(st.sampled_from([None, "hot"]))
    options = ImportOptions(
        undirected=draw(st.sampled_from([None, True])),
        self_loops=draw(st.sampled_from([None, "drop"])),
        order=order,
        weight=draw(st.sampled_from([None, "amount"])),
        time=draw(st.sampled_from([None, "when"])),
        edge_attributes=draw(st.sampled_from([None, ("kind",)])),
        edge_ids=draw(st.sampled_from([None, "drop"])),
        dtype=draw(st.sampled_from([None, "int8", "float16"])),
    )
    if options.self_loops == "drop":
        keep = tables.edges["source"] != tables.edges["target"]
        tables.edges = {key: values[keep] for key, values in tables.edges.items()}
        if not len(tables.edges["source"]):
            tables.edges = draw_edges(generator, tables.nodes["id"][:1], 1)
            tables.edges["target"] = tables.nodes["id"][1:2]
    changes, now = [], tables
    for _ in range(draw(st.integers(1, 2))):
        sizes = (draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        if sum(sizes) == 0:
            sizes = (1, 0, 0, 0)
        change = draw_change(generator, now, sizes, pool[len(now.nodes["id"]) :])
        if not len(change.nodes["id"]) and not len(change.added["source"]) and not change.removed:
            change.added = draw_edges(generator, now.nodes["id"], 1)
        then = apply(now, change, undirected=bool(options.undirected))
        if not len(then.edges["source"]):
            change.removed, change.added = [], draw_edges(generator, now.nodes["id"], 2)
            then = apply(now, change)
        changes.append(change)
        now = then
    return tables, changes, options


@settings(max_examples=1, deadline=None)
@given(case=cases())
def test_an_update_is_an_import_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[Tables, list[Change], ImportOptions]
) -> None:
    with memory_folder(tmp_path_factory.mktemp("update")) as folder:
        check_equal(folder, *case)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_many_updates_are_imports_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[Tables, list[Change], ImportOptions]
) -> None:
    with memory_folder(tmp_path_factory.mktemp("update")) as folder:
        check_equal(folder, *case)


def in_lists(num_nodes: int, sources: Any, destinations: Any) -> tuple[Any, Any]:
    order = np.lexsort((sources, destinations))
    starts = np.concatenate([[0], np.cumsum(np.bincount(destinations, minlength=num_nodes))])
    return starts, np.asarray(sources)[order].astype(np.uint32)


def stored(pairs: list[tuple[int, int]], ways: bool, loops: bool, repeats: bool) -> Any:
    """The edges that an import stores. ways: in both directions; loops, repeats: whether they are dropped."""
    kept = [(a, b) for a, b in pairs if a != b or not loops]
    both = [each for a, b in kept for each in ([(a, b), (b, a)] if ways and a != b else [(a, b)])]
    both = sorted(set(both)) if repeats else both
    return np.array(both, np.int64).reshape(-1, 2).T


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30),
    added=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=8),
    picks=st.lists(st.integers(0, 29), max_size=3),
    ways=st.booleans(),
    loops=st.booleans(),
    repeats=st.booleans(),
    length=st.integers(1, 6),
)
def test_merged_lists_are_sorted_lists(
    pairs: list[tuple[int, int]],
    added: list[tuple[int, int]],
    picks: list[int],
    ways: bool,
    loops: bool,
    repeats: bool,
    length: int,
) -> None:
    """Blocks of a few edges: lists lie across their borders."""
    removed = [pairs[place] for place in picks if place < len(pairs)]
    removed = [pair for pair in removed if not loops or pair[0] != pair[1]]
    gone = {*removed, *(((b, a) for a, b in removed) if ways else ())}
    starts, indices = in_lists(6, *stored(pairs, ways, loops, repeats))
    whole = [pair for pair in pairs if pair not in gone] + added
    expected_starts, expected = in_lists(8, *stored(whole, ways, loops, repeats))

    def blocks(values: Any) -> Any:
        return (values[first : first + length] for first in range(0, len(values), length))

    new = np.array(added, np.int64).reshape(-1, 2).T
    old = np.array(removed, np.int64).reshape(-1, 2).T
    merge = ListMerge(
        SortedPairs.of(new[0], new[1], both_ways=ways, drop_loops=loops, drop_repeats=repeats),
        SortedPairs.of(old[0], old[1], both_ways=ways, drop_repeats=True),
        num_edges=len(indices),
        starts=lambda: blocks(starts),
        drop_repeats=repeats,
        unknown=lambda edge: AssertionError(edge),  # type: ignore[arg-type, return-value]
    )
    found = [np.empty(0, np.uint32), *merge.indices(blocks(indices), np.dtype(np.uint32))]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    np.testing.assert_array_equal(np.concatenate(list(merge.indptr(8))), expected_starts)
    column = [np.empty(0, np.uint32), *merge.splice.blocks(blocks(indices), merge.kept.sources.astype(np.uint32))]
    np.testing.assert_array_equal(np.concatenate(column), expected)
