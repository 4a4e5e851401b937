"""Options that suit a knowledge graph: a pure function of its sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.embedding.recipes import choose_embedding_defaults
from tests.embedding import small_triples


def chosen(num_nodes: int, num_edges: int, num_relations: int, model: str, **given: Any) -> dict[str, Any]:
    defaults = choose_embedding_defaults(num_nodes, num_edges, num_relations, model, given)
    return {name: value for name, value, _ in defaults}


def test_a_knowledge_graph_is_trained_in_small_batches_and_ranked_as_published() -> None:
    learning = {"reciprocal": True, "n3": 0.15, "adagrad": "element", "init_scale": 0.01, "lr_schedule": "linear"}
    sizes = {"dim": 256, "batch_size": 2000, "chunk_size": 250, "negatives": 2000, "epochs": 19}
    ranks = {"eval_candidates": 0, "eval_filtered": True}
    assert chosen(14_541, 272_115, 237, "complex") == learning | sizes | ranks


def test_small_and_large_graphs_have_bounds() -> None:
    small = chosen(135, 5216, 46, "distmult")
    assert (small["epochs"], small["batch_size"], small["lr"]) == (40, 260, 0.2)
    sparse = chosen(40_943, 86_835, 11, "complex")
    assert (sparse["batch_size"], sparse["n3"], "dropout" in sparse) == (1000, 0.3, False)
    dense = chosen(2034, 32_888, 42, "complex")
    assert (dense["n3"], dense["dropout"]) == (0.05, 0.3)
    assert chosen(135, 10, 46, "distmult") | {"batch_size": 1, "chunk_size": 1, "negatives": 135} == chosen(
        135, 10, 46, "distmult"
    )
    assert chosen(10**6, 9_000_000, 100, "complex")["epochs"] == 10
    assert "eval_candidates" not in chosen(10**6, 9_000_000, 100, "complex")
    assert chosen(10**6, 10**8, 100, "complex") == {}


@pytest.mark.parametrize(("num_relations", "model"), [(0, "dot"), (237, "transe"), (237, "rotate")])
def test_other_models_keep_the_usual_options(num_relations: int, model: str) -> None:
    assert chosen(14_541, 272_115, num_relations, model) == {}


def test_options_follow_those_that_were_given() -> None:
    graph = (14_541, 272_115, 237, "complex")
    small = chosen(*graph, batch_size=100)
    assert (small["chunk_size"], small["epochs"]) == (100, 10), "a smaller batch takes more steps an epoch"
    assert chosen(*graph, batch_size=4000)["epochs"] == 39
    wide = chosen(*graph, dim=2048)
    assert not {"eval_candidates", "eval_filtered"} & set(wide), "ranks of wide embeddings among all take long"
    narrow = chosen(10**6, 9_000_000, 100, "complex", dim=16)
    assert (narrow["eval_candidates"], narrow["eval_filtered"]) == (0, True)


@pytest.mark.parametrize(("candidates", "is_filtered"), [(0, True), (14_541, True), (1000, False)])
def test_ranks_are_filtered_where_all_nodes_are_candidates(candidates: int, is_filtered: bool) -> None:
    graph = (14_541, 272_115, 237, "complex")
    assert chosen(*graph, eval_candidates=candidates).get("eval_filtered", False) == is_filtered


def test_reasons_are_true_of_the_options_that_were_given() -> None:
    defaults = choose_embedding_defaults(14_541, 272_115, 237, "complex", {"epochs": 3, "batch_size": 1000})
    reasons = {each.option: each.why for each in defaults}
    assert reasons["lr_schedule"] == "ends at 0 after 3 epochs"
    assert reasons["epochs"] == "819 steps"


def test_choices_of_a_run_follow_its_own_options(tmp_path: Path) -> None:
    chosen = resolve_embed_config(small_triples(tmp_path), {"batch_size": 3, "eval_candidates": 5}, None).config
    assert (chosen.chunk_size, chosen.epochs, chosen.eval_filtered) == (3, 40, False)
