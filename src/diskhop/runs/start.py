"""Starting and resuming runs: `train` and `embed`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.sampled import SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError, RankError
from diskhop.io.atomic import Injector
from diskhop.nn.models import HOP_MODELS
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.planning.overhead import Overhead
from diskhop.run_files import CONFIG_FILE, EMBEDDING, NODE, TUNING_FILE, resume_command
from diskhop.runs.callbacks import Callback, Callbacks
from diskhop.runs.choices import Choice, Resolved
from diskhop.runs.context import RunContext
from diskhop.runs.distributed import Group, open_group
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.embedding.run import Embedded
from diskhop.runs.fitted_memory import FittedMemory
from diskhop.runs.kinds import KINDS, configs_of, find_kind, kind_of, require_link_task
from diskhop.runs.shares import require_same_dataset, require_shareable, require_whole_machines
from diskhop.runs.source import RunSource, find_run_source
from diskhop.runs.total_memory import fit_memory
from diskhop.runs.training import Trained
from diskhop.runs.tuning import read_tuning
from diskhop.runs.tuning import tune as tune_options
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.ranks import read_ranks, was_restarted

# In the place of what rank 0 sends.
_OF_FIRST: Any = None


@takes_words(SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig)
def train(
    dataset: Dataset | Path | str | None = None,
    *,
    preset: str | None = None,
    config: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    tune: float | None = None,
    **options: Any,
) -> Trained:
    """Train a model of nodes, or of links with task='link'.

    dataset: open, or its folder; may be left out where `config` or the resumed run names it.
    preset: the name of a set of options; those given here win.
    config: a file with options, such as a run's config.toml; those given here win, and the file's over the preset's.
    out: the RUN folder, new or empty; None leaves nothing on disk.
    resume: continue the run in `out` from its last epoch, with the options in its config.toml.
    callbacks: hear of the run and may end it; see Callback. Options that are not given are chosen, and
        Callback.configured gets the reasons.
    tune: minutes to try small changes of the options for, by validation, before the run with the best; see
        result["tuning"]. The trial under way is finished. With `out`, the same call continues an interrupted search.

    Processes that torchrun started train together. Rank 0 chooses options for all, and alone has `out` and `callbacks`.

    >>> trained = diskhop.train("my-graph", epochs=2, memory="200MB", seed=0, out="new-run")
    >>> sorted(trained.result["test"])
    ['accuracy']
    """
    trained: Trained = _start(NODE, dataset, options, preset, config, out, resume, callbacks, tune)
    return trained


@takes_words(EmbedConfig)
def embed(
    dataset: Dataset | Path | str | None = None,
    *,
    out: Path | str,
    preset: str | None = None,
    config: Path | str | None = None,
    resume: bool = False,
    executor: str = "",
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Embedded:
    """Train embeddings of a graph's nodes.

    out: the RUN folder, new or empty.
    executor, workers: where edges are sorted into buckets, as --executor; see runtime/executors.py.
    dataset, preset, config, resume, callbacks: see train().

    >>> run = diskhop.embed("my-graph", model="dot", dim=8, epochs=1, memory="200MB", seed=0, out="new-embedded")
    """
    embedded: Embedded = _start(
        EMBEDDING, dataset, options, preset, config, out, resume, callbacks, executor=executor, workers=workers
    )
    return embedded


def run_config(
    dataset: Dataset,
    config: Any,
    out: Path | None = None,
    *,
    task: Any = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    injector: Injector | None = None,
    engine: Engine | None = None,
    group: Group | None = None,
    tuning: Mapping[str, Any] | None = None,
    executor: str = "",
    workers: int | None = None,
    overhead: Overhead | None = None,
) -> Any:
    """Run a complete configuration of any kind, as train() or embed() do; returns Trained or Embedded.

    task: what was read to complete the configuration, if anything. injector, engine, group, tuning, executor, workers,
    overhead: see RunContext. Raises ConfigError or BudgetError before anything is written, TrainingError if the loss is
    not finite.
    """
    callback = Callbacks(callbacks)
    context = RunContext(
        dataset=dataset,
        out=out,
        resume=resume,
        callback=callback,
        injector=injector,
        engine=engine,
        group=group or Group(),
        tuning=tuning,
        executor=executor,
        workers=workers,
        overhead=overhead,
    )
    kind = kind_of(config)
    try:
        finished = kind.run(context, config, task)
        callback.finished(finished.result)
    except BaseException as error:
        is_resumable = isinstance(error, KeyboardInterrupt | SystemExit | RankError)
        if is_resumable and out is not None and (out / CONFIG_FILE).exists():
            error.add_note(f"resume with: {resume_command(kind.name, out)}")
        callback.failed(error)
        raise
    return finished


def _start(
    kind: str,
    dataset: Dataset | Path | str | None,
    options: Mapping[str, Any],
    preset: str | None,
    config: Path | str | None,
    out: Path | str | None,
    resume: bool,
    callbacks: Sequence[Callback],
    minutes: float | None = None,
    **place: Any,
) -> Any:
    """Find and complete the options of a run of this kind, or another of the same command, and run it.

    Of several ranks, rank 0 does so for all. It alone has the folder and the callbacks. minutes: of tuning before.
    place: executor and workers.
    """
    folder = None if out is None else Path(out)
    _require_tuning_of_one(minutes, folder, resume=resume)
    with open_group(read_ranks(os.environ)) as group:
        # All meet here: a machine with one rank shares no memory, and would not call it later.
        require_whole_machines(group)
        if not group.ranks.is_first:
            path, completed = group.from_first(_OF_FIRST)
            opened = as_dataset(path if dataset is None else dataset)
            require_same_dataset(opened, group)
            return run_config(opened, completed, group=group, **place)
        if out is not None and was_restarted(os.environ) and (Path(out) / CONFIG_FILE).exists():
            resume, config, preset = True, None, None
        source = find_run_source(
            dataset, options, configs_of(KINDS[kind].command), config=config, preset=preset, out=out, resume=resume
        )
        tuning = read_tuning(folder) if folder is not None and resume else None
        chosen: list[Choice] = []
        if minutes is not None:
            found = tune_options(
                source,
                lambda each: _complete(kind, each, preset, group)[0],
                lambda each: run_config(source.dataset, each.config, task=each.task),
                minutes,
                preset=preset,
                out=folder,
                callback=Callbacks(callbacks),
            )
            source = source._replace(options={**source.options, **found.chosen})
            tuning, chosen = found.to_dict(), found.choices()
        resolved, memory = _complete(kind, source, preset, group, Callbacks(callbacks).prepared)
        group.from_first((str(source.dataset.path), resolved.config))
        require_same_dataset(source.dataset, group)
        callback = Callbacks(callbacks)
        try:
            callback.configured(resolved.config, [*chosen, *resolved.choices])
        except BaseException as error:
            callback.failed(error)
            raise
        completed = resolved.config
        # Ranks read it together: a machine has one copy.
        task = resolved.task if group.is_alone else None
        del resolved
        with nullcontext() if memory is None else memory.explained():
            return run_config(
                source.dataset,
                completed,
                folder,
                task=task,
                resume=resume,
                callbacks=callbacks,
                group=group,
                tuning=tuning,
                overhead=None if memory is None else memory.overhead,
                **place,
            )


def _require_tuning_of_one(minutes: float | None, out: Path | None, *, resume: bool) -> None:
    """Refuse --tune with what it does not go with, and a folder with trials without it."""
    if minutes is None:
        if not resume and out is not None and (out / TUNING_FILE).exists() and not (out / CONFIG_FILE).exists():
            raise ConfigError(f"{out}: has the trials of a search; add --tune 10 to continue it, or name another --out")
    elif resume:
        raise ConfigError("--tune is for a new run: remove --tune to resume, or remove --resume")
    elif read_ranks(os.environ).count > 1:
        raise ConfigError("--tune runs in one process: tune first, then train with the options that it prints")


def _resolve(kind: str, source: RunSource, preset: str | None, group: Group) -> Resolved[Any, Any]:
    """Complete the options of a run of this kind, or another of the same command."""
    wanted, options, made = KINDS[kind], source.options, []
    if kind == NODE:
        require_link_task(options)
        model = options.get("model")
        wanted = find_kind(
            model if model in (*TYPED_MODELS, *HOP_MODELS) else None, options.get("task"), source.dataset
        )
        if not group.is_alone and "accumulate" not in options:
            options = {**options, "accumulate": group.ranks.count}
            made = [Choice("accumulate", str(group.ranks.count), "a batch of each process per step")]
    if kind == EMBEDDING:
        return resolve_embed_config(source.dataset, options, preset, group.ranks)
    resolved = wanted.resolve(source.dataset, options, preset)
    if kind == NODE:
        require_shareable(resolved.config, group.ranks)
    return Resolved(resolved.config, [*resolved.choices, *made], resolved.task)


def _complete(
    kind: str, source: RunSource, preset: str | None, group: Group, progress: Progress = silent
) -> tuple[Resolved[Any, Any], FittedMemory | None]:
    """Complete the options of a run, and choose its memory on this machine; see fit_memory()."""
    dataset, resolved = source.dataset, _resolve(kind, source, preset, group)
    fitting, memory = fit_memory(kind_of(resolved.config), dataset, resolved, group.ranks.local_count, progress)
    if kind != EMBEDDING or memory is None:
        return fitting, memory
    # The number of partitions follows from the budget.
    known = {"memory_bytes": memory.budget_bytes, "total_memory_bytes": 0}
    again = _resolve(kind, source._replace(options={**source.options, **known}), preset, group)
    return Resolved(again.config, [*again.choices, memory.choice()], None), memory
