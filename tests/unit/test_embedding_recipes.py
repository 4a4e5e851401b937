"""Options that suit a knowledge graph: a pure function of its sizes."""

from __future__ import annotations

from typing import Any

import pytest

from diskhop.runs.embedding.recipes import choose_embedding_defaults


def chosen(num_nodes: int, num_edges: int, num_relations: int, model: str) -> dict[str, Any]:
    return {name: value for name, value, _ in choose_embedding_defaults(num_nodes, num_edges, num_relations, model)}


def test_a_knowledge_graph_is_trained_in_small_batches_and_ranked_as_published() -> None:
    learning = {"reciprocal": True, "n3": 0.15, "adagrad": "element", "init_scale": 0.01, "lr_schedule": "linear"}
    sizes = {"dim": 256, "batch_size": 2000, "chunk_size": 250, "negatives": 2000, "epochs": 19}
    ranks = {"eval_candidates": 0, "eval_filtered": True}
    assert chosen(14_541, 272_115, 237, "complex") == learning | sizes | ranks


def test_small_and_large_graphs_have_bounds() -> None:
    small = chosen(135, 5216, 46, "distmult")
    assert (small["epochs"], small["batch_size"], small["lr"]) == (40, 260, 0.2)
    assert chosen(40_943, 86_835, 11, "complex")["batch_size"] == 1000
    assert chosen(135, 10, 46, "distmult") | {"batch_size": 1, "chunk_size": 1, "negatives": 135} == chosen(
        135, 10, 46, "distmult"
    )
    assert chosen(10**6, 9_000_000, 100, "complex")["epochs"] == 10
    assert "eval_candidates" not in chosen(10**6, 9_000_000, 100, "complex")
    assert chosen(10**6, 10**8, 100, "complex") == {}


@pytest.mark.parametrize(("num_relations", "model"), [(0, "dot"), (237, "transe"), (237, "rotate")])
def test_other_models_keep_the_usual_options(num_relations: int, model: str) -> None:
    assert chosen(14_541, 272_115, num_relations, model) == {}
