"""From the options of prediction to columns, tables and sizes: what is refused here is refused before any work."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.config.hop import HopConfig
from diskhop.config.predict import PredictConfig
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.config.train import LINK
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.models import hidden_dim
from diskhop.predicting.columns import Outputs, TableName, default_words
from diskhop.predicting.sizes import OutputSizes, output_sizes
from diskhop.runs.nodes.opened import OpenClassifier


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """Outputs of a model to compute.

    logits: whether the last layer's outputs are wanted.
    layer: number of the layer whose output is the embedding, from 1; 0 for no embedding.
    fanout: neighbours per layer; () for all.
    seed: random seed of sampled neighbours.
    """

    logits: bool = True
    layer: int = 0
    fanout: tuple[int, ...] = ()
    seed: int = 0


def outputs_of(classifier: OpenClassifier, config: PredictConfig) -> Outputs:
    """Return the columns to write. Raises ConfigError for unknown ones."""
    task = classifier.config.task
    return Outputs(
        words=config.what or default_words(task),
        task=task,
        scaling=classifier.scaling,
        embedding_dtype=config.embedding_dtype,
    )


def wanted_of(classifier: OpenClassifier, config: PredictConfig, outputs: Outputs) -> Wanted:
    """Return what to compute. Raises ConfigError for a layer or a fan-out that the model does not have."""
    trained = classifier.config
    is_hop, layers = isinstance(trained, HopConfig), trained.layers
    layer = 0
    if outputs.needs("embedding"):
        layer = config.layer or (layers if trained.task == LINK else max(1, layers - 1))
        if trained.model == "sgc":
            raise ConfigError("--what embedding needs a hidden layer, and sgc has none; use --what logits")
        if is_hop and config.layer:
            raise ConfigError(f"--layer is for sage, gcn and gat; '{trained.model}' has one hidden layer: remove it")
        if layer > layers:
            raise ConfigError(f"--layer must be from 1 to {layers}, the layers of the model, got {layer}")
    elif config.layer:
        raise ConfigError("--layer names the layer of embeddings; add --what embedding, or remove it")
    if config.fanout and is_hop:
        raise ConfigError(f"--fanout is for sage, gcn and gat; '{trained.model}' reads hop tables: remove it")
    if len(config.fanout) not in (0, 1, layers):
        raise ConfigError(
            f"--fanout must have one count for each of {layers} layers, got {len(config.fanout)}; "
            f"for example --fanout {','.join(['20'] * layers)}"
        )
    fanout = () if set(config.fanout) == {ALL_NEIGHBORS} else config.fanout
    logits = outputs.needs("logits") or bool(config.require)
    return Wanted(logits=logits, layer=layer, fanout=fanout, seed=config.seed)


def sizes_of(
    classifier: OpenClassifier, dataset: Dataset, outputs: Outputs, wanted: Wanted, count: int | None
) -> OutputSizes:
    """Return the sizes of the files. count: number of nodes to write; None for all."""
    trained, num_outputs = classifier.config, classifier.num_outputs
    if isinstance(trained, HopConfig):
        embedding_dim = hidden_dim(trained)
    else:
        embedding_dim = trained.hidden if wanted.layer < trained.layers else num_outputs
    dims: dict[TableName, int] = {"logits": num_outputs, "embedding": embedding_dim}
    return output_sizes(dataset, outputs, dims, count=count)
