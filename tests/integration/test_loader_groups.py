"""Loaders in a script's own process group: batches are shared out, memory is there once, and nothing else changes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import diskhop
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import BudgetError, ConfigError, DestinationError
from diskhop.nn.reproducible import reproducible
from tests.ranks import call_in_group
from tests.runs import small_graph

STORES = ("memory", "static", "direct", "belady", "packed")
# 300 training nodes in 5 batches: the last round of two processes has one of the first.
BATCH_SIZE = 64
NUM_BATCHES = 5


def make_loader(path: Path, store: str = "direct", **changes: Any) -> diskhop.NeighborLoader:
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "memory": "200MB", "seed": 3, "threads": 1}
    options |= {"store": store, "engine": "threads", "input_nodes": "train", "num_neighbors": [4, 4], **changes}
    return diskhop.NeighborLoader(path, **options)


def content_of(batch: Any) -> tuple[bytes, ...]:
    return tuple(getattr(batch, name).numpy().tobytes() for name in ("input_id", "n_id", "x", "y", "edge_index"))


def passes(path: Path, store: str, num_passes: int = 2) -> list[list[tuple[bytes, ...]]]:
    with make_loader(path, store) as loader:
        return [[content_of(batch) for batch in loader] for _ in range(num_passes)]


def link_passes(path: Path) -> list[list[tuple[bytes, ...]]]:
    loader = diskhop.LinkNeighborLoader(path, [3], batch_size=1000, neg_sampling="binary", memory="200MB", threads=1)
    with loader:
        return [[(batch.edge_label_index.numpy().tobytes(), batch.x.numpy().tobytes()) for batch in loader]]


def hop_passes(path: Path) -> list[list[tuple[bytes, ...]]]:
    with diskhop.HopLoader(path, batch_size=BATCH_SIZE, shuffle="rows", memory="100MB", seed=3) as loader:
        return [[(batch.nodes.tobytes(), batch.x.numpy().tobytes()) for batch in loader] for _ in range(2)]


def resumed(path: Path) -> list[tuple[bytes, ...]]:
    """Two batches of one loader, and the rest of the pass from another one with the state of process 0."""
    with make_loader(path) as loader:
        found = [content_of(batch) for _, batch in zip(range(2), loader, strict=False)]
        state = [loader.state_dict()]
    dist.broadcast_object_list(state)
    with make_loader(path) as loader:
        loader.load_state_dict(state[0])
        return [*found, *(content_of(batch) for batch in loader)]


def divided_by_hand(path: Path) -> list[bytes]:
    """Each process passes nodes of its own, as PyG's scripts do."""
    ids = open_dataset(path).split("train")
    assert ids is not None
    with make_loader(path, input_nodes=ids[dist.get_rank() :: 2]) as loader:
        return [batch.input_id.numpy().tobytes() for batch in loader]


def ordered_by_torch(path: Path) -> list[int]:
    sampler: Any = torch.utils.data.DistributedSampler(cast(Any, range(300)), shuffle=False)
    with make_loader(path, sampler=sampler, shuffle=False) as loader:
        return [number for batch in loader for number in batch.input_id.tolist()]


def in_one_process(path: Path) -> int:
    """Only process 0 opens a loader, and gets all batches."""
    if dist.get_rank() != 0:
        return 0
    with make_loader(path, num_replicas=1) as loader:
        return sum(len(batch.input_id) for batch in loader)


def with_seeds_of_its_own(path: Path) -> None:
    make_loader(path, seed=dist.get_rank())


def with_a_batch_size_of_its_own(path: Path) -> None:
    make_loader(path, batch_size=dist.get_rank())


def without_scratch(path: Path, rank: int) -> None:
    """One process cannot write to the scratch folder, which is found out between what they do together."""
    failing = mock.patch("diskhop.pipeline.pipeline.scratch_folder", side_effect=DestinationError("scratch is full"))
    with failing if dist.get_rank() == rank else nullcontext():
        make_loader(path, "belady")


def reopened_without_scratch(path: Path, rank: int) -> str:
    """As without_scratch(), when a loader opens the graph again; then it is closed on all."""
    with make_loader(path, "belady") as loader:
        del loader.data.y
        failing = mock.patch("diskhop.pipeline.pipeline.scratch_folder", side_effect=DestinationError("it is full"))
        with failing if dist.get_rank() == rank else nullcontext(), pytest.raises(DestinationError, match="it is full"):
            next(iter(loader))
        with pytest.raises(ConfigError, match="this NeighborLoader is closed"):
            loader([0])
        return str(loader.budget.left_after({}) == loader.budget.total_bytes)


def hops_without_engine(path: Path, rank: int) -> None:
    failing = mock.patch("diskhop.loaders.hops.open_engine", side_effect=ConfigError("no engine here"))
    with failing if dist.get_rank() == rank else nullcontext():
        diskhop.HopLoader(path, place="memory", memory="100MB")


def hops_in_places_of_their_own(path: Path) -> None:
    diskhop.HopLoader(path, place="disk" if dist.get_rank() else "memory", memory="100MB")


def within(path: Path, memory: int) -> dict[str, Any]:
    with make_loader(path, "static", memory=memory, cache=20_000) as loader:
        return loader.plan.to_dict() | {"table": loader.budget.table()}


def knows_the_smallest(path: Path) -> bool:
    """Whether the budget that a refusal names is enough, and a byte less is not."""
    smallest: list[int] = []
    for _ in range(2):
        with pytest.raises(BudgetError) as caught:
            within(path, smallest[0] - 1 if smallest else 1_000_000)
        assert caught.value.smallest_bytes is not None
        smallest.append(caught.value.smallest_bytes)
    within(path, smallest[0])
    return smallest[0] == smallest[1]


def segments(path: Path) -> list[tuple[int, int]]:
    """Shared memory that is mapped, and descriptors of it, while a loader is open and after it is closed."""
    gc.collect()  # what errors of other scenarios have kept
    with make_loader(path, "memory") as loader:
        counts = [_count_segments()]
        del loader
    gc.collect()
    return [*counts, _count_segments()]


def hop_segments(path: Path) -> list[tuple[int, int]]:
    """See segments()."""
    with diskhop.HopLoader(path, batch_size=BATCH_SIZE, place="memory", memory="100MB") as loader:
        counts = [_count_segments()]
        del loader
    gc.collect()
    return [*counts, _count_segments()]


def _count_segments() -> tuple[int, int]:
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:diskhop" in line]
    assert all(line.endswith("(deleted)") for line in maps), "a segment has a name"
    descriptors = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return len(maps), sum("memfd:diskhop" in each for each in descriptors)


def trained(path: Path) -> list[bytes]:
    model = torch.nn.Linear(16, 4)
    with reproducible(1), make_loader(path) as loader:
        torch.manual_seed(0)
        torch.nn.init.normal_(model.weight)
        torch.nn.init.zeros_(model.bias)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for batch in loader:
            optimizer.zero_grad()
            loss_of(parallel, batch).backward()
            optimizer.step()
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def loss_of(model: Any, batch: Any) -> Any:
    scores = model(batch.x[: batch.batch_size])
    return torch.nn.functional.cross_entropy(scores, batch.y[: batch.batch_size])


@pytest.fixture(scope="module")
def graph(module_folder: Path) -> Dataset:
    return small_graph(module_folder / "g")


@pytest.fixture(scope="module")
def hop_tables(graph: Dataset) -> Path:
    return diskhop.propagate(graph, diskhop.PropagationSpec(hops=1), memory="100MB").tables.path


@pytest.fixture(scope="module")
def answers(graph: Dataset, hop_tables: Path) -> dict[str, list[Any]]:
    """Answers of two processes, by scenario."""
    path = graph.path
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        **{store: (passes, (path, store)) for store in STORES},
        "links": (link_passes, (path,)),
        "hops": (hop_passes, (hop_tables,)),
        "resumed": (resumed, (path,)),
        "by hand": (divided_by_hand, (path,)),
        "by torch": (ordered_by_torch, (path,)),
        "one": (in_one_process, (path,)),
        "seeds": (with_seeds_of_its_own, (path,)),
        "batch sizes": (with_a_batch_size_of_its_own, (path,)),
        **{f"no scratch {rank}": (without_scratch, (path, rank)) for rank in range(2)},
        **{f"reopened {rank}": (reopened_without_scratch, (path, rank)) for rank in range(2)},
        **{f"no engine {rank}": (hops_without_engine, (hop_tables, rank)) for rank in range(2)},
        "places": (hops_in_places_of_their_own, (hop_tables,)),
        "too small": (within, (path, 1_000_000)),
        "smallest": (knows_the_smallest, (path,)),
        "enough": (within, (path, 60_000_000)),
        "segments": (segments, (path,)),
        "hop segments": (hop_segments, (hop_tables,)),
        "trained": (trained, (path,)),
    }
    found = call_in_group(2, list(calls.values()))
    return dict(zip(calls, found, strict=True))


def in_rounds(batches: list[Any], rank: int) -> list[Any]:
    """The share of a process of two: the last round has the first batch again."""
    return [*batches, *batches[:1]][rank::2] if len(batches) % 2 else batches[rank::2]


@pytest.mark.parametrize("store", STORES)
def test_two_processes_get_the_batches_of_one_bit_for_bit(
    answers: dict[str, list[Any]], graph: Dataset, store: str
) -> None:
    expected = passes(graph.path, "memory")
    assert len(expected[0]) == NUM_BATCHES
    for rank, found in enumerate(answers[store]):
        assert found == [in_rounds(epoch, rank) for epoch in expected], f"process {rank}"


def test_links_are_shared_out_too(answers: dict[str, list[Any]], graph: Dataset) -> None:
    (expected,) = link_passes(graph.path)
    assert answers["links"] == [[in_rounds(expected, rank)] for rank in range(2)]


def test_rows_of_hop_tables_are_shared_out_too(answers: dict[str, list[Any]], hop_tables: Path) -> None:
    expected = hop_passes(hop_tables)
    assert answers["hops"] == [[in_rounds(epoch, rank) for epoch in expected] for rank in range(2)]


def test_the_state_of_one_process_serves_all(answers: dict[str, list[Any]], graph: Dataset) -> None:
    expected = passes(graph.path, "memory", 1)[0]
    assert answers["resumed"] == [in_rounds(expected, rank) for rank in range(2)]


def test_a_state_of_two_processes_is_refused_by_one(graph: Dataset) -> None:
    with make_loader(graph.path, num_replicas=2, rank=0) as loader:
        state = loader.state_dict()
    with make_loader(graph.path) as loader, pytest.raises(ConfigError, match="processes 2, not 1"):
        loader.load_state_dict(state)


def test_processes_that_were_given_nodes_of_their_own_get_all_of_these(answers: dict[str, list[Any]]) -> None:
    for found in answers["by hand"]:
        positions = np.concatenate([np.frombuffer(each, np.int64) for each in found])
        assert sorted(positions) == list(range(150))


def test_the_order_of_a_sampler_of_torch_is_not_divided_again(answers: dict[str, list[Any]]) -> None:
    assert answers["by torch"] == [list(range(rank, 300, 2)) for rank in range(2)]


def test_a_loader_of_one_process_waits_for_no_other(answers: dict[str, list[Any]]) -> None:
    assert answers["one"] == [300, 0]


def test_processes_with_other_arguments_are_refused(answers: dict[str, list[Any]]) -> None:
    for text in answers["seeds"]:
        assert text.startswith("ConfigError: NeighborLoader: seed is 0 in process 0 and 1 in process 1")
        assert "\n" not in text


def test_an_error_of_one_process_is_that_of_both(answers: dict[str, list[Any]]) -> None:
    """None waits for the other, and both can go on: the scenarios after these have the same group."""
    said = {
        "batch sizes": "ConfigError: NeighborLoader: batch_size must be from 1 to 2147483647, got 0",
        "no scratch": "DestinationError: scratch is full",
        "no engine": "ConfigError: no engine here",
        "places": "ConfigError: HopLoader: place is 'memory' in one process of this machine and 'disk' in another, "
        "which share its memory; pass place='disk' to all of them",
        "reopened": "True",
    }
    found = {name: each for name, each in answers.items() if name.rstrip(" 01") in said}
    assert len(found) == 8
    for name, texts in found.items():
        for text in texts:
            assert text.startswith(said[name.rstrip(" 01")]), (name, text)


def test_a_budget_too_small_for_two_is_refused_with_the_smallest(answers: dict[str, list[Any]], graph: Dataset) -> None:
    first, second = answers["too small"]
    assert first == second
    assert first.startswith("BudgetError: --memory 1 MB is too small for 2 processes on one machine: it needs shared ")
    smallest = int(first.rpartition("--memory ")[2].removesuffix("MB")) * 1_000_000
    with pytest.raises(BudgetError) as alone:
        make_loader(graph.path, "static", memory=1_000_000, cache=20_000)
    # All is there twice, except for what they share: it is more than for one, and less than twice as much.
    assert alone.value.smallest_bytes is not None
    assert alone.value.smallest_bytes < smallest < 2 * alone.value.smallest_bytes + 1_000_000
    assert answers["smallest"] == [True, True]


def test_segments_have_no_name_and_go_with_the_loader(answers: dict[str, list[Any]]) -> None:
    # indptr, indices, the table, and labels. A map keeps a descriptor.
    assert answers["segments"] == [[(4, 4), (0, 0)]] * 2
    assert answers["hop segments"] == [[(1, 1), (0, 0)]] * 2


def test_the_plan_counts_shared_data_once(answers: dict[str, list[Any]]) -> None:
    first, second = answers["enough"]
    assert first == second
    assert first["num_processes"] == 2
    assert set(first["shared"]) == {"topology", "attributes", "cache"}
    shared = sum(first["reserved"][name] for name in first["shared"])
    own = sum(first["reserved"].values()) - shared
    assert shared + 2 * own <= 60_000_000
    assert all(first["table"][name] == num_bytes for name, num_bytes in first["reserved"].items() if num_bytes)
    assert any(reason.startswith("Memory of 2 processes: ") for reason in first["reasons"])


def test_training_by_ddp_is_that_of_averaged_gradients(answers: dict[str, list[Any]], graph: Dataset) -> None:
    assert answers["trained"][0] == answers["trained"][1]
    model = torch.nn.Linear(16, 4)
    with reproducible(1), make_loader(graph.path) as loader:
        torch.manual_seed(0)
        torch.nn.init.normal_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = list(loader)
        for first, second in zip(in_rounds(batches, 0), in_rounds(batches, 1), strict=True):
            optimizer.zero_grad()
            ((loss_of(model, first) + loss_of(model, second)) / 2).backward()
            optimizer.step()
    for parameter, found in zip(model.parameters(), answers["trained"][0], strict=True):
        np.testing.assert_allclose(
            parameter.detach().numpy().ravel(), np.frombuffer(found, np.float32), rtol=1e-5, atol=1e-6
        )


def graph_memory(small: Path, large: Path) -> int:
    """Bytes of this process's memory, by its proportional share, that a loader of a large graph adds."""
    with make_loader(small, "memory") as loader:
        list(loader)
    gc.collect()
    dist.barrier()
    before = _proportional_bytes()
    dist.barrier()
    with make_loader(large, "memory", memory="1GB") as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        dist.barrier()
        after = _proportional_bytes()
        dist.barrier()
        batches.close()  # type: ignore[attr-defined]
    return after - before


def hop_memory(small: Path, large: Path) -> int:
    """Bytes of this process's memory, by its proportional share, that a loader of large tables adds."""

    def load(path: Path) -> tuple[int, int]:
        gc.collect()
        dist.barrier()
        before = _proportional_bytes()
        dist.barrier()
        with diskhop.HopLoader(path, batch_size=BATCH_SIZE, place="memory", memory="500MB") as loader:
            next(iter(loader))
            dist.barrier()
            after = _proportional_bytes()
            dist.barrier()
        return before, after

    load(small)  # what the first loader takes for itself
    before, after = load(large)
    return after - before


def _proportional_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@pytest.mark.slow
def test_two_processes_take_the_memory_of_one(graph: Dataset, module_folder: Path) -> None:
    large = small_graph(module_folder / "large", num_nodes=600_000, num_edges=1_200_000, dim=128)
    table_bytes = 600_000 * 128 * 4
    call = [(graph_memory, (graph.path, large.path))]
    ((alone,),) = call_in_group(1, call)
    (both,) = call_in_group(2, call)
    assert alone > table_bytes
    assert sum(both) <= 1.1 * alone, f"{both} of two, {alone} of one"


@pytest.mark.slow
def test_two_processes_have_one_copy_of_hop_tables(hop_tables: Path, module_folder: Path) -> None:
    graph = small_graph(module_folder / "many rows", num_nodes=600_000, num_edges=600_000, dim=64)
    tables = diskhop.propagate(graph, diskhop.PropagationSpec(hops=1), memory="500MB").tables
    call = [(hop_memory, (hop_tables, tables.path))]
    ((alone,),) = call_in_group(1, call)
    (both,) = call_in_group(2, call)
    assert alone > 2 * tables.shape.num_bytes
    assert sum(both) <= 1.1 * alone, f"{both} of two, {alone} of one"
