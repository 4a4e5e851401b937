"""Generated typed graphs: their shapes, their proportions, and the same bytes for any budget and threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.generating import SHAPES, TypedConfig, generate_typed_graph, typed_result_bytes
from diskhop.generating.typed import typed_edges
from tests.graphs import folder_bytes, threads_engine


def generated(path: Path, threads: int = 1, memory_bytes: int = 1 << 30, **wanted: Any) -> Dataset:
    config = TypedConfig(**wanted)
    return generate_typed_graph(path, config, engine=threads_engine(), budget=Budget(memory_bytes), threads=threads)


@pytest.mark.parametrize("shape", SHAPES)
def test_neither_threads_nor_budget_change_a_byte(shape: str, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"shape": shape, "num_nodes": 4000, "num_edges": 900_000, "dim": 8, "seed": 3}
    expected = folder_bytes(generated(tmp_path / "one", **wanted).path)
    assert folder_bytes(generated(tmp_path / "two", threads=2, memory_bytes=30_000_000, **wanted).path) == expected
    actual = sum(len(content) for name, content in expected.items() if name.endswith(".bin") and "/" in name)
    assert typed_result_bytes(TypedConfig(**wanted)) == pytest.approx(actual, rel=0.001)
    other = folder_bytes(generated(tmp_path / "other", **wanted | {"seed": 4}).path)
    assert all(other[name] != content for name, content in expected.items() if name.endswith("indices.bin"))


def test_mag_has_the_proportions_of_mag240m() -> None:
    config = TypedConfig(shape="mag", num_nodes=244_160_499)
    published = {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721}
    assert config.node_counts() == published
    assert config.edge_counts() == SHAPES["mag"].edges
    assert sum(TypedConfig(shape="mag", num_nodes=3, num_edges=58).edge_counts().values()) == 58
    assert config.nodes_config("paper").dtype == "float16"


def test_types_have_what_their_shape_says(tmp_path: Path) -> None:
    dataset = generated(tmp_path / "graph", num_nodes=5000, num_edges=40_000, seed=1)
    nodes = {name: (each.num_nodes, each.feature_dim, each.num_classes) for name, each in dataset.nodes.items()}
    assert nodes == {"user": (3500, 32, 8), "item": (1475, 64, 0), "shop": (25, 0, 0)}
    assert {name: each.num_edges for name, each in dataset.edges.items()} == {
        "user__buys__item": 24_000,
        "shop__sells__item": 4000,
        "user__follows__user": 12_000,
    }
    train = dataset.nodes["user"].split("train")
    assert train is not None
    assert len(train) == 350
    assert dataset.nodes["item"].num_splits == 0


def test_ends_are_skewed_cover_their_types_and_popular_everywhere() -> None:
    config = TypedConfig(num_nodes=2000, num_edges=200_000, seed=5)
    buys, follows = (typed_edges(config, ends) for ends in (("user", "buys", "item"), ("user", "follows", "user")))
    sources, destinations = buys.read(0, buys.num_edges)
    bought, popular = np.bincount(destinations, minlength=590), np.bincount(sources, minlength=1400)
    assert len(bought) == 590
    assert (bought > 0).mean() > 0.95
    assert np.sort(bought)[-59:].sum() > 0.2 * len(destinations)
    followers = np.bincount(follows.read(0, follows.num_edges)[0], minlength=1400)
    assert np.corrcoef(popular, followers)[0, 1] > 0.9
    first, second = (np.concatenate(parts) for parts in zip(buys.read(0, 70), buys.read(70, 50), strict=True))
    np.testing.assert_array_equal(first, sources[:120])
    np.testing.assert_array_equal(second, destinations[:120])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": "star"}, "shape must be one of company, mag, got 'star'"),
        ({"num_nodes": 2}, "num_nodes must be from 3 to"),
        ({"num_classes": 1}, "num_classes must be 0 for no labels, or at least 2"),
        ({"eval_fraction": 0.9}, "--eval-fraction must be from 0 to half of what --train-fraction leaves"),
    ],
)
def test_what_cannot_be_made_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TypedConfig(**change)
    assert words in str(caught.value)


def test_too_small_a_budget_is_refused_with_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        generated(tmp_path / "graph", memory_bytes=1_000_000, num_nodes=3000)
    assert not (tmp_path / "graph").exists()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(tmp_path / "graph")
    assert run(["generate", "typed", graph, "--shape", "mag", "--nodes", "3000", "--dim", "4", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["nodes"]["paper"]["features"]["dtype"] == "float16"
    assert open_dataset(graph).is_typed
    for line, words in (
        ("typed {} --order hot", "--order has no effect on kind 'typed'"),
        ("uniform {} --shape mag", "--shape is for kind 'typed' only; leave it out for 'uniform'"),
    ):
        assert run(["generate", *line.format(tmp_path / "other").split()]) == 2
        assert words in capsys.readouterr().err
