"""Options that suit a graph: a pure function of facts, and the facts of a dataset."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.config.options import dump_config, load_config
from diskhop.config.sampled import SampledConfig
from diskhop.errors import ConfigError, ReadError
from diskhop.runs.folder import require_same_run
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.graph_facts import GraphFacts, read_facts
from diskhop.runs.nodes.recipes import choose_defaults
from diskhop.runs.source import find_run_source
from tests.batched import build_graph
from tests.graphs import make_dataset

USUAL = GraphFacts(
    num_nodes=100_000, num_edges=1_000_000, num_train=60_000, num_columns=128, filled=1.0, has_negative=True
)
FEW_LABELS = replace(USUAL, num_train=140)
WORDS = replace(USUAL, filled=0.01, has_negative=False)
FEW_COLUMNS = replace(USUAL, num_columns=7)


def chosen(facts: GraphFacts, model: str) -> dict[str, Any]:
    return {option: value for option, value, _ in choose_defaults(facts, model)}


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "sign", "hoga"])
def test_a_usual_graph_has_the_usual_options(model: str) -> None:
    assert chosen(USUAL, model) == {}
    assert chosen(replace(USUAL, num_nodes=10**9, num_edges=10**10), model) == {}


def test_one_linear_layer_trains_until_it_has_converged() -> None:
    assert chosen(USUAL, "sgc") == {"epochs": 30, "hops": 4}
    assert chosen(replace(USUAL, num_train=15_000), "sgc")["epochs"] == 100
    assert chosen(FEW_LABELS, "sgc") == {"epochs": 100, "eval_every": 100}


def test_few_labels_need_regularisation() -> None:
    found = chosen(FEW_LABELS, "gcn")
    assert found == {"lr": 0.01, "weight_decay": 5e-4, "input_dropout": 0.5, "norm": "none", "fanout": (-1,)}
    assert chosen(replace(FEW_LABELS, num_edges=10**9), "gcn").keys() == found.keys() - {"fanout"}
    assert chosen(FEW_LABELS, "sign") | {"norm": "batch", "layers": 1} == chosen(FEW_LABELS, "sign")
    # Many nodes of a small graph are not few, nor is a batch that is not full of a large one.
    assert chosen(replace(USUAL, num_nodes=890, num_train=427), "sage") == {}
    assert chosen(replace(USUAL, num_nodes=10**7, num_train=1001), "sage") == {}


def test_rows_of_counts_are_divided_by_their_sums() -> None:
    assert chosen(WORDS, "sage") == {"normalize_input": True}
    linear = {"normalize_input": True, "lr": 0.2, "weight_decay": 5e-5, "epochs": 30, "hops": 4}
    assert chosen(WORDS, "sgc") == linear
    assert chosen(replace(WORDS, filled=0.3), "sage") == {}
    assert chosen(replace(WORDS, has_negative=True), "sage") == {}
    assert chosen(replace(WORDS, filled=0.0), "sage") == {}


def test_few_columns_need_many_layers_where_a_batch_is_bounded_by_the_graph() -> None:
    assert chosen(FEW_COLUMNS, "sage") == {"layers": 5, "hidden": 64, "dropout": 0.2, "residual": True}
    assert chosen(FEW_COLUMNS, "gcn") == {"layers": 5, "hidden": 64, "dropout": 0.2, "self_term": True}
    assert chosen(replace(FEW_COLUMNS, num_edges=10**8), "sage") == {}
    assert chosen(replace(FEW_COLUMNS, num_columns=0), "sage") == {}
    assert chosen(FEW_COLUMNS, "sign") == {}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_facts_are_those_of_the_rows(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    features = (rng.random((3000, 20)) < 0.1).astype(np.float32)
    dataset = build_graph(tmp_path / "words", rng.integers(0, 3000, (2, 9000)), features, dtype=dtype)
    facts = read_facts(dataset, 77)
    assert (facts.num_nodes, facts.num_edges, facts.num_train, facts.num_columns) == (3000, 9000, 77, 20)
    assert abs(facts.filled - 0.1) < 0.02
    assert not facts.has_negative
    features[::2, 3] = -1
    dataset = build_graph(tmp_path / "numbers", rng.integers(0, 3000, (2, 9000)), features, dtype=dtype)
    assert read_facts(dataset, 77).has_negative


def test_features_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=30, num_edges=90, dim=4)
    table = dataset.feature_table()
    assert table is not None
    table.path.unlink()
    with pytest.raises(ReadError, match=r"features.bin: cannot be read: No such file.*diskhop verify"):
        read_facts(dataset, 1)


GIVEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": "gcn", "residual": True}, {"self_term": False}),
    ({"model": "gcn"}, {"self_term": True}),
    ({"model": "sgc", "epochs": 3}, {"epochs": 3, "hops": 4}),
    ({"fanout": (5, 5, 5)}, {"layers": 3, "hidden": 64}),
    ({"layers": 2}, {"layers": 2, "fanout": (10, 10)}),
    ({"dropout": 0.0}, {"dropout": 0.0, "layers": 5, "fanout": (10,) * 5}),
]


@pytest.mark.parametrize(("given", "expected"), GIVEN)
def test_given_options_win_and_chosen_ones_go_with_them(
    tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=300, num_edges=900, dim=4)
    config = resolve_config(dataset, given).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_repeated_run_reads_no_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=300, num_edges=900, dim=4)
    config = resolve_config(dataset, {"model": "gcn"}).config
    monkeypatch.setattr("diskhop.runs.nodes.defaults.read_facts", lambda *_: pytest.fail("facts were read"))
    assert resolve_config(dataset, asdict(config)).config == config


def test_a_run_from_before_an_option_goes_on_as_it_was(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=300, num_edges=900, dim=4)
    chosen = resolve_config(dataset, {"model": "gcn"}).config
    assert isinstance(chosen, SampledConfig)
    assert chosen.self_term, "the default of today"
    path = tmp_path / "run" / "config.toml"
    path.parent.mkdir()
    lines = dump_config(chosen, "node", str(dataset.path), dataset.hash).splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("self_term")))
    kinds = {"node": SampledConfig}
    for place in ({"out": path.parent, "resume": True}, {"config": path}):
        source = find_run_source(dataset, {}, kinds, **place)
        resumed = resolve_config(source.dataset, source.options).config
        assert resumed == replace(chosen, self_term=False)
    saved = load_config(path, (SampledConfig,))
    require_same_run(path, saved, resumed, dataset)
    message = "--self-term is False in the run, not True; remove --self-term, or name a new folder with --out"
    with pytest.raises(ConfigError, match=message):
        require_same_run(path, saved, chosen, dataset)
    path.write_text(path.read_text().replace('kind = "node"', ""))
    source = find_run_source(dataset, {}, kinds, config=path)
    assert "self_term" not in source.options, "a file of one's own leaves options to be chosen"
