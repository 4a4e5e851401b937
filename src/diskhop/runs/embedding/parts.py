"""Parts of an embedding run: what the training loop works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from diskhop.config.embed import EmbedConfig
from diskhop.embedding.graph_edges import EdgeParts
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.step import Table
from diskhop.policies.schedule import Schedule
from diskhop.runs.callbacks import Callback
from diskhop.runs.distributed import Group
from diskhop.runs.embedding.folder import EmbeddingFolder
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddingParts:
    """The parts of a run.

    config: all options.
    layout: of nodes in partitions.
    schedule: of a pass: the order in which partitions meet in the memory of each rank.
    store: partitions on disk.
    buffer: partitions in memory.
    edges: by their first assignment to partitions.
    edges_folder: folder for files of sorted edges; None where this process sorts them in memory.
    edges_on_disk: whether a pass reads sorted edges from their files.
    tools: for sorting edges.
    close_executor: ends the processes that sort edges.
    folder: the RUN folder.
    memory: samples of resident memory.
    callback: hears of batches and epochs.
    group: this rank and the others.
    """

    config: EmbedConfig
    layout: PartitionLayout
    schedule: Schedule
    store: PartitionStore
    buffer: PartitionBuffer
    edges: EdgeParts
    edges_folder: Path | None
    edges_on_disk: bool
    tools: TaskTools
    close_executor: Callable[[], None]
    folder: EmbeddingFolder
    memory: MemoryLog
    callback: Callback
    group: Group


def make_relations(parts: EmbeddingParts) -> Table | None:
    """Draw the relations' embeddings; None for a model without relations."""
    config, score = parts.config, SCORES[parts.config.model]
    if not score.uses_relations:
        return None
    num_rows = parts.edges.num_relations * (2 if config.reciprocal else 1)
    dim = score.relation_dim(config.dim)
    values = np.empty((num_rows, dim), np.float32)
    score.draw_relations(torch.from_numpy(values), config.init_scale, generator(config.seed, Draw.RELATION))
    return Table(values, np.zeros((num_rows, 1 if config.adagrad == "row" else dim), np.float32))
