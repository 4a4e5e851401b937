"""Opening a trained embedding run, to evaluate, query or export it."""

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
from diskhop.planning.embeddings.partitions import layout_of, permutation_of
from diskhop.run_files import CONFIG_FILE, EMBEDDING, resume_command
from diskhop.runs.embedding.folder import EmbeddingFolder
from diskhop.runs.folder import require_kind, require_same_dataset


@dataclass(frozen=True, slots=True, eq=False)
class OpenRun:
    """An open run.

    path: the RUN folder.
    dataset: the graph.
    config: all options.
    reader: the embeddings of the last commit.
    permutation: the places of nodes in partitions.
    """

    path: Path
    dataset: Dataset
    config: EmbedConfig
    reader: EmbeddingReader
    permutation: NodePermutation


def open_run(run: Path | str, dataset: Dataset | None = None) -> OpenRun:
    """Open the run in a folder. dataset: by default the one that config.toml names.

    Raises ConfigError for a folder without an embedding run, TrainingError for a run without a commit.
    """
    path = Path(run)
    folder = EmbeddingFolder(path)
    if not folder.config_path.exists():
        raise ConfigError(f"{path}: is no embedding run, {CONFIG_FILE} is missing; make one with 'diskhop embed'")
    require_kind(folder.config_path, (EMBEDDING,))
    saved = load_config(folder.config_path, (EmbedConfig,))
    opened = dataset or open_dataset(Path(saved.dataset))
    require_same_dataset(folder.config_path, saved.dataset_hash, opened)
    try:
        config = EmbedConfig(**saved.options)
    except TypeError as error:
        raise ConfigError(f"{folder.config_path}: options are missing: {error}; train again") from error
    commit = folder.read_state()
    if commit is None:
        raise TrainingError(f"{path}: has no commit yet; resume the run: {resume_command(EMBEDDING, path)}")
    num_nodes = embedded_nodes(opened).num_nodes
    layout, score = layout_of(config, num_nodes), SCORES[config.model]
    store = PartitionStore(folder.partitions, layout, open_engine(config.engine).engine, commit.partitions)
    relations = folder.load_relations(commit.relations)["values"] if score.uses_relations else torch.empty(0)
    reader = EmbeddingReader(store, layout, score, relations, config.reciprocal)
    return OpenRun(path, opened, config, reader, permutation_of(config, num_nodes, commit.dealt))
