"""Several passes over one loader, single batches, transforms and states."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddSelfLoops

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.loaders.hop_batches import HopBatch
from diskhop.stores.stores import STORES
from tests.hop_tables import write_hop_tables
from tests.runs import small_graph

NODES = 300


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("graphs") / "g"
    return small_graph(path, num_nodes=NODES, num_edges=1500, dim=8, num_classes=3, train_fraction=0.5, seed=1)


def loader_for(dataset: Dataset, **changes: Any) -> diskhop.NeighborLoader:
    arguments = {"num_neighbors": [3, 2], "input_nodes": np.arange(40), "batch_size": 5, "memory": "50MB", "seed": 3}
    return diskhop.NeighborLoader(dataset, **{**arguments, **changes})


def same(one: Data, other: Data) -> bool:
    return all(torch.equal(one[name], other[name]) for name in ("x", "edge_index", "n_id", "input_id"))


@pytest.mark.fast(3)
@pytest.mark.parametrize("store", STORES)
def test_passes_under_way_together_have_the_batches_of_passes_one_after_the_other(dataset: Dataset, store: str) -> None:
    with loader_for(dataset, store=store, ordered=store == "shared", shuffle=True) as loader:
        expected = [list(loader) for _ in range(3)]
    with loader_for(dataset, store=store, ordered=store == "shared", shuffle=True) as loader:
        first, second, third = iter(loader), iter(loader), iter(loader)
        found: list[list[Data]] = [[next(first)], [next(second)], [next(third)]]
        for passed, batches in ((first, found[0]), (second, found[1]), (first, found[0])):
            batches.append(next(passed))
        for passed, batches in ((third, found[2]), (first, found[0]), (second, found[1])):
            batches += passed
    for batches, wanted in zip(found, expected, strict=True):
        assert all(same(one, other) for one, other in zip(batches, wanted, strict=True))


def test_a_first_look_does_not_disturb_the_pass_around_it(dataset: Dataset) -> None:
    with loader_for(dataset, shuffle=True) as loader:
        expected = list(loader)
    with loader_for(dataset, shuffle=True) as loader:
        found, states = [], []
        for batch in loader:
            found.append(batch)
            next(iter(loader))
            loader([0])
            state = loader.state_dict()
            states.append((state["epoch"], state["delivered"]))
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    assert states == [(0, number + 1) for number in range(len(found) - 1)] + [(state["next_epoch"], 0)]


def test_a_state_is_of_the_pass_that_delivered_last(dataset: Dataset) -> None:
    with loader_for(dataset, shuffle=True) as loader:
        outer = iter(loader)
        kept = next(iter(loader))
        del kept
        next(outer)
        next(outer)
        state = loader.state_dict()
        rest, after = list(outer), list(loader)
    with loader_for(dataset, shuffle=True) as resumed:
        resumed.load_state_dict(state)
        assert all(same(one, other) for one, other in zip(list(resumed), rest, strict=True))
        assert all(same(one, other) for one, other in zip(list(resumed), after, strict=True))


@pytest.mark.parametrize("store", STORES)
def test_a_closed_loader_ends_its_passes_in_words(dataset: Dataset, store: str) -> None:
    loader = loader_for(dataset, store=store)
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()
    asks: list[Callable[[], Any]] = [lambda: next(batches), lambda: next(iter(loader)), lambda: loader([0])]
    for ask in asks:
        with pytest.raises(ConfigError, match="this NeighborLoader is closed; make a new one"):
            ask()


def test_a_loader_called_with_positions_gives_their_batch(dataset: Dataset) -> None:
    ids = torch.tensor([9, 4, 250, 17, 30, 31, 32])
    with loader_for(dataset, input_nodes=ids, num_neighbors=[-1]) as loader, loader_for(dataset) as other:
        assert len(loader.dataset) == 7
        assert loader.data.num_nodes == NODES
        for positions in ([3, 0], torch.tensor([3, 0]), np.array([6, 5, 4, 3, 2, 1, 0])):
            batch = loader(positions)
            seeds = ids[torch.as_tensor(positions)].tolist()
            assert batch.n_id[: batch.batch_size].tolist() == seeds
            assert batch.input_id.tolist() == list(positions)
        drawn = [other([0, 1, 2]) for _ in range(6)]
        assert not all(torch.equal(drawn[0].n_id, each.n_id) for each in drawn)
        state = other.state_dict()
        following = other([0, 1, 2])
        other.load_state_dict(state)
        assert torch.equal(other([0, 1, 2]).n_id, following.n_id)
    for positions, words in (([7], "positions in input_nodes"), ([-1], "positions"), ([], "positions")):
        with loader_for(dataset, input_nodes=ids) as loader, pytest.raises(ConfigError, match=words):
            loader(positions)


def test_a_call_for_more_than_the_memory_has_room_for_is_refused(dataset: Dataset) -> None:
    with loader_for(dataset, batch_size=1, input_nodes=None, store="direct", memory="50MB") as loader:
        left = loader.budget.available_bytes // loader.plan.batch_bytes
        with loader.budget.reserve("something else", loader.budget.available_bytes):
            assert len(loader([0]).n_id) > 0
            with pytest.raises(BudgetError, match="large batch"):
                loader(np.arange(min(left, NODES)))


def changed_edges(data: Data) -> Data:
    assert data.edge_index is not None
    data.edge_index[0, 0] = 0
    return data


@pytest.mark.parametrize(
    ("transform", "keeps"),
    [
        (AddSelfLoops(), False),
        (changed_edges, False),
        (lambda data: (AddSelfLoops()(data), 1), False),
        (lambda data: {"batch": [data]}, True),
        (lambda data: data, True),
    ],
)
def test_a_block_is_there_only_with_the_edges_that_it_has(dataset: Dataset, transform: Any, keeps: bool) -> None:
    with loader_for(dataset, transform=transform) as loader:
        result = next(iter(loader))
    while not isinstance(result, Data):
        result = result[0] if isinstance(result, tuple | list) else result["batch"]
    assert ("block" in result) == keeps


@pytest.mark.parametrize(
    "changes",
    [
        {"input_nodes": np.arange(40)[::-1]},
        {"input_nodes": np.arange(1, 41)},
        {"input_nodes": "train"},
        {"drop_last": True},
        {"seed": 4},
        {"shuffle": True},
        {"num_neighbors": [3, 3]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_states_of_loaders_with_other_arguments_are_refused(dataset: Dataset, changes: dict[str, Any]) -> None:
    words = f"cannot resume: the state is of a loader with {next(iter(changes))}"
    with loader_for(dataset, **changes) as one, loader_for(dataset) as other, pytest.raises(ConfigError, match=words):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: None,
        lambda state: {},
        lambda state: [state],
        lambda state: {**state, "epoch": -1},
        lambda state: {**state, "delivered": 1.5},
        lambda state: {**state, "delivered": 9},
        lambda state: {**state, "ahead": [8]},
        lambda state: {**state, "ahead": None},
        lambda state: {**state, "arguments": None},
        lambda state: {name: value for name, value in state.items() if name != "next_epoch"},
    ],
)
def test_what_is_no_state_is_refused(dataset: Dataset, spoil: Callable[[Any], Any]) -> None:
    with loader_for(dataset) as loader, pytest.raises(ConfigError, match="state must be what"):
        loader.load_state_dict(spoil(loader.state_dict()))


def test_loaders_are_not_pickled(dataset: Dataset, tmp_path: Path) -> None:
    tables = write_hop_tables(tmp_path / "t", [np.zeros((10, 4), np.float32)])
    with loader_for(dataset) as loader, diskhop.HopLoader(tables, memory="50MB") as hops:
        for each in (loader, hops):
            with pytest.raises(ConfigError, match="cannot be pickled; make a"):
                pickle.dumps(each)


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("num_buffers", [1, 2, 3])
def test_passes_over_a_hop_loader_keep_their_batches(tmp_path: Path, place: Any, num_buffers: int) -> None:
    values = np.arange(50 * 8, dtype=np.float32).reshape(50, 8)
    tables = write_hop_tables(tmp_path / "t", [values])
    options: dict[str, Any] = {"batch_size": 7, "place": place, "num_buffers": num_buffers, "memory": "50MB"}
    with diskhop.HopLoader(tables, **options) as loader:
        passes = [iter(loader) for _ in range(num_buffers)]
        for batches in zip(*passes, strict=True):
            for batch in batches:
                np.testing.assert_array_equal(batch.x[0].numpy(), values[batch.rows])
        passes = [iter(loader) for _ in range(num_buffers)]
        first = [next(each) for each in passes]
        with pytest.raises(ConfigError, match=f"pass num_buffers={num_buffers + 1}"):
            next(iter(loader))
        for batch in first:
            np.testing.assert_array_equal(batch.x[0].numpy(), values[batch.rows])
        del passes
        assert sum(len(batch.rows) for batch in loader) == 50
    assert loader.budget.available_bytes == loader.budget.total_bytes


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_hop_loader_resumes_with_the_batches_that_are_left(tmp_path: Path, place: Any) -> None:
    tables = write_hop_tables(tmp_path / "t", [np.zeros((50, 8), np.float32)])
    options: dict[str, Any] = {"batch_size": 7, "place": place, "shuffle": "chunks", "chunk_rows": 3, "memory": "50MB"}

    def rows_of(batches: Iterable[HopBatch]) -> list[list[int]]:
        return [batch.rows.tolist() for batch in batches]

    with diskhop.HopLoader(tables, **options) as loader:
        assert len(loader.dataset) == 50
        epochs = [rows_of(loader) for _ in range(3)]
        assert loader.state_dict()["epoch"] == 3
    with diskhop.HopLoader(tables, **options) as stopped:
        list(stopped)
        batches = iter(stopped)
        assert rows_of([next(batches), next(batches)]) == epochs[1][:2]
        next(iter(stopped))
        state = stopped.state_dict()
    with diskhop.HopLoader(tables, **options) as resumed:
        resumed.load_state_dict(state)
        assert rows_of(resumed) == epochs[1][2:]
    for changes in ({"nodes": np.arange(49)}, {"seed": 1}, {"batch_size": 6}, {"shuffle": "rows"}, {"chunk_rows": 4}):
        words = f"a loader with {next(iter(changes))}"
        with diskhop.HopLoader(tables, **{**options, **changes}) as other, pytest.raises(ConfigError, match=words):
            other.load_state_dict(state)
    with diskhop.HopLoader(tables, **options) as loader, pytest.raises(ConfigError, match=r"HopLoader.state_dict\(\)"):
        loader.load_state_dict({"epoch": 0})
