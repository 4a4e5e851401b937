"""Embeddings of a run as one array, by the ids that users see, whatever partitions they lie in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diskhop._native import invert_order
from diskhop.dataset.dataset import Dataset
from diskhop.embed_config import EmbedConfig
from diskhop.embedding.partitions import assign_places
from diskhop.embedding.store import PartitionStore
from diskhop.errors import TrainingError
from diskhop.io.atomic import (
    destination_errors,
    rename,
    require_free_space,
    require_parent,
    sync_directory,
    sync_file,
)
from diskhop.io.engine import open_engine
from diskhop.planning.embedding import layout_of
from diskhop.training.embed_edges import embedded_nodes
from diskhop.training.embed_folder import EmbedFolder

# Rows that are looked for and found, of some number of bytes, take as much again on their way.
_ROOM = 3


def export_npy(dataset: Dataset, config: EmbedConfig, run: Path, path: Path) -> None:
    """Write the last commit's embeddings, float32 (nodes, dim), to a .npy file that appears whole.

    Every partition is read once for as many nodes as half of the budget holds. Raises DestinationError, ReadError;
    TrainingError for a run without a commit.
    """
    folder, layout = EmbedFolder(run), layout_of(config, embedded_nodes(dataset).num_nodes)
    commit = folder.read_commit()
    if commit is None:
        raise TrainingError(f"{run}: has no commit to export; go on with the run first")
    store = PartitionStore(folder.partitions, layout, open_engine(config.engine).engine, commit.partitions)
    original_ids = embedded_nodes(dataset).original_ids()
    internal = None if original_ids is None else invert_order(original_ids)
    require_free_space(require_parent(path), 4 * layout.num_nodes * layout.dim, "the array")
    block_rows = max(1024, config.memory_bytes // (_ROOM * 4 * layout.dim))
    partial = path.with_name(f".{path.name}.partial")
    with destination_errors(path):
        try:
            out = np.lib.format.open_memmap(partial, "w+", np.float32, (layout.num_nodes, layout.dim))
            for start in range(0, layout.num_nodes, block_rows):
                nodes = np.arange(start, min(start + block_rows, layout.num_nodes))
                nodes = nodes if internal is None else internal[nodes].astype(np.int64)
                partitions, rows = layout.locate(assign_places(nodes, layout.num_nodes, config.assignment, config.seed))
                for partition in range(layout.num_partitions):
                    chosen = np.flatnonzero(partitions == partition)
                    out[start + chosen] = store.read_rows(partition, rows[chosen])
            out.flush()
            del out
            sync_file(partial)
            rename(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
