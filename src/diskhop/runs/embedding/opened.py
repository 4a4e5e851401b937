"""A run of embeddings that is trained, opened for what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from diskhop.config.embed import EmbedConfig
from diskhop.config.options import load_config
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.partitions.layout import NodePermutation
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.ranking.reader import EmbeddingReader
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError, TrainingError
from diskhop.io.engine import open_engine
from diskhop.planning.embeddings.partitions import dealing_of, layout_of
from diskhop.runs.embedding.folder import EmbeddingFolder
from diskhop.runs.folder import require_same_dataset


@dataclass(frozen=True, slots=True, eq=False)
class OpenRun:
    """reader: of the last commit; dealing: of nodes to the places that it has them at."""

    path: Path
    dataset: Dataset
    config: EmbedConfig
    reader: EmbeddingReader
    dealing: NodePermutation


def open_run(run: Path | str, dataset: Dataset | None = None) -> OpenRun:
    """Open a run by its folder; dataset: by default the one that it names.

    Raises ConfigError for a folder that has no run of embeddings, TrainingError for one without a commit.
    """
    path = Path(run)
    folder = EmbeddingFolder(path)
    if not folder.config_path.exists():
        raise ConfigError(f"{path}: is no run of embeddings, config.toml is missing; make one with 'diskhop embed'")
    saved = load_config(folder.config_path, (EmbedConfig,))
    opened = dataset or open_dataset(Path(saved.dataset))
    require_same_dataset(folder.config_path, saved.dataset_hash, opened)
    try:
        config = EmbedConfig(**saved.options)
    except TypeError as error:
        raise ConfigError(f"{folder.config_path}: options are missing: {error}; train again") from error
    commit = folder.read_commit()
    if commit is None:
        raise TrainingError(f"{path}: has no commit yet; go on with the run: diskhop embed --resume --out {path}")
    num_nodes = embedded_nodes(opened).num_nodes
    layout, score = layout_of(config, num_nodes), SCORES[config.model]
    store = PartitionStore(folder.partitions, layout, open_engine(config.engine).engine, commit.partitions)
    relations = folder.load_relations(commit.relations)["values"] if score.uses_relations else torch.empty(0)
    reader = EmbeddingReader(store, layout, score, relations, config.reciprocal)
    return OpenRun(path, opened, config, reader, dealing_of(config, num_nodes, commit.dealt))
