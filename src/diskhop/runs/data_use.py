"""Parts of a dataset that a run leaves out, as lines of its table of choices."""

from __future__ import annotations

from diskhop.config.train import IGNORE, MODELS_WITHOUT_WEIGHTS, USE
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.models import LAYERS
from diskhop.run_files import EMBEDDING
from diskhop.runs.choices import Choice

_IGNORED = "ignored"
_OPTION = "edge_weights"


def edge_weights_of(
    dataset: Dataset, model: str, direction: str, given: str | None, *, is_drawn: bool = False
) -> Choice | None:
    """Return whether a model's sums use the weights of edges, and why; None for a dataset without weights.

    direction: that of hop tables; in for other models. given: the option, if it is given. is_drawn: whether neighbours
    are drawn by weights. Raises ConfigError if there are no weights to use.
    """
    if not any(each.weights for each in dataset.manifest.edge_types.values()):
        if given == USE:
            raise ConfigError(
                f"{dataset.path}: has no edge weights, which --edge-weights use needs; remove it, or import the graph "
                "with weights (--weight COLUMN)"
            )
        return None
    if given is not None:
        return Choice(_OPTION, given, "requested")
    if model in MODELS_WITHOUT_WEIGHTS:
        return Choice(_OPTION, IGNORE, f"{model} weighs edges itself")
    if direction != "in":
        return Choice(_OPTION, IGNORE, "they are those of --direction in")
    how = ", and draw neighbours" if is_drawn else ", and neighbours are drawn uniformly"
    return Choice(_OPTION, USE, f"the graph has some{how if model in LAYERS else ''}")


def ignored_parts(dataset: Dataset, kind: str) -> list[Choice]:
    """Return a line for each part that the dataset has and a run of this kind does not use; kind: see run_files.

    Weights of edges are an option of runs on nodes and hops.
    """
    edges = dataset.manifest.edge_types.values()
    found = []
    if kind == EMBEDDING and any(each.weights for each in edges):
        found.append(Choice("edge weights", _IGNORED, "all edges count the same in the loss"))
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
