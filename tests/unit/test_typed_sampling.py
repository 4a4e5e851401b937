"""Claims about sampling of graphs with types: every list is drawn from as its edge type wants, however it is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import BufferPool
from diskhop.batches.typed import split_types
from diskhop.budget import Budget
from diskhop.dataset.merge import MergeTools, merged_lists
from diskhop.dataset.type_map import MergedEdges, TypeMap
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec, neighbor_spec
from diskhop.sampling.cached_topology import AnyTopology, NeighborCacheOptions, open_cached_topology
from diskhop.sampling.columns import ColumnUse
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.samplers import merged_lists_of, open_sampler
from diskhop.sampling.topology import Topology, open_topology
from diskhop.sampling.type_fanouts import with_fanouts
from diskhop.sampling.typed_columns import find_merged_column
from tests.examples import examples
from tests.graphs import threads_engine
from tests.typed import COUNTS, ENDS, make_typed, pairs_of, typed_lists
from tests.unit import importance_oracle, ways_oracle
from tests.unit.sampling_oracle import assert_same_batch

_KEY = (3, Purpose.TRAIN, 1, 2)
_SPECS = (
    neighbor_spec((4, 3)),
    with_fanouts(neighbor_spec((4, 3)), {ENDS[1]: (-1, 0), ENDS[3]: (20, 2)}),
    NeighborWays(disjoint=True, replace=True).spec((4, 3)),
    with_fanouts(importance_spec("labor", (5, 4), importance=1), {ENDS[0]: (2, 2)}),
)


def sample(topology: Topology, spec: SamplerSpec, seeds: list[int]) -> SampledBatch:
    seed, purpose, epoch, number = _KEY
    sampler = open_sampler(topology, spec, seed)
    return sampler.sample(np.array(seeds, np.int64), purpose=purpose, epoch=epoch, number=number)


@examples(60)
@given(data=st.data(), case=typed_lists(), wide=st.booleans(), disjoint=st.booleans(), replace_draws=st.booleans())
def test_batches_are_those_of_the_definition(data, case, wide, disjoint, replace_draws) -> None:  # type: ignore[no-untyped-def]
    types, indptr, indices = case
    topology = Topology(Path("x"), indptr, indices if wide else indices.astype(np.uint32), types=types)
    ways = NeighborWays(
        replace=replace_draws,
        disjoint=disjoint,
        subgraph=data.draw(st.sampled_from(["directional", "induced"])),
    )
    num_hops = data.draw(st.integers(1, 3))
    counts = st.sampled_from([-1, 0, 1, 2, 7])
    by_type = {edges.ends: data.draw(st.lists(counts, min_size=num_hops, max_size=num_hops)) for edges in types.edges}
    if types.is_single:
        by_type = {ends: [count or 1 for count in fanouts] for ends, fanouts in by_type.items()}
    seeds = data.draw(st.lists(st.integers(0, max(0, types.total_nodes - 1)), unique=True, max_size=5))
    seeds = seeds if types.total_nodes else []
    actual = sample(topology, with_fanouts(ways.spec([1] * num_hops), by_type), seeds)
    graph = ways_oracle.Graph(indptr, indices, types=types)
    fanouts = [list(hop) for hop in zip(*by_type.values(), strict=True)]
    assert_same_batch(actual, ways_oracle.sample(graph, ways, seeds, fanouts, _KEY))


@examples(40)
@given(data=st.data(), case=typed_lists(), importance=st.sampled_from([0, 1]))
def test_labor_keeps_the_share_of_each_type(data, case, importance) -> None:  # type: ignore[no-untyped-def]
    types, indptr, indices = case
    topology = Topology(Path("x"), indptr, indices, types=types)
    counts = st.sampled_from([-1, 1, 2, 5] if types.is_single else [-1, 0, 1, 2, 5])
    by_type = {edges.ends: data.draw(st.lists(counts, min_size=2, max_size=2)) for edges in types.edges}
    seeds = list(range(0, types.total_nodes, 3))
    spec = with_fanouts(importance_spec("labor", (1, 1), importance=importance), by_type)
    fanouts = [list(hop) for hop in zip(*by_type.values(), strict=True)]
    expected = importance_oracle.sample(indptr, indices, seeds, fanouts, _KEY, "labor", types, importance=importance)
    assert_same_batch(sample(topology, spec, seeds), expected)


def test_whole_neighbourhoods_are_those_of_a_search_by_type(tmp_path: Path) -> None:
    """Every edge that ends at a node within reach, of each type, and of a reversed one."""
    dataset = make_typed(tmp_path / "g")
    tools = MergeTools(scratch=tmp_path / "s", engine=threads_engine(), budget=Budget(1 << 30))
    files = merged_lists(dataset, tools, ["venue__publishes__paper"])
    assert files.types is not None
    pairs = {ends: pairs_of(ends, 300, number).T.tolist() for number, ends in enumerate(ENDS)}
    pairs["paper", "rev_publishes", "venue"] = [[paper, venue] for venue, paper in pairs[ENDS[2]]]
    with open_topology(files, "memory", tools.engine, tools.budget) as topology:
        first = files.types.first_row("paper")
        batch = split_types(sample(topology, neighbor_spec((-1, -1)), [first + 1, first + 30]), files.types)
    reached = {("paper", 1), ("paper", 30)}
    expanded: set[tuple[str, int]] = set()
    for _ in range(2):
        expanded |= reached
        reached |= {(ends[0], a) for ends in pairs for a, b in pairs[ends] if (ends[2], b) in expanded}
    for name, part in batch.parts.items():
        assert set(part.node_ids.tolist()) == {node for kind, node in reached if kind == name}
    for ends, block in batch.blocks.items():
        targets = batch.parts[ends[2]].node_ids[: len(block.indptr) - 1].repeat(np.diff(block.indptr))
        sources = batch.parts[ends[0]].node_ids[block.sources]
        found = sorted(zip(sources.tolist(), targets.tolist(), strict=True))
        assert found == sorted((a, b) for a, b in pairs[ends] if (ends[2], b) in expanded), ends


@pytest.mark.parametrize("spec", _SPECS, ids=str)
def test_batches_are_the_same_however_lists_are_stored(tmp_path: Path, spec: SamplerSpec) -> None:
    dataset = make_typed(tmp_path / "g")
    engine, budget = threads_engine(), Budget(1 << 30)
    files = merged_lists(dataset, MergeTools(scratch=tmp_path / "s", engine=engine, budget=budget))
    starts = [np.arange(first, first + 12) for first in range(0, sum(COUNTS.values()) - 12, 12)]

    def batches(topology: AnyTopology) -> list[SampledBatch]:
        sampler = open_sampler(topology, spec, 5, BufferPool(1 << 20))
        with ThreadPoolExecutor(3) as threads:
            return list(
                threads.map(
                    lambda each: sampler.sample(each[1], purpose=Purpose.TRAIN, epoch=0, number=each[0]),
                    enumerate(starts),
                )
            )

    with open_topology(files, "memory", engine, budget) as topology:
        expected = batches(topology)
    with open_topology(files, "mapped", engine, budget) as topology:
        mapped = batches(topology)
    for cache_bytes in (0, 1500, 1 << 20):
        options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=64)
        with open_cached_topology(files, options, engine, budget, BufferPool(0)) as cached:
            for ours, theirs in zip(batches(cached), expected, strict=True):
                assert_same_batch(ours, theirs)
    for ours, theirs in zip(mapped, expected, strict=True):
        assert_same_batch(ours, theirs)
    assert budget.available_bytes == 1 << 30


@pytest.mark.parametrize(
    ("ways", "times"),
    [
        (NeighborWays(weights="weights"), None),
        (NeighborWays(weights="weights", replace=True, disjoint=True), None),
        (NeighborWays(times="year"), None),
        (NeighborWays(times="year", strategy="last", subgraph="induced"), [3, 4, 20]),
        (NeighborWays(times="times", weights="weights"), [30, 9, 44]),
    ],
    ids=str,
)
def test_weights_and_times_are_those_of_each_type(tmp_path: Path, ways: NeighborWays, times: list[int] | None) -> None:
    dataset = make_typed(tmp_path / "g")
    tools = MergeTools(scratch=tmp_path / "s", engine=threads_engine(), budget=Budget(1 << 30))
    spec = ways.spec((3, 4))
    files = merged_lists_of(dataset, [spec], tools, ["author__writes__paper", "paper__cites__paper"])
    types = files.types
    assert types is not None
    merged = {column.use: np.fromfile(column.path, column.dtype) for column in files.columns}
    is_of_nodes = ways.times == "year"
    graph = ways_oracle.Graph(
        np.fromfile(files.indptr_path, np.int64),
        np.fromfile(files.indices_path, np.uint32),
        weights=merged.get("weights"),
        node_times=merged["times"] if is_of_nodes else None,
        edge_times=None if is_of_nodes else merged.get("times"),
        types=types,
    )
    seeds = np.array([1, 30, 7]) + types.first_row("paper")
    expected = ways_oracle.sample(graph, ways, seeds.tolist(), [3, 4], _KEY, times)
    of_seeds = None if times is None else np.array(times)
    seed, purpose, epoch, number = _KEY
    options = NeighborCacheOptions(cache_bytes=1000, max_gap_bytes=64)
    with (
        open_topology(files, "memory", tools.engine, tools.budget) as whole,
        open_cached_topology(files, options, tools.engine, tools.budget, BufferPool(0)) as cached,
    ):
        for topology in (whole, cached):
            sampler = open_sampler(topology, spec, seed)
            batch = sampler.sample(seeds, purpose=purpose, epoch=epoch, number=number, times=of_seeds)
            assert_same_batch(batch, expected)
            if is_of_nodes:
                with pytest.raises(ConfigError, match="the seeds have no times, and are of a type without any"):
                    sampler.sample(np.array([0]), purpose=purpose, epoch=epoch, number=number)


def test_columns_are_filled_where_a_type_has_none(tmp_path: Path) -> None:
    dataset = make_typed(tmp_path / "g")
    tools = MergeTools(scratch=tmp_path / "s", engine=threads_engine(), budget=Budget(1 << 30))
    files = merged_lists(dataset, tools, ["paper__cites__paper"])
    types = files.types
    assert types is not None
    assert files.reverse is not None
    never = np.iinfo(np.int64).min
    for use, name, stored, own in (
        ("weights", "weights", "paper__cites__paper", 1),
        ("times", "times", "author__writes__paper", never),
    ):
        column = find_merged_column(dataset, files, ColumnUse(use, name), tools)
        values = np.fromfile(column.path, column.dtype)
        for number, edges in enumerate(types.edges):
            found = values[types.edge_starts[number] : types.edge_starts[number + 1]]
            expected = np.full(len(found), own, column.dtype)
            if edges.name == stored:
                kept = dataset.edges[stored].column(f"edge_{use[:-1]}")
                assert kept is not None
                expected = kept.map()
                if edges.is_reverse:
                    expected = expected[files.reverse.positions(types, number, np.arange(len(found)))]
            np.testing.assert_array_equal(found, expected)
    with pytest.raises(ConfigError, match="no type has weights 'price' of one number each"):
        find_merged_column(dataset, files, ColumnUse("weights", "price"), tools)


@pytest.mark.parametrize("ways", [NeighborWays(), NeighborWays(replace=True, disjoint=True)], ids=str)
def test_the_first_type_is_drawn_from_as_a_graph_without_types(ways: NeighborWays) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 30, 50)
    indptr = np.cumsum([0, *lengths], dtype=np.int64)
    indices = generator.integers(0, 50, indptr[-1]).astype(np.uint32)
    edges = MergedEdges("r", ("a", "r", "a"), len(indices)), MergedEdges("s", ("a", "s", "a"), 0)
    both = np.concatenate([indptr, np.full(50, indptr[-1])])
    spec = ways.spec((5, 4))
    seeds = [7, 30, 2]
    expected = sample(Topology(Path("x"), indptr, indices), spec, seeds)
    assert_same_batch(
        sample(Topology(Path("x"), both, indices, types=TypeMap({"a": 50}, edges)), spec, seeds), expected
    )


def typed_topology(tmp_path: Path) -> Topology:
    tools = MergeTools(scratch=tmp_path / "s", engine=threads_engine(), budget=Budget(1 << 30))
    files = merged_lists(make_typed(tmp_path / "g"), tools)
    with open_topology(files, "memory", tools.engine, tools.budget) as topology:
        return topology


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("paper__likes__paper=3,3", "paper__likes__paper', which the graph does not have, only author__writes__paper"),
        ("paper__cites__paper=3", "has 1 counts, and the sampler 2 hops; give one per hop"),
        ("paper__cites__paper=3,-2", "from 0 to .* or -1 for all, got -2"),
        ("paper__cites__paper=3,x", "whole numbers per hop, got 'paper__cites__paper=3,x'; for example"),
        ("paper__cites__paper=3,3;paper__cites__paper=1,1", "name each edge type once"),
        ("", "whole numbers per hop, got ''"),
    ],
)
def test_bad_fan_outs_by_type_are_refused(tmp_path: Path, parameter: str, message: str) -> None:
    spec = SamplerSpec("neighbor", (2, 2), (("fanouts", parameter),))
    with pytest.raises(ConfigError, match=message):
        open_sampler(typed_topology(tmp_path), spec, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            importance_spec("ladies", (10,)),
            "'ladies' cannot sample a graph with types: it weighs edges .* use neighbor or labor or hgt",
        ),
        (NeighborWays(subgraph="bidirectional").spec((2,)), "use reverse edge types, or subgraph_type='directional'"),
        (SamplerSpec("saint-node", (), (("draws", 3),)), "it chooses nodes of all types"),
    ],
    ids=str,
)
def test_samplers_without_a_typed_meaning_are_refused(tmp_path: Path, spec: SamplerSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_sampler(typed_topology(tmp_path), spec, 0)


def test_fan_outs_by_type_are_refused_without_types() -> None:
    topology = Topology(Path("x"), np.array([0, 0], np.int64), np.empty(0, np.uint32))
    with pytest.raises(ConfigError, match="one type of edges, and fan-outs are given for a__r__a; give one per hop"):
        open_sampler(topology, with_fanouts(neighbor_spec((2,)), {("a", "r", "a"): (3,)}), 0)
