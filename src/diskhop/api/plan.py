"""diskhop.plan(): the command `diskhop plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.options import option_fields, require_known
from diskhop.config.predict import PredictConfig
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TASKS
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.planning.options import Option, Ranking
from diskhop.runs.plan import plan_run
from diskhop.runs.predict.plan import PredictionPlan, plan_prediction

TRAIN, PREDICT = "train", "predict"
CONFIGS: Mapping[str, tuple[type[Any], ...]] = {
    TRAIN: (SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig, EmbedConfig),
    PREDICT: (PredictConfig,),
}


@takes_words(*CONFIGS[TRAIN], *CONFIGS[PREDICT])
def plan(
    path: Dataset | Path | str,
    *,
    task: str = TRAIN,
    dataset: Dataset | Path | str | None = None,
    preset: str | None = None,
    explain: str | None = None,
    processes: int | None = None,
    html: Path | str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Ranking[Any] | Option[Any] | PredictionPlan:
    """Predict time, I/O and memory of every strategy without training, or of a prediction by a run.

    path: a dataset; with task 'predict', the folder of a run.
    task: the work to plan: train (or its task: classification, multilabel, regression or link), or predict.
    dataset: the dataset to predict for; default: the run's own.
    preset: the name of a set of options; those given here win.
    explain: return what is known of this strategy alone.
    processes: number of processes to plan for on this machine, which share its memory, threads and disk; default: 1.
    html: a page to write: predicted time and I/O of every strategy, and the division of memory.
    overwrite: whether a page that is there is replaced.

    Returns a Ranking, the best strategy first; an Option with `explain`; or a PredictionPlan. Measures the disk, once
    for each, and the model on a few batches. Raises ConfigError; BudgetError where no way fits; DestinationError.

    >>> print(diskhop.plan("my-graph", memory="200MB"))
    Plan for ...
    """
    require_known("task", task, (*CONFIGS, *TASKS), "--task: ")
    if task in TASKS:
        options, task = {**options, "task": task}, TRAIN
    of_training = {"--preset": preset, "--explain": explain}
    _require_options(task, options, of_training, {"--dataset": dataset})
    page = None if html is None else Path(html)
    _require_page(page, path, overwrite=overwrite)
    planned = _plan(path, task, dataset, preset, 1 if processes is None else processes, options)
    found: Ranking[Any] | Option[Any] | PredictionPlan = planned
    if explain is not None and isinstance(planned, Ranking):
        names = [option.name for option in planned.options]
        require_known("strategy", explain, names, "--explain: ")
        found = planned.options[names.index(explain)]
    if page is not None:
        from diskhop.reporting.html import write_page
        from diskhop.reporting.plan_page import render_plan

        write_page(render_plan(_folder_of(path), planned), page, overwrite=overwrite)
    return found


def _plan(
    path: Dataset | Path | str,
    task: str,
    dataset: Dataset | Path | str | None,
    preset: str | None,
    processes: int,
    options: Mapping[str, Any],
) -> Ranking[Any] | PredictionPlan:
    if task == TRAIN:
        return plan_run(path, preset=preset, processes=processes, **options)
    if isinstance(path, Dataset):
        raise ConfigError(f"{path.path}: is a dataset, and predictions are planned by a run; name its folder")
    return plan_prediction(path, dataset, processes=processes, **options)


def _require_page(page: Path | None, path: Dataset | Path | str, *, overwrite: bool) -> None:
    """Refuse a page that cannot be written, before anything is measured. path: what is planned."""
    if page is None:
        if overwrite:
            name = _folder_of(path).resolve().name
            raise ConfigError(f"--overwrite is of the page; add --html {name}-plan.html, or remove it")
        return
    # jinja2 and plotly's files, which a plan in a terminal does without.
    from diskhop.reporting.html import require_page

    require_page(page, "--html", overwrite=overwrite)


def _folder_of(path: Dataset | Path | str) -> Path:
    return path.path if isinstance(path, Dataset) else Path(path)


def _require_options(
    task: str, options: Mapping[str, Any], of_training: Mapping[str, Any], of_prediction: Mapping[str, Any]
) -> None:
    """Raise ConfigError for an option of the other task. The last two: the command's own options and their values."""
    others = {TRAIN: of_prediction, PREDICT: of_training}[task]
    flags = [flag for flag, value in others.items() if value is not None]
    fields = {name: each for kinds in CONFIGS.values() for kind in kinds for name, each in option_fields(kind).items()}
    known = {name for kind in CONFIGS[task] for name in option_fields(kind)}
    flags += [fields[name].main_flag for name in options if name in fields and name not in known]
    if flags:
        raise ConfigError(f"{flags[0]} has no effect with --task {task}; remove it")
