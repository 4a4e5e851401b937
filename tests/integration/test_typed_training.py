"""Claims about training on graphs with several types of nodes or edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import diskhop
from diskhop.config.typed import TypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.runs.callbacks import Callback
from diskhop.stores.stores import STORES
from tests.typed_graphs import typed_dataset

OPTIONS: dict[str, Any] = {"memory": "80MB", "epochs": 3, "batch_size": 25, "hidden": 16, "heads": 2, "fanout": (3, 2)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return typed_dataset(tmp_path_factory.mktemp("typed") / "graph")[1]


def losses(trained: Any) -> list[float]:
    return [epoch["loss"] for epoch in trained.result["epochs"]]


@pytest.mark.fast("hetero-sage", "rgcn")
@pytest.mark.parametrize("model", TYPED_MODELS)
def test_every_model_learns_the_training_nodes(dataset: Dataset, model: str) -> None:
    options = {**OPTIONS, "epochs": 40, "lr": 0.02, "dropout": 0.0, "patience": 0, "eval_every": 40}
    trained = diskhop.train(dataset, model=model, **options)
    first, *_, last = losses(trained)
    assert last < 0.6 * first
    assert trained.result["kind"] == "typed"
    assert set(trained.result["test"]) == {"accuracy"}


@pytest.mark.fast("packed", "belady")
@pytest.mark.parametrize("store", ["direct", "static", "belady", "shared", "packed"])
def test_stores_train_the_same_model(dataset: Dataset, store: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "store": store}
    options |= {"ordered": True} if store == "shared" else {}
    options |= {"scratch": str(tmp_path / "scratch")} if store in ("belady", "packed") else {}
    found = diskhop.train(dataset, **options)
    expected = diskhop.train(dataset, store="memory", **OPTIONS)
    assert losses(found) == losses(expected)
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor)
    for trained, name in ((found, store), (expected, "memory")):
        if STORES[name].lends:
            assert trained.result["plan"]["bytes_assembled"] == 0, "the model reads rows where the store has them"


def test_accumulated_batches_are_one_large_batch(dataset: Dataset) -> None:
    """Also of parameters that the model adds up, to which torch gives one gradient in common."""
    options: dict[str, Any] = {**OPTIONS, "fanout": (-1, -1), "dropout": 0.0, "evaluate": False, "clip_norm": 0.5}
    large = diskhop.train(dataset, **{**options, "batch_size": 20})
    parts = diskhop.train(dataset, accumulate=4, **{**options, "batch_size": 5})
    assert losses(parts) == pytest.approx(losses(large), rel=1e-5)
    for name, tensor in large.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor, rtol=0, atol=2e-5)


class _Stop(Callback):
    def epoch_done(self, record: dict[str, Any]) -> bool:
        return bool(record["epoch"] == 0)


def test_a_resumed_run_ends_with_the_same_bits(dataset: Dataset, tmp_path: Path) -> None:
    whole = diskhop.train(dataset, out=tmp_path / "whole", **OPTIONS)
    diskhop.train(dataset, out=tmp_path / "cut", callbacks=[_Stop()], **OPTIONS)
    (tmp_path / "cut" / "result.json").unlink()
    resumed = diskhop.train(out=tmp_path / "cut", resume=True)
    assert losses(resumed) == losses(whole)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor)
    learned = whole.model.state_dict()["learned.venue.values"]
    assert learned.shape == (5, 16)


@pytest.mark.parametrize("features", ["learned", "random", "degree"])
def test_types_without_features_get_some(dataset: Dataset, features: str) -> None:
    trained = diskhop.train(dataset, features=features, **OPTIONS)
    assert any("learned" in name for name in trained.model.state_dict()) == (features == "learned")
    reserved = trained.result["plan"]["reserved"]
    assert "feature table (paper)" in reserved or "cache (paper)" in reserved or "store" in trained.result["plan"]


def test_fan_outs_of_an_edge_type_and_no_reverse_types(dataset: Dataset) -> None:
    trained = diskhop.train(
        dataset, reverse=("none",), type_fanout=("paper__cites__paper=1,0", "author__writes__paper=5,5"), **OPTIONS
    )
    assert set(trained.result["types"]["edges"]) == {
        "author__writes__paper",
        "paper__cites__paper",
        "paper__in__venue",
        "venue__has__paper",
        "paper__by__author",
        "author__knows__author",
    }


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "labor", "batch_dependency": 4, "type_fanout": ("paper__cites__paper=1,0",)},
        {"sampler": "hgt", "fanout": (12, 6), "type_fanout": ("venue=1,0",)},
    ],
)
def test_samplers_by_type_train_the_same_model_with_every_store(
    dataset: Dataset, options: dict[str, Any], tmp_path: Path
) -> None:
    given = {**OPTIONS, "model": "hgt", **options}
    found = diskhop.train(dataset, store="packed", scratch=str(tmp_path / "scratch"), **given)
    expected = diskhop.train(dataset, store="memory", **given)
    assert losses(found) == losses(expected)
    assert losses(found) != losses(diskhop.train(dataset, store="memory", **OPTIONS, model="hgt"))


def test_hgt_draws_512_nodes_of_each_type_by_default(dataset: Dataset) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "fanout"}
    config = diskhop.train(dataset, sampler="hgt", **options).config
    assert isinstance(config, TypedConfig)
    assert config.fanout == (512, 512)


def test_missing_opposites_are_added_by_default(dataset: Dataset) -> None:
    trained = diskhop.train(dataset, **OPTIONS)
    assert "paper__rev_cites__paper" in trained.result["types"]["edges"]
    assert "paper__rev_writes__author" not in trained.result["types"]["edges"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "writer"}, "--target writer.*no such node type, only author, paper, venue"),
        ({"target": "paper,cites,paper"}, "no such node type, only author, paper, venue; to learn edges.*--task link"),
        ({"target": "venue"}, "--target venue.*no labels.*--target paper"),
        ({"model": "sage"}, "--model sage is for graphs of one type.*hetero-sage"),
        ({"model": "sgc"}, "--fanout is for hetero-sage, rgcn, .*, not for model 'sgc': remove it"),
        ({"reverse": ("likes",)}, "--reverse likes.*no such edge type, only"),
        ({"type_fanout": ("paper__likes__paper=1,1",)}, "'paper__likes__paper', which the graph does not have"),
        ({"type_fanout": ("paper__cites__paper=1",)}, "1 counts, and the sampler 2 hops"),
        ({"sampler": "cluster"}, "--sampler cluster is for graphs of one type.*use --sampler neighbor or labor or hgt"),
        ({"sampler": "ladies"}, "--sampler ladies is for graphs of one type: it weighs edges"),
        ({"sampler": "marius"}, "--sampler marius is for graphs of one type: it divides consecutive nodes"),
        ({"sampler": "labor", "importance": 1}, "--importance 1 weighs edges.*remove it"),
        ({"sampler": "hgt", "type_fanout": ("writer=1,1",)}, "node type 'writer', which the graph does not have"),
        ({"sampler": "hgt", "replace": True}, "--replace is for --sampler neighbor, got hgt"),
        ({"memory": "1MB"}, "--memory"),
    ],
)
def test_bad_options_are_refused_in_a_line(dataset: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        diskhop.train(dataset, **{**OPTIONS, **options})
    assert "\n" not in str(raised.value)
