"""Prediction by any model, for diskhop.predict(): on all nodes, as an array in memory or as files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.options import require_known
from diskhop.config.train import CLASSIFICATION, NODE_TASKS
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.io.engine import open_engine
from diskhop.loaders.checks import budget_of
from diskhop.predicting.batched.identity import describe_model
from diskhop.predicting.batched.unroll import Model, unroll
from diskhop.predicting.columns import Outputs
from diskhop.predicting.output import Predictions, predictions_folder, write_predictions
from diskhop.predicting.predict import ALL, predict_array, predict_modules
from diskhop.predicting.sizes import require_format
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from diskhop.system.memory import default_threads

Fanout = str | int | Sequence[int]
FolderPath = PathLike[str] | str


@overload
def predict_layers(
    dataset: Dataset | FolderPath,
    layers: Model,
    *,
    memory: Budget | int | str | None = None,
    fanout: Fanout = ALL,
    out: None = None,
    threads: int | None = None,
    seed: int = 0,
    store: str | None = None,
    engine: str = "auto",
    scratch: FolderPath | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32]: ...


@overload
def predict_layers(
    dataset: Dataset | FolderPath,
    layers: Model,
    *,
    memory: Budget | int | str | None = None,
    fanout: Fanout = ALL,
    out: FolderPath,
    what: Sequence[str] = ("logits",),
    format: str = "parquet",
    task: str = CLASSIFICATION,
    overwrite: bool = False,
    threads: int | None = None,
    seed: int = 0,
    store: str | None = None,
    engine: str = "auto",
    scratch: FolderPath | None = None,
    progress: Progress = silent,
) -> Predictions: ...


def predict_layers(
    dataset: Dataset | FolderPath,
    layers: Model,
    *,
    memory: Budget | int | str | None = None,
    fanout: Fanout = ALL,
    out: FolderPath | None = None,
    what: Sequence[str] = ("logits",),
    format: str = "parquet",
    task: str = CLASSIFICATION,
    overwrite: bool = False,
    threads: int | None = None,
    seed: int = 0,
    store: str | None = None,
    engine: str = "auto",
    scratch: FolderPath | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32] | Predictions:
    """Compute a model on all nodes, layer by layer from disk, within a memory budget.

    layers: modules of torch, one per hop, each called as layer(x, edge_index); or a BasicGNN of PyTorch Geometric.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    fanout: neighbours per node: "all", a count, or a count per layer (-1 for all).
    out: folder for files; None: return an array, float32 (nodes, outputs), in the order of dataset.node_ids(). The
        array is not part of `memory`.
    what: columns of the files: logits (the last layer's rows; embedding is another name), class, probability,
        probabilities, value. format: parquet, npy or tsv.
    task: classification, multilabel (outputs are of tasks, each with a probability of its own) or regression.
    overwrite: replace predictions that are in `out`.
    threads: threads that compute; default: all cores.
    seed: random seed of sampled neighbours.
    store, engine: strategies by name; default: chosen.
    scratch: folder for temporary files; default: DATASET/derived.

    An interrupted call resumes: the same call reuses finished work. Raises ConfigError, BudgetError and
    DestinationError before the heavy work, PredictionError for values that are not finite.
    """
    options: dict[str, Any] = {"fanout": fanout, "threads": threads, "seed": seed, "store": store, "progress": progress}
    opened = as_dataset(dataset)
    if out is None:
        return predict_array(opened, layers, memory=memory, engine=engine, scratch=scratch, **options)
    require_known("task", task, NODE_TASKS)
    outputs = Outputs(words=tuple(what), task=task)
    require_format(format)
    tools, budget, path = TaskTools(open_engine(engine).engine), budget_of(memory), Path(out)
    options["scratch"] = None if scratch is None else str(scratch)
    with ExitStack() as stack:
        staged = stack.enter_context(predictions_folder(path, overwrite=overwrite))
        work = stack.enter_context(WorkFolder(path))
        rows = predict_modules(opened, layers, budget, work, tools=tools, **options).last
        written = write_predictions(
            staged,
            opened,
            outputs,
            {"logits": rows, "embedding": rows},
            WorkTools(work, tools, budget, threads or default_threads(), progress, stack),
            key=f"{describe_model(unroll(layers))}\nfanout {fanout}, seed {seed}",
            format_name=format,
        )
        work.remove()
    return written
