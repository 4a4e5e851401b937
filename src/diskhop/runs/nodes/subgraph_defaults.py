"""Defaults of samplers that choose the nodes of batches, or the partitions that they are in."""

from __future__ import annotations

from diskhop.config.options import require
from diskhop.config.sampler import CLUSTER, SAINT_EDGE, SAINT_NODE, SAINT_WALK
from diskhop.dataset.dataset import Dataset
from diskhop.runs.choices import Choices, presumed_memory

# A node's neighbours count only where they are in its batch. With as many draws as nodes, half of them are.
_MOST_NODES_DRAWN = 131_072
# As many batches have features that fit into the memory, since several are in flight.
_BATCHES_THAT_FIT = 32
_WALK_LENGTH = 2
_PARTITIONS = 48
_NODES_PER_CLUSTER, _MOST_CLUSTERS = 100, 15_000
# Of clusters in a batch: a fifth of the graph keeps most edges of sparse graphs, within these bounds.
_SHARE_OF_NODES, _FEWEST_NODES, _MOST_NODES = 1 / 5, 2000, 32_768
# Nodes in all batches that are counted for norms, at most; a graph's nodes are drawn this often at least and at most.
_MOST_COUNTED = 40_000_000
_LEAST_COVERAGE, _MOST_COVERAGE = 5, 100


def choose_subgraphs(dataset: Dataset, choices: Choices) -> int:
    """Choose batch size, walks, norms or clusters, and return the number of batches per epoch."""
    sampler = choices.given["sampler"]
    return _choose_clusters(dataset, choices) if sampler == CLUSTER else _choose_draws(dataset, choices, sampler)


def _choose_clusters(dataset: Dataset, choices: Choices) -> int:
    num_clusters = max(1, min(_MOST_CLUSTERS, dataset.num_nodes // _NODES_PER_CLUSTER))
    why = f"about {dataset.num_nodes // num_clusters} nodes each, found once per dataset"
    num_clusters = int(choices.choose("clusters", num_clusters, why))
    require(num_clusters > 0, "clusters", "at least 1", num_clusters, "remove --clusters, or use --clusters 2")
    most = min(_MOST_NODES, _fitting_nodes(dataset, choices))
    wanted = max(_FEWEST_NODES, min(most, int(_SHARE_OF_NODES * dataset.num_nodes)))
    per_batch = max(1, min(num_clusters, wanted * num_clusters // max(1, dataset.num_nodes)))
    why = f"clusters per batch, about {per_batch * dataset.num_nodes // max(1, num_clusters)} nodes"
    return -(-num_clusters // int(choices.choose("batch_size", per_batch, why)))


def _choose_draws(dataset: Dataset, choices: Choices, sampler: str) -> int:
    nodes_per_draw = 2 if sampler == SAINT_EDGE else 1
    if sampler == SAINT_WALK:
        num_steps = int(choices.choose("walk_length", _WALK_LENGTH, "steps: a walk has one node more"))
        require(num_steps > 0, "walk_length", "at least 1", num_steps, "remove --walk-length, or use --walk-length 2")
        nodes_per_draw += num_steps
    what = {SAINT_EDGE: "edges", SAINT_WALK: "walks"}.get(sampler, "nodes")
    most = max(_FEWEST_NODES, min(_MOST_NODES_DRAWN, _fitting_nodes(dataset, choices)))
    num_draws = max(1, -(-min(most, dataset.num_nodes) // nodes_per_draw))
    num_draws = choices.choose("batch_size", num_draws, f"{what} per batch, drawn from {dataset.num_nodes} nodes")
    if choices.complete["model"] == "gat":
        choices.choose("sample_coverage", 0, "gat weighs edges itself, and has no norms")
    elif sampler == SAINT_NODE and 2 * int(num_draws) >= dataset.num_nodes:
        choices.choose("sample_coverage", 0, "batches have most nodes, and norms of the rarely drawn would spread")
    else:
        coverage = max(_LEAST_COVERAGE, min(_MOST_COVERAGE, _MOST_COUNTED // max(1, dataset.num_nodes)))
        choices.choose("sample_coverage", coverage, "how often each node is drawn to count norms, once per dataset")
    return max(1, -(-dataset.num_nodes // int(num_draws * nodes_per_draw)))


def _fitting_nodes(dataset: Dataset, choices: Choices) -> int:
    """Most nodes of a batch by the memory, at float32."""
    memory_bytes = presumed_memory(choices.given)
    return int(memory_bytes // (_BATCHES_THAT_FIT * 4 * max(1, dataset.feature_dim)))


def choose_partitions(dataset: Dataset, choices: Choices) -> None:
    """Choose the partitions of marius, and how many of them are resident."""
    why = "enough to mix nodes that follow each other, few enough for large reads"
    num_partitions = int(choices.choose("node_partitions", _PARTITIONS, why))
    memory_bytes = presumed_memory(choices.given)
    table = dataset.feature_table()
    table_bytes = 0 if table is None else table.num_rows * table.row_bytes
    fits = num_partitions if 2 * table_bytes <= memory_bytes else num_partitions * memory_bytes // (2 * table_bytes)
    divisors = [each for each in range(1, num_partitions) if num_partitions % each == 0 and 2 * each <= fits]
    resident = num_partitions if fits >= num_partitions else 2 * max(divisors, default=1)
    choices.choose("resident_partitions", resident, "their features fit half of the memory")
