"""Claims about merged lists: they are the lists of all edge types, and appear whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.merge import MERGING_BYTES, MergeTools, merged_lists
from diskhop.derived.clean import list_derived, remove_unused
from diskhop.errors import BudgetError, ConfigError, FormatError
from tests.graphs import folder_bytes, make_dataset, threads_engine
from tests.typed import ENDS, make_typed


def tools_of(scratch: Path, memory_bytes: int = 1 << 30) -> MergeTools:
    return MergeTools(scratch=scratch, engine=threads_engine(), budget=Budget(memory_bytes))


@pytest.mark.parametrize("edges_per_type", [0, 300])
def test_merged_lists_are_the_lists_of_each_type(tmp_path: Path, edges_per_type: int) -> None:
    dataset = make_typed(tmp_path / "g", edges_per_type)
    files = merged_lists(dataset, tools_of(tmp_path / "s"), ["author__writes__paper", "paper__cites__paper"])
    types = files.types
    assert types is not None
    indptr = np.fromfile(files.indptr_path, np.int64)
    indices = np.fromfile(files.indices_path, files.index_dtype).astype(np.int64)
    assert len(indptr) == files.num_lists + 1
    assert [edges.ends for edges in types.edges[len(ENDS) :]] == [
        ("paper", "rev_writes", "author"),
        ("paper", "rev_cites", "paper"),
    ]
    for number, edges in enumerate(types.edges):
        own = dataset.edges[edges.name].topology
        starts = np.fromfile(own.indptr_path, np.int64)
        lists = slice(types.list_starts[number], types.list_starts[number + 1] + 1)
        found = indices[types.edge_starts[number] : types.edge_starts[number + 1]] - types.first_row(edges.source)
        destinations = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        sources = np.fromfile(own.indices_path, own.index_dtype).astype(np.int64)
        if edges.is_reverse:
            order = np.lexsort((destinations, sources))
            sources, destinations = destinations[order], sources[order]
            starts = np.searchsorted(destinations, np.arange(types.num_nodes[edges.destination] + 1))
            assert files.reverse is not None
            positions = files.reverse.positions(types, number, np.arange(len(order)))
            np.testing.assert_array_equal(positions, order)
        np.testing.assert_array_equal(indptr[lists] - types.edge_starts[number], starts)
        np.testing.assert_array_equal(found, sources)


def test_lists_are_made_once_and_cleaned(tmp_path: Path) -> None:
    dataset = make_typed(tmp_path / "g")
    files = merged_lists(dataset, tools_of(tmp_path / "s"), ["author__writes__paper"])
    before = files.indices_path.stat()
    again = merged_lists(open_dataset(tmp_path / "g"), tools_of(tmp_path / "s"), ["author__writes__paper"])
    assert again == files
    assert again.indices_path.stat() == before
    (entry,) = list_derived(tmp_path / "s")
    assert entry.what == "merged lists or columns of types"
    assert entry.kept_because == "in use"
    del files, again
    (entry,) = remove_unused(list_derived(tmp_path / "s"))
    assert entry.is_removed


def test_reverse_lists_that_exceed_memory_are_sorted_on_disk(tmp_path: Path) -> None:
    dataset = make_typed(tmp_path / "g", 200_000)
    reversed_types = list(dataset.edges)
    small = merged_lists(dataset, tools_of(tmp_path / "a", MERGING_BYTES + (5 << 20)), reversed_types)
    large = merged_lists(dataset, tools_of(tmp_path / "b"), reversed_types)
    assert folder_bytes(small.indices_path.parent) == folder_bytes(large.indices_path.parent)


def test_one_type_needs_no_files(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "g")
    files = merged_lists(dataset, tools_of(tmp_path / "s"))
    assert files.indices_path == dataset.topology.indices_path
    assert not (tmp_path / "s").exists()


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    dataset = make_typed(tmp_path / "g")
    with pytest.raises(ConfigError, match="no edge type 'likes' to reverse, only author__writes__paper, "):
        merged_lists(dataset, tools_of(tmp_path / "s"), ["likes"])
    with pytest.raises(BudgetError):
        merged_lists(dataset, tools_of(tmp_path / "s", 1 << 20))
    files = merged_lists(dataset, tools_of(tmp_path / "s"))
    files.indices_path.write_bytes(b"x")
    with pytest.raises(FormatError, match=r"indices\.bin: is missing or not"):
        merged_lists(dataset, tools_of(tmp_path / "s"))
