"""Any model on all nodes of a graph, layer by layer, within a memory budget.

Table 0 is the features, table i the result of layer i: float32 rows on disk, in the dataset's order. A table is removed
once every layer that reads it is finished. After a crash, the same call resumes after the last finished range of rows.

    with WorkFolder(destination) as work:
        tables = predict_modules(dataset, layers, Budget(...), work)
        ...  # read tables.last
        work.remove()
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.sampled import ALL_NEIGHBORS, FANOUT
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.derived.scratch import scratch_path
from diskhop.disk.model import DiskModel
from diskhop.errors import ConfigError
from diskhop.io.atomic import make_directories
from diskhop.io.engine import open_engine
from diskhop.loaders.checks import budget_of
from diskhop.nn.layers.network import Network
from diskhop.predicting.batched.batches import LayerRun
from diskhop.predicting.batched.identity import describe_model
from diskhop.predicting.batched.layer_tables import LayerTables, Prediction
from diskhop.predicting.batched.unroll import Model, unroll
from diskhop.predicting.disk import ALL_FREE, DiskSpace
from diskhop.predicting.row_files import RANGE_BYTES
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.system.memory import default_threads

_BLOCK_BYTES = 4 << 20
ALL = "all"


def predict_modules(
    dataset: Dataset,
    layers: Model,
    budget: Budget,
    work: WorkFolder,
    *,
    fanout: str | int | Sequence[int] = ALL,
    seed: int = 0,
    keep: Collection[int] = (),
    threads: int | None = None,
    store: str | None = None,
    scratch: str | None = None,
    disk: DiskModel | None = None,
    space: DiskSpace = ALL_FREE,
    range_bytes: int = RANGE_BYTES,
    progress: Progress = silent,
    tools: TaskTools | None = None,
    edge_weights: bool = False,
    build: Callable[[], Network] | None = None,
) -> LayerTables:
    """Compute the layers of a model on all nodes and return the table of the last one. All of `work` is durable.

    layers: modules, one per hop, each called as layer(x, edge_index) (modules.py); a BasicGNN of PyG; or a network of
        diskhop. With jumping knowledge of several layers, its result is one table more.
    fanout: neighbours per node: "all", a count, or a count per layer (-1 for all).
    seed: random seed of draws.
    keep: numbers of layers whose tables are wanted too.
    store: strategy by name; default: chosen for each layer.
    scratch: folder for a store's temporary files; default: DATASET/derived.
    disk: cost of reads; default: measured.
    space: disk space that tables may take; default: all that is free.
    range_bytes: bytes of a table that a crash costs at most, roughly.
    tools: I/O engine and fault injector; default: an engine of its own.
    edge_weights: whether a network of diskhop uses the weights of edges. Other models have no weights.
    build: makes the network of diskhop again, so that the processes of an executor share its rows (see SharedNetwork).

    Bytes depend on the graph, the model, fanout and seed alone, on one version of torch and kind
    of CPU.

    Raises ConfigError for layers that cannot be computed in batches, BudgetError with the smallest budget that works,
    DestinationError for too small a disk, PredictionError for a result that is not finite.
    """
    model = unroll(layers)
    fanouts = _fanouts(fanout, len(model.layers))
    run = LayerRun(
        budget=budget,
        tools=tools or TaskTools(open_engine().engine),
        threads=default_threads() if threads is None else threads,
        store=store,
        scratch=scratch,
        disk=disk,
        seed=seed,
        edge_weights=edge_weights,
    )
    network = SharedNetwork(layers, build) if isinstance(layers, Network) and build is not None else None
    return Prediction(dataset, model, fanouts, run, work, range_bytes, progress, space, network).run(keep)


def predict_array(
    dataset: Dataset | PathLike[str] | str,
    layers: Model,
    *,
    memory: Budget | int | str | None = None,
    engine: str = "auto",
    scratch: PathLike[str] | str | None = None,
    **options: Any,
) -> NDArray[np.float32]:
    """Compute a model on all nodes and return its rows in the order of dataset.node_ids(), float32 (nodes, outputs).

    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory. scratch: folder for tables on
    disk; default: DATASET/derived. options: those of predict_modules(). The result is not
    part of the memory.
    """
    opened, budget = as_dataset(dataset), budget_of(memory)
    folder = scratch_path(opened.path, None if scratch is None else str(scratch))
    digest = hashlib.sha256(describe_model(unroll(layers)).encode()).hexdigest()[:16]
    make_directories(folder)
    tools = TaskTools(open_engine(engine).engine)
    with WorkFolder(folder / f"predicted-{digest}") as work:
        rows = predict_modules(opened, layers, budget, work, scratch=str(folder), tools=tools, **options).last
        with budget.reserve("original ids", 3 * opened.id_map().num_bytes):
            out = in_source_order(opened, rows)
        work.remove()
    return out


def in_source_order(dataset: Dataset, rows: RowTable) -> NDArray[np.float32]:
    """Read a table into memory in the order of dataset.node_ids()."""
    out = np.empty((rows.num_rows, rows.dim), np.float32)
    positions = dataset.id_map().positions()
    block_rows = max(1, _BLOCK_BYTES // (4 * rows.dim))
    first = 0
    for block in rows.blocks(block_rows):
        places = slice(first, first + len(block)) if positions is None else positions[first : first + len(block)]
        out[places] = block
        first += len(block)
    return out


def _fanouts(fanout: str | int | Sequence[int], num_layers: int) -> list[int]:
    """Return neighbours per layer. Raises ConfigError."""
    if isinstance(fanout, str):
        counts = [ALL_NEIGHBORS] * num_layers if fanout == ALL else []
    else:
        counts = [fanout] * num_layers if isinstance(fanout, int) else list(fanout)
    if len(counts) != num_layers or not FANOUT.holds(counts):
        raise ConfigError(
            f"fanout must be 'all', a count, or a list of {num_layers} counts, one per layer, got {fanout!r}; "
            "pass fanout='all', or counts from 1, with -1 for all neighbours"
        )
    return counts
