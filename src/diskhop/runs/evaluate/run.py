"""Evaluating a finished run of any kind: node classifiers by all of their outputs, embeddings by ranks of edges."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import check_options, option_fields
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.predicting.disk import ALL_FREE
from diskhop.predicting.rows import RowTable
from diskhop.run_files import CONFIG_FILE, EMBEDDING, EVALUATION_FILE, LINK_RUN, read_kind
from diskhop.runs.distributed import open_group
from diskhop.runs.embedding.evaluate import evaluate_embeddings
from diskhop.runs.evaluate.classifier import evaluate_classifier
from diskhop.runs.links.evaluate import evaluate_links
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.predict.tables import OutputRun
from diskhop.runs.predict.wanted import Wanted
from diskhop.runs.rank_tasks import TaskPlace, in_ranks
from diskhop.runs.shares import require_whole_machines
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.ranks import read_ranks
from diskhop.runtime.tasks import TaskTools, WorkFolder

# Options that both kinds of runs have.
_SHARED = ("memory_bytes", "threads")
_LINK_OPTIONS = (*_SHARED, "eval_candidates", "eval_filtered", "eval_ties", "eval_sides")


def evaluate_run(
    run: Path | str,
    dataset: Dataset | Path | str | None = None,
    *,
    part: str | None = None,
    memory: int | str | None = None,
    executor: str = "",
    workers: int | None = None,
    progress: Progress = silent,
    **options: Any,
) -> dict[str, Any]:
    """Measure a finished run.

    A node classifier is measured on every part of the split by its outputs for all nodes with all neighbours; the
    result is also in RUN/evaluation.json. A link model is measured on all held-out edges; see evaluate_links().
    Embeddings rank the edges of a part, of which processes that torchrun started take equal shares.

    dataset: of a node classifier, the labelled dataset to measure on; default: the run's own.
    part: train, valid or test of a node classifier, default all of them; test (default) or valid of embeddings.
    memory: bytes or a size such as '2GB'; default: the run's.
    executor, workers: where tasks of a node classifier run, as --executor; see runtime/executors.py.
    options: threads, and for embeddings the other options of evaluation in EmbedConfig; default: the run's.
    Raises ConfigError, SchemaError, BudgetError; TrainingError or PredictionError for a damaged model.
    """
    given = check_options(options, "evaluation", (EmbedConfig,))

    def evaluate(place: TaskPlace) -> dict[str, Any]:
        return _evaluate(run, dataset, part, memory, place, progress, given)

    if _kind_of(Path(run)) == EMBEDDING:
        if executor or workers is not None:
            raise ConfigError(f"{run}: embeddings have no tasks; use --processes, and remove --executor and --workers")
        if dataset is not None:
            raise ConfigError(f"{run}: holds embeddings, which are of their own dataset; remove --dataset")
        show = partial(progress, "ranking edges")
        with open_group(read_ranks(os.environ)) as group:
            require_whole_machines(group)
            return evaluate_embeddings(run, part=part or "test", memory=memory, progress=show, group=group, **given)
    return in_ranks(evaluate, executor, workers)


def _evaluate(
    run: Path | str,
    dataset: Dataset | Path | str | None,
    part: str | None,
    memory: int | str | None,
    place: TaskPlace,
    progress: Progress,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Measure a run of a model, with tasks in a place."""
    kind = _kind_of(Path(run))
    if kind == LINK_RUN and not place.is_here:
        raise ConfigError(
            f"{run}: edges are ranked in one process; start it without torchrun, and remove --processes, --executor "
            "and --workers"
        )
    if kind == LINK_RUN:
        if dataset is not None:
            raise ConfigError(f"{run}: is a run on links, which are of its own dataset; remove --dataset")
        unknown = [name for name in given if name not in _LINK_OPTIONS]
        if unknown:
            raise ConfigError(f"{_flag(unknown[0])} has no effect on links, whose edges are all measured; remove it")
        memory = given.pop("memory_bytes", memory)
        return evaluate_links(run, part=part, memory=memory, progress=progress, **given)
    for name in given:
        if name not in _SHARED:
            raise ConfigError(f"{_flag(name)} is for runs of 'diskhop embed', and {run} is none; remove it")
    return evaluate_classifier(
        run,
        partial(_open_logits, given.get("threads"), place, progress),
        dataset=dataset,
        part=part,
        memory=given.get("memory_bytes", memory),
        progress=partial(progress, "measuring"),
    )


def _flag(name: str) -> str:
    return option_fields(EmbedConfig)[name].main_flag


def _kind_of(run: Path) -> str:
    path = run / CONFIG_FILE
    if not path.exists():
        raise ConfigError(f"{run}: is no run, {CONFIG_FILE} is missing; name a run of 'diskhop train' or 'embed'")
    return read_kind(path)


@contextmanager
def _open_logits(
    threads: int | None,
    place: TaskPlace,
    progress: Progress,
    opened: OpenClassifier,
    dataset: Dataset,
    budget: Budget,
    later: Mapping[str, int],
) -> Iterator[RowTable]:
    """Compute the logits of all nodes in a work folder of RUN, which goes once they are read."""
    config, engine = opened.config, open_engine(opened.config.engine).engine
    threads = place.threads(threads or config.threads)
    with place.open(threads, budget.total_bytes, engine) as executor:
        run = OutputRun(
            classifier=opened,
            dataset=dataset,
            budget=budget,
            space=ALL_FREE,
            threads=threads,
            tools=TaskTools(engine, executor=executor),
            scratch=config.scratch or None,
            later=later,
            progress=progress,
        )
        run.require_memory(Wanted())
        with WorkFolder(opened.path / EVALUATION_FILE) as work:
            # Files of finished layers are removed in the background until the tables are closed.
            with run.compute(Wanted(), work) as tables:
                assert tables.logits is not None, "they are wanted"
                yield tables.logits
            work.remove()
