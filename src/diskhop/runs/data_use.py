"""Parts of a dataset that a run leaves out, as lines of its table of choices."""

from __future__ import annotations

from diskhop.dataset.dataset import Dataset
from diskhop.run_files import EMBEDDING, HOP, NODE
from diskhop.runs.choices import Choice

_IGNORED = "ignored"
_WHY_WEIGHTS = {
    NODE: "models and sampling treat all edges alike",
    HOP: "the operators treat all edges alike",
    EMBEDDING: "all edges count the same in the loss",
}


def ignored_parts(dataset: Dataset, kind: str) -> list[Choice]:
    """Return a line for each part that the dataset has and a run of this kind does not use; kind: see run_files."""
    edges = dataset.manifest.edge_types.values()
    found = []
    if any(each.weights for each in edges):
        found.append(Choice("edge weights", _IGNORED, _WHY_WEIGHTS[kind]))
    if any(each.times for each in edges):
        found.append(Choice("edge times", _IGNORED, "edges of all times are used"))
    if kind == EMBEDDING and any(nodes.features for nodes in dataset.manifest.node_types.values()):
        found.append(Choice("node features", _IGNORED, "embeddings are learned from the edges alone"))
    if dataset.edges and dataset.manifest.triples is not None:
        if kind == EMBEDDING:
            found.append(Choice("edges", _IGNORED, "the dataset's triples are embedded"))
        else:
            found.append(Choice("triples", _IGNORED, "neighbours are those of the edges"))
    return found
