"""A dataset in a notebook: tables of its types, from the manifest alone."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.budget import format_bytes
from diskhop.dataset.files import dataset_files
from diskhop.dataset.manifest import SPLIT_NAMES, EdgeType, Manifest, NodeType
from diskhop.display import Facts, Grid, Part

# Graphs of thousands of relations are not shown whole.
_MOST_TYPES = 40


def dataset_parts(manifest: Manifest, path: str) -> Sequence[Part]:
    """Return the parts of a dataset: where it is, its types of nodes and edges, its triples."""
    num_bytes = sum(entry.num_bytes for _, entry in dataset_files(manifest))
    facts = [("path", path), ("size", format_bytes(num_bytes))]
    if manifest.triples is not None:
        parts = ", ".join(f"{count:,} {part}" for part, count in manifest.triples.parts.items())
        facts.append(("triples", f"{parts}, {manifest.triples.num_relations:,} relations"))
    shown: list[Part] = [Facts(facts)]
    nodes = list(manifest.node_types.items())
    shown.append(
        Grid(["type", "nodes", "features", "labels", "split"], [_nodes(*each) for each in nodes[:_MOST_TYPES]])
    )
    edges = list(manifest.edge_types.items())
    if edges:
        columns = ["type", "edges", "from", "to", "values"]
        shown.append(Grid(columns, [_edges(*each) for each in edges[:_MOST_TYPES]]))
    more = len(nodes[_MOST_TYPES:]) + len(edges[_MOST_TYPES:])
    return [*shown, Facts([("more", f"{more:,} types")])] if more else shown


def _nodes(name: str, info: NodeType) -> list[str]:
    features, labels = info.features, info.labels
    split = info.splits[0] if len(info.splits) == 1 else {}
    sizes = ", ".join(f"{split[part]:,} {part}" for part in SPLIT_NAMES if part in split)
    return [
        name,
        f"{info.count:,}",
        "" if features is None else f"{features.dim} {features.dtype}",
        "" if labels is None else f"{labels.num_tasks or labels.num_classes:,} {labels.kind}",
        sizes if len(info.splits) < 2 else f"{len(info.splits)} splits",
    ]


def _edges(name: str, info: EdgeType) -> list[str]:
    known = {"weights": info.weights, "times": info.times}
    values = [what for what, has in known.items() if has]
    values += [each for each, attribute in info.attributes.items() if not attribute.stored_as]
    return [name, f"{info.count:,}", info.source, info.destination, ", ".join(values)]
