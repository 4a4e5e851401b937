"""Training on the edges of one type: nothing gives scored edges away, and values depend on the options alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diskhop
from diskhop.budget import Budget
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import MappedLists, rows_of
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.feeds import Feed
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from diskhop.runs.typed_links.defaults import resolve_typed_link_config
from diskhop.runs.typed_links.prepare import prepare_typed_links
from diskhop.runs.typed_links.target import edge_target
from tests.integration.test_link_training import KILLED_RUN
from tests.links import OPTIONS as LINK_OPTIONS
from tests.links import both_ways, message_edges, pairs_of
from tests.runs import assert_same_run
from tests.typed_links import NUM_ITEMS, NUM_USERS, shop, shop_data

OPTIONS: dict[str, Any] = {**LINK_OPTIONS, "target": "user,buys,item"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A shop with a second edge type that has the bought edges in the other direction."""
    return shop(tmp_path_factory.mktemp("graphs") / "copy", with_copy=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Reverse edge types are added."""
    return shop(tmp_path_factory.mktemp("graphs") / "plain")


@pytest.fixture(scope="module")
def whole(plain: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(plain, out=out, **OPTIONS)
    return out


@contextmanager
def open_feed(dataset: Dataset, **options: Any) -> Iterator[Feed]:
    config, _, task = resolve_typed_link_config(dataset, {**OPTIONS, **options})
    prepared = prepare_typed_links(dataset, config, task, Budget(config.memory_bytes), Callback())
    with prepared.open(prepared.make_model()) as feed:
        yield feed


def scored_edges(feed: Feed, purpose: Purpose) -> set[tuple[int, int]]:
    with feed.measure(purpose) as batches:
        return set().union(*(pairs_of(batch.prepared.links) for batch in batches))


def answering_edges(batch: Any, feed: Any, purpose: Purpose) -> set[tuple[int, int]]:
    """Messages along the edge type that is learned, and along its copy."""
    messages = batch.prepared.messages
    types = feed._open[1].pipeline.dataset.types
    numbers = types.edge_type_of(messages.edge_positions)
    targets = np.repeat(np.arange(len(messages.indptr) - 1), np.diff(messages.indptr))
    names = [types.edges[number].ends[1] for number in numbers]
    rows = messages.node_ids[np.stack([messages.sources, targets])].T.tolist()
    answering = {"buys", "rev_buys", "bought_by"}
    return {(u, v) for name, (u, v) in zip(names, rows, strict=True) if name in answering}


@pytest.mark.fast(6)
@pytest.mark.parametrize("store", ["memory", "belady", "shared"])
@pytest.mark.parametrize("changes", [{}, {"fanout": (-1,)}, {"subgraph_type": "induced"}], ids=str)
@pytest.mark.parametrize("kind", ["plain", "dataset"])
def test_no_edge_that_is_scored_or_held_out_carries_a_message_in_any_direction(
    request: pytest.FixtureRequest, kind: str, store: str, changes: dict[str, Any]
) -> None:
    num_edges = num_answering = num_others = 0
    with open_feed(request.getfixturevalue(kind), store=store, **changes) as feed:
        valid, test = (both_ways(scored_edges(feed, each)) for each in (Purpose.VALID, Purpose.TEST))
        assert not valid & test
        with feed.train(0) as batches:
            for batch in batches:
                scored = pairs_of(batch.prepared.links)
                answering = answering_edges(batch, feed, Purpose.TRAIN)
                assert not answering & (both_ways(scored) | valid | test)
                num_edges += len(scored)
                num_answering += len(answering)
                num_others += len(message_edges(batch.prepared.messages) & both_ways(scored))
        for purpose, hidden in ((Purpose.VALID, valid | test), (Purpose.TEST, test)):
            with feed.measure(purpose) as batches:
                for batch in batches:
                    assert not answering_edges(batch, feed, purpose) & hidden
    assert num_edges > 1000
    assert num_answering > 0
    # A rating of the same pair is no copy, so it stays.
    assert num_others > 0


def test_copies_are_found_by_their_edges_not_by_their_names(dataset: Dataset, plain: Dataset) -> None:
    target = edge_target(dataset, "user,buys,item", ())
    assert [target.types.edges[place].ends[1] for place in target.copies] == ["bought_by"]
    reversed_types = ("user__buys__item", "user__rates__item")
    target = edge_target(plain, "user,buys,item", reversed_types)
    assert [target.types.edges[place].ends[1] for place in target.copies] == ["rev_buys"]
    assert target.nodes_of(0)[0] == NUM_USERS
    assert target.nodes_of(-1)[0] == NUM_ITEMS


def test_reverse_types_of_copies_are_copies_and_hide_none(dataset: Dataset, plain: Dataset) -> None:
    def copies(graph: Dataset, reversed_types: tuple[str, ...]) -> list[str]:
        target = edge_target(graph, "user,buys,item", reversed_types)
        return [target.types.edges[place].ends[1] for place in target.copies]

    # Reversed, what is bought in the other direction is what is learned.
    assert copies(dataset, tuple(dataset.edges)) == ["bought_by", "rev_bought_by", "rev_buys"]
    # The only type that leads back is a reverse type, of other edges.
    assert copies(plain, ("user__rates__item",)) == []
    # The only type that the dataset has of this direction, whose edges are others.
    data = shop_data(with_copy=True)
    del data["item", "bought_by", "user"]
    one = diskhop.from_pyg(data, plain.path.parent / "one")
    assert copies(one, ()) == ["suits"]
    assert copies(one, ("user__buys__item",)) == ["suits", "rev_buys"]


@pytest.mark.fast(1)
@pytest.mark.parametrize("changes", [{}, {"neg_sampling": "triplet", "negatives": 3, "negative_draws": "degree"}])
def test_negatives_are_nodes_of_the_types_of_the_ends(plain: Dataset, changes: dict[str, Any]) -> None:
    target = edge_target(plain, "user,buys,item", ())
    users, items = (rows_of(target.types, name) for name in ("user", "item"))
    with open_feed(plain, **changes) as feed, feed.train(0) as batches:
        for batch in batches:
            links = batch.prepared.links
            assert all(row in users for row in links.seeds[links.sources].tolist())
            ends = links.destinations if links.negatives is None else links.negatives.ravel()
            assert len(ends) > len(links.positions)
            assert all(row in items for row in links.seeds[ends].tolist())


def test_a_killed_run_resumes_to_the_bytes_of_one_never_interrupted(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(whole / "config.toml"), str(tmp_path / "killed")]
    assert subprocess.run(command, check=False, timeout=500).returncode == -9
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    train(out=tmp_path / "killed", resume=True)
    assert_same_run(whole, tmp_path / "killed")


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "changes", [{"store": "direct"}, {"store": "belady"}, {"store": "shared", "ordered": True}, {"threads": 2}]
)
def test_stores_and_threads_train_the_same_model(
    plain: Dataset, whole: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    train(plain, out=tmp_path / "run", **{**OPTIONS, **changes})
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "rgcn", "decoder": "distmult", "num_bases": 2},
        {"model": "hgt", "heads": 2, "decoder": "mlp", "loss": "margin"},
        {"model": "simple-hgn", "heads": 2, "decoder": "cosine", "loss": "contrastive", "negatives": 3},
        {"model": "rgat", "heads": 2, "metric": "mrr", "eval_candidates": 200, "eval_filtered": True},
        {"metric": "hits_at_10", "eval_candidates": 50, "type_fanout": ("user__rates__item=1,0",)},
        {"target": "user__knows__user", "negative_draws": "degree", "features": "random"},
    ],
    ids=str,
)
def test_every_way_to_train_gives_finite_losses_and_metrics(plain: Dataset, changes: dict[str, Any]) -> None:
    options = {**OPTIONS, "epochs": 2, **changes}
    result = train(plain, **options).result
    assert result["kind"] == "typed-link"
    assert 0 < result["test"][options.get("metric", "auc")] <= 1
    assert all(np.isfinite(epoch["loss"]) and 0 < epoch["valid"] <= 1 for epoch in result["epochs"])


def test_a_model_learns_which_users_buy_which_items(plain: Dataset) -> None:
    options = {**OPTIONS, "hidden": 32, "fanout": (10, 10), "epochs": 15, "lr": 0.01}
    result = train(plain, **options).result
    # All edges are within one of eight groups: a model of the groups alone reaches about .94.
    assert result["test"]["auc"] > 0.9
    assert result["split"]["also_held_out"] == ["item__rev_buys__user"]


def test_edges_that_are_given_are_held_out(plain: Dataset, tmp_path: Path) -> None:
    target = edge_target(plain, "user,buys,item", ())
    with open_feed(plain) as feed:
        held = sorted(scored_edges(feed, Purpose.TEST))
    firsts = [target.nodes_of(side)[1] for side in (0, -1)]
    ids = np.array([np.array(held[:9]), np.array(held[9:18])]) - firsts
    np.save(tmp_path / "valid.npy", ids[0])
    np.save(tmp_path / "test.npy", ids[1])
    with open_feed(plain, link_split=str(tmp_path)) as feed:
        assert scored_edges(feed, Purpose.VALID) == set(held[:9])
        assert scored_edges(feed, Purpose.TEST) == set(held[9:18])
    np.save(tmp_path / "test.npy", np.array([[0], [NUM_ITEMS]]))
    with pytest.raises(ConfigError, match=r"test\.npy"):
        train(plain, **{**OPTIONS, "link_split": str(tmp_path)})
    # A user and an item with the same id are two nodes.
    lists = MappedLists(target.lists)
    apart = next(row for row in range(NUM_ITEMS) if row + firsts[0] not in lists.neighbors(row + firsts[1]))
    np.save(tmp_path / "test.npy", np.array([[apart], [apart]]))
    with pytest.raises(ConfigError, match=f"the nodes {apart} and {apart} have no edge in the graph"):
        train(plain, **{**OPTIONS, "link_split": str(tmp_path)})


def test_the_plan_compares_stores_and_writes_no_split(tmp_path: Path) -> None:
    graph = shop(tmp_path / "graph")
    ranking = plan_run(graph, **OPTIONS)
    assert len(ranking.options) > 3
    assert not list(graph.path.glob("derived/links-*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": None}, "edge types, user,buys,item, user,knows,user, user,rates,item, and --task link learns one"),
        (
            {"target": "user"},
            "--target user is a node type, and --task link learns an edge type: use --target user,buys",
        ),
        ({"target": "buys"}, "--target buys is no edge type of"),
        ({"target": "user,item"}, "--target user,item is several edge types of"),
        ({"model": "sage"}, "--model sage is for graphs of one type"),
        ({"negative_draws": "degree"}, "in-degree, which sources of user,buys,item do not have: add --neg-sampling"),
        ({"features": "degree"}, "features must be"),
        ({"link_split": "0.9999,0.00005,0.00005"}, "leaves no edges for valid"),
        ({"sampler": "fastgcn"}, "--sampler fastgcn is for graphs of one type"),
        ({"task": "classification", "decoder": "dot"}, "--decoder is for links: add --task link, or remove it"),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_line(
    plain: Dataset, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    options = {name: value for name, value in {**OPTIONS, **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        train(plain, out=tmp_path / "run", **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["evaluate"], ["neighbors", "0"], ["predict", "--out", "predictions"]])
def test_other_commands_refuse_the_run_in_one_line(
    whole: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *others = command
    assert run_command([name, str(whole), *others]) == 2
    assert "typed-link" in " ".join(capsys.readouterr().err.split())
