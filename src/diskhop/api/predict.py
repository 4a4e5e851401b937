"""diskhop.predict(): the command `diskhop predict`, and any model of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from diskhop.budget import Budget
from diskhop.config.predict import PredictConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.planning.overhead import MemoryWish
from diskhop.predicting.call import predict_layers
from diskhop.predicting.predict import ALL
from diskhop.runs.predict.memory import fit_layers
from diskhop.runs.predict.run import Predicted, predict_run
from diskhop.runtime.progress import Progress, silent
from diskhop.system.memory import default_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from diskhop.predicting.batched.unroll import Model
    from diskhop.predicting.output import Predictions

FolderPath = Path | str
# Of the options of a run, those that any model has.
_OF_LAYERS = ("what", "format", "fanout", "memory_bytes", "total_memory_bytes", "threads", "seed", "engine", "scratch")


@overload
def predict(
    run: FolderPath, /, *, dataset: Dataset | FolderPath | None = None, out: FolderPath, **options: Any
) -> Predicted: ...


@overload
def predict(
    dataset: Dataset | FolderPath, /, layers: Model, *, out: None = None, **options: Any
) -> NDArray[np.float32]: ...


@overload
def predict(dataset: Dataset | FolderPath, /, layers: Model, *, out: FolderPath, **options: Any) -> Predictions: ...


@takes_words(PredictConfig)
def predict(
    source: Dataset | FolderPath,
    /,
    layers: Any = None,
    *,
    dataset: Dataset | FolderPath | None = None,
    out: FolderPath | None = None,
    overwrite: bool = False,
    resume: bool = True,
    executor: str = "",
    workers: int | None = None,
    task: str | None = None,
    store: str | None = None,
    progress: Progress = silent,
    on_plan: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Any:
    """Predict for all nodes, layer by layer from disk, within a memory budget.

        diskhop.predict("run", out="predictions", what=("class", "probability"), memory="2GB")
        logits = diskhop.predict(dataset, layers, memory="2GB")

    Of a run, the best model predicts into a new folder, as `diskhop predict` does; all but layers, task and store are
    for it. Of any other model, the rows of the last layer are an array, or become files.

    source: the folder of a run; with `layers`, a dataset.
    layers: modules of torch, one per hop, each called as layer(x, edge_index); or a BasicGNN of PyTorch Geometric.
        Its options are out, overwrite, what, format, fanout, memory, total_memory, threads, seed, engine, scratch, task
        and store.
    dataset: the dataset that a run predicts for; default: the run's own. Another must fit it.
    out: the new folder; None, with layers: return an array, float32 (nodes, outputs), in the order of
        dataset.node_ids(), which is not part of `memory`.
    overwrite: whether predictions that are there are replaced.
    resume: whether finished work of an interrupted call is continued.
    executor, workers: where tasks run, as --executor; see runtime/executors.py.
    task: classification, multilabel (outputs are of tasks, each with a probability of its own) or regression.
    store: the store that reads rows; default: chosen.
    progress: called with a stage, and what is done of it and in total.
    on_plan: called with a line about the plan before the heavy work.

    Raises ConfigError, SchemaError, BudgetError and DestinationError before the heavy work, PredictionError for values
    that are not finite, RequirementError where the metric is too low: then nothing is published.

    >>> predicted = diskhop.predict("run", out="predictions", memory="200MB")
    """
    if layers is None:
        given = {"task": task, "store": store}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ConfigError(f"{wrong[0]} has no effect on the prediction of a run, which has its own; remove it")
        if isinstance(source, Dataset):
            raise ConfigError(f"{source.path}: is a dataset; pass the layers to predict by, or the folder of a run")
        if out is None:
            raise ConfigError("out is missing: a run predicts into a new folder; for example out='predictions'")
        return predict_run(
            source,
            dataset,
            out=out,
            overwrite=overwrite,
            resume=resume,
            executor=executor,
            workers=workers,
            progress=progress,
            on_plan=on_plan,
            **options,
        )
    if isinstance(layers, str | Path | Dataset):
        raise ConfigError(f"layers must be modules of torch, got {layers!r}; a run predicts for another dataset=")
    own = {"dataset": dataset, "executor": executor or None, "workers": workers, "resume": None if resume else False}
    wrong = [name for name, value in own.items() if value is not None]
    wrong += [name for name in options if name not in _OF_LAYERS]
    if wrong:
        raise ConfigError(f"{wrong[0]} has no effect with layers; remove it")
    memory, total_bytes = options.pop("memory_bytes", None), options.pop("total_memory_bytes", 0)
    chosen = {"fanout": options.pop("fanout", None) or ALL, **options}
    of_files = {"what": chosen.pop("what", None), "format": chosen.pop("format", None), "task": task}
    chosen |= {name: value for name, value in of_files.items() if value is not None}
    chosen |= {"out": out, "overwrite": overwrite, "store": store, "progress": progress}
    if isinstance(memory, Budget):
        if total_bytes:
            raise ConfigError("total_memory has no effect with a Budget as memory; remove one of them")
        return predict_layers(source, layers, memory=memory, **chosen)
    fitted = fit_layers(layers, MemoryWish(memory or 0, total_bytes), options.get("threads") or default_threads())
    fitted.describe(on_plan)
    with fitted.explained():
        return predict_layers(source, layers, memory=fitted.budget_bytes, **chosen)
