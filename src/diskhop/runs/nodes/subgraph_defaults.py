"""Defaults of samplers that choose the nodes of batches."""

from __future__ import annotations

from diskhop.config.sampler import SAINT_EDGE, SAINT_WALK
from diskhop.dataset.dataset import Dataset
from diskhop.runs.choices import Choices

_MOST_DRAWS = 1000
_WALK_LENGTH = 2
# Nodes in all batches that are counted for norms, at most; a graph's nodes are drawn this often at least and at most.
_MOST_COUNTED = 40_000_000
_LEAST_COVERAGE, _MOST_COVERAGE = 5, 100


def choose_subgraphs(dataset: Dataset, choices: Choices) -> int:
    """Choose batch size, walks and norms, and return the number of batches per epoch."""
    sampler = choices.given["sampler"]
    nodes_per_draw = 2 if sampler == SAINT_EDGE else 1
    if sampler == SAINT_WALK:
        nodes_per_draw += choices.choose("walk_length", _WALK_LENGTH, "steps: a walk has one node more")
    what = {SAINT_EDGE: "edges", SAINT_WALK: "walks"}.get(sampler, "nodes")
    num_draws = min(_MOST_DRAWS, max(1, dataset.num_nodes // nodes_per_draw))
    num_draws = choices.choose("batch_size", num_draws, f"{what} per batch, drawn from {dataset.num_nodes} nodes")
    if choices.complete["model"] == "gat":
        choices.choose("sample_coverage", 0, "gat weighs edges itself, and has no norms")
    else:
        coverage = max(_LEAST_COVERAGE, min(_MOST_COVERAGE, _MOST_COUNTED // max(1, dataset.num_nodes)))
        choices.choose("sample_coverage", coverage, "how often each node is drawn to count norms, once per dataset")
    return max(1, -(-dataset.num_nodes // int(num_draws * nodes_per_draw)))
