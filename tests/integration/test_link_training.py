"""Training on links: no edge that is scored carries a message, values depend on the options alone, runs resume."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.runs.links.defaults import resolve_link_config
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from diskhop.sampling.edge_split.rules import TEST, VALID
from diskhop.stores.stores import STORES
from tests.links import OPTIONS, both_ways, message_edges, open_feed, pairs_of
from tests.runs import InterruptedRunError, _Interrupter, assert_same_run, folder_bytes, small_graph
from tests.unit.test_edge_split import links_of, split_of

KILLED_RUN = """
import os, signal, sys
from diskhop.runs.callbacks import Callback
from diskhop.runs.start import train

class Killer(Callback):
    def batch_done(self, progress):
        if (progress.stage, progress.epoch, progress.batch) == ("train", 1, 3):
            os.kill(os.getpid(), signal.SIGKILL)

train(config=sys.argv[1], out=sys.argv[2], callbacks=[Killer()])
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(dataset, out=out, **OPTIONS)
    return out


@pytest.mark.fast(5)
@pytest.mark.parametrize("store", ["memory", "direct", "belady", "packed", "shared"])
@pytest.mark.parametrize("changes", [{}, {"fanout": (-1,), "model": "gcn"}, {"subgraph_type": "induced"}], ids=str)
def test_no_edge_that_is_scored_or_held_out_carries_a_message(
    dataset: Dataset, store: str, changes: dict[str, Any]
) -> None:
    split = split_of(dataset)
    valid, test = (both_ways(links_of(split, part)) for part in (VALID, TEST))
    num_edges = num_messages = 0
    with open_feed(dataset, store=store, **changes) as feed:
        for epoch in range(2):
            with feed.train(epoch) as batches:
                for batch in batches:
                    scored = pairs_of(batch.prepared.links)
                    messages = message_edges(batch.prepared.messages)
                    assert not messages & (both_ways(scored) | valid | test)
                    num_edges += len(batch.prepared.links.positions)
                    num_messages += len(messages)
        for purpose, hidden in ((Purpose.VALID, valid | test), (Purpose.TEST, test)):
            with feed.measure(purpose) as batches:
                assert not any(message_edges(batch.prepared.messages) & hidden for batch in batches)
    assert num_edges == 2 * len(split.links[0])
    assert num_messages > 0


def test_a_split_in_use_is_not_cleaned(tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph")
    with open_feed(dataset, epochs=1) as feed:
        assert run_command(["clean", str(dataset.path)]) == 0
        (split,) = dataset.path.glob("derived/links-*")
        with feed.measure(Purpose.TEST) as batches:
            assert len(list(batches)) > 0
    del feed, batches
    gc.collect()
    assert run_command(["clean", str(dataset.path)]) == 0
    assert not split.exists()


def test_the_default_batch_of_a_small_graph_leaves_edges_for_messages(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph")
    given = {name: value for name, value in OPTIONS.items() if name != "batch_size"}
    config, choices, task = resolve_link_config(graph, given)
    assert config.batch_size == -(-task.num_edges[Purpose.TRAIN] // 10)
    (why,) = [each.why for each in choices if each.option == "batch_size"]
    assert "a tenth at most" in why
    with open_feed(graph, batch_size=config.batch_size) as feed, feed.train(0) as batches:
        assert all(len(batch.prepared.messages.sources) > 0 for batch in batches)


def test_supervision_edges_are_kept_on_request(dataset: Dataset) -> None:
    with open_feed(dataset, keep_supervision=True, fanout=(-1,)) as feed, feed.train(0) as batches:
        for batch in batches:
            assert message_edges(batch.prepared.messages) & pairs_of(batch.prepared.links)
            assert batch.prepared.messages is batch.sampled


def test_a_killed_run_resumes_to_the_bytes_of_one_never_interrupted(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(whole / "config.toml"), str(tmp_path / "killed")]
    assert subprocess.run(command, check=False, timeout=500).returncode == -9
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    train(out=tmp_path / "killed", resume=True)
    assert_same_run(whole, tmp_path / "killed")


def test_a_run_resumes_after_its_split_was_removed(dataset: Dataset, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError):
        train(dataset, out=tmp_path / "run", callbacks=[_Interrupter(1)], **OPTIONS)
    path = Path(json.loads((whole / "result.json").read_bytes())["split"]["path"])
    before = folder_bytes(path)
    assert run_command(["clean", str(dataset.path)]) == 0
    assert not path.exists()
    train(out=tmp_path / "run", resume=True)
    assert folder_bytes(path) == before
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.fast("packed", "belady")
@pytest.mark.parametrize("store", STORES)
def test_every_store_trains_the_same_model(dataset: Dataset, whole: Path, tmp_path: Path, store: str) -> None:
    ordered = {"ordered": True} if store == "shared" else {}
    train(dataset, out=tmp_path / "run", **{**OPTIONS, "store": store, **ordered})
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.fast(1)
@pytest.mark.parametrize("changes", [{"threads": 2}, {"memory_bytes": 40_000_000}, {"store": "packed", "disk": "1GB"}])
def test_threads_memory_and_packing_ahead_change_no_value(
    dataset: Dataset, whole: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    train(dataset, out=tmp_path / "run", **{**OPTIONS, **changes})
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.fast(4)
@pytest.mark.parametrize(
    "changes",
    [
        {"decoder": "mlp", "loss": "margin"},
        {"decoder": "cosine", "loss": "contrastive", "negatives": 3},
        {"decoder": "distmult", "negative_draws": "degree", "neg_sampling": "triplet"},
        {"model": "gat", "heads": 2, "metric": "mrr", "eval_candidates": 50, "eval_filtered": True},
        {"model": "gcn", "metric": "hits_at_10", "eval_candidates": 50, "layers": 1, "fanout": (4,)},
        {"sampler": "labor", "epochs": 1},
        {"accumulate": 2, "clip_norm": 1.0, "lr_schedule": "plateau"},
    ],
    ids=str,
)
def test_every_way_to_train_gives_finite_losses_and_metrics(dataset: Dataset, changes: dict[str, Any]) -> None:
    options = {**OPTIONS, "epochs": 2, **changes}
    result = train(dataset, **options).result
    metric = options.get("metric", "auc")
    assert result["metric"] == metric
    assert 0 < result["test"][metric] <= 1
    assert all(np.isfinite(epoch["loss"]) and 0 < epoch["valid"] <= 1 for epoch in result["epochs"])
    if "eval_candidates" in changes:
        protocol = result["test"]["protocol"]
        assert (protocol["candidates"], protocol["filtered"]) == (50, changes.get("eval_filtered", False))


def test_a_model_learns_which_nodes_have_edges(dataset: Dataset) -> None:
    options = {**OPTIONS, "epochs": 10, "normalize_input": False, "lr": 0.01, "fanout": (-1,)}
    result = train(dataset, **options).result
    # Nine edges in ten are within one of four classes: a model of the classes alone reaches about .8.
    assert result["test"]["auc"] > 0.7


def test_a_graph_without_features_trains_on_those_that_are_made(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "plain", dim=0)
    result = train(graph, **{**OPTIONS, "epochs": 1, "features": "random"}).result
    assert 0 < result["test"]["auc"] <= 1


def test_the_plan_compares_stores_and_writes_nothing(dataset: Dataset, tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "fresh")
    ranking = plan_run(graph, **OPTIONS)
    assert {option.name for option in ranking.options} == set(STORES)
    assert not list(graph.path.glob("derived/links-*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"link_split": "0.8,0.1,0.2"},
            "link_split must be shares of training, validation and test edges that sum",
        ),
        ({"margin": 2.0}, "--margin needs --loss margin, got cross-entropy: add it, or remove --margin"),
        ({"decoder": "magic"}, "unknown decoder 'magic'"),
        ({"metric": "accuracy"}, "unknown metric 'accuracy'; the known ones are auc, ap, mrr"),
        ({"loss": "mse"}, "unknown loss 'mse'; the known ones are cross-entropy, contrastive, margin"),
        ({"model": "sign"}, "--task link is for sage, gcn, gat, not for model 'sign'"),
        ({"class_weights": "balanced"}, "--class-weights is for tasks on nodes, not for --task link: remove it"),
        ({"task": "classification", "decoder": "dot"}, "--decoder is for links: add --task link, or remove it"),
        ({"link_split": "1,0,0", "lr_schedule": "plateau"}, "plateau needs validation edges"),
        ({"link_split": "nowhere"}, "valid.npy: is missing"),
        ({"link_split": "0.9999,0.00005,0.00005"}, "leaves no edges for valid"),
        ({"store": "nowhere"}, "unknown store 'nowhere'"),
        ({"sampler": "saint-node"}, "--sampler saint-node arranges its own batches"),
        ({"sampler": "marius"}, "--sampler marius arranges its own batches"),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_line(
    dataset: Dataset, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        train(dataset, out=tmp_path / "run", **{**OPTIONS, **changes})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_options_on_the_command_line(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", str(dataset.path), "--task", "link", "--link-split", ".8,.1,.2"]
    assert run_command(words) == 2
    assert "--link-split must be shares" in " ".join(capsys.readouterr().err.split())
    words = [
        "train",
        str(dataset.path),
        "--task",
        "link",
        "--link-split",
        ".85,.05,.1",
        "--hidden",
        "8",
        "--epochs",
        "1",
    ]
    assert run_command([*words, "--epochs", "1", "--memory", "200MB", "--out", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["kind"] == "link"
    assert sum(result["split"]["edges"].values()) == dataset.num_edges
    assert result["test"]["random_pairs"] == result["split"]["edges"]["test"]
