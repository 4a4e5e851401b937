"""Sizes of a graph's embeddings: nodes, edges, relations and their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.graph_edges import block_bytes, embedded_nodes
from diskhop.embedding.partitions.sort import counts_bytes
from diskhop.embedding.ranking.evaluate import evaluation_bytes
from diskhop.embedding.ranking.groups import group_bytes
from diskhop.embedding.ranking.protocol import num_candidates


def embed_size(dataset: Dataset, config: EmbedConfig, sorters: int = 1) -> EmbedSize:
    """Return the sizes of a dataset's embeddings for a configuration. sorters: processes that sort edges."""
    triples, num_edges = dataset.manifest.triples, _count_edges(dataset)
    parts = {} if triples is None else triples.parts
    most = max(parts.get("valid", 0), parts.get("test", 0))
    if "train" not in parts:
        most = int(num_edges * max(config.valid_share, config.test_share))
    num_nodes = embedded_nodes(dataset).num_nodes
    num_known = num_edges + parts.get("valid", 0) + parts.get("test", 0)
    return EmbedSize(
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_relations=dataset.num_relations,
        block_bytes=sorters * block_bytes(num_edges) + counts_bytes(num_edges, config.partitions),
        measure_bytes=evaluation_bytes(
            min(most, config.eval_edges or most),
            num_known if config.eval_filtered else 0,
            config.dim,
            num_candidates(config.eval_candidates, num_nodes),
            group_bytes(config.memory_bytes),
        ),
    )


def _count_edges(dataset: Dataset) -> int:
    triples = dataset.manifest.triples
    return dataset.num_edges if triples is None else triples.parts.get("train", triples.parts.get("all", 0))


@dataclass(frozen=True, slots=True)
class EmbedSize:
    """Sizes of a graph for embeddings.

    num_nodes, num_edges, num_relations: counts; edges are those of training.
    block_bytes: memory while edges are read and sorted into buckets.
    measure_bytes: memory while edges are ranked.
    """

    num_nodes: int
    num_edges: int
    num_relations: int
    block_bytes: int
    measure_bytes: int
