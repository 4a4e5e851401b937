"""Tuning: small changes of a run's options, compared by validation before the run that takes the best of them.

Successive halving (Jamieson and Talwalkar, 2016). A *trial* is a change of options. A *rung* trains all trials that are
left for the same number of epochs; the best third of them trains three times as many in the next rung, and all epochs
in the last. A trial starts again in every rung, with the run's seed: its validation depends on options and epochs
alone, so an interrupted search continues with the trials that are missing.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.config.options import spell
from diskhop.config.train import TrainConfig
from diskhop.errors import BudgetError, ConfigError, TrainingError
from diskhop.io.atomic import make_directories, write_file
from diskhop.run_files import TUNING_FILE
from diskhop.runs.better import ERRORS
from diskhop.runs.callbacks import Callback
from diskhop.runs.choices import Choice, Resolved
from diskhop.runs.folder import require_new_folder
from diskhop.runs.source import RunSource
from diskhop.runs.training import Trained

# A third of the trials goes on to the next rung, with three times the epochs.
_FACTOR = 3
_STRONG_DROPOUT, _WEAK_DROPOUT = 0.5, 0.2
_STRONG_DECAY, _WEAK_DECAY = 5e-4, 5e-5


class Trial(NamedTuple):
    """A change of options that was trained.

    changes: options by name; {} for the run's own.
    epochs: of the training.
    valid: best validation; None if the loss was not finite, or the memory was too small.
    seconds: of the training.
    """

    changes: dict[str, Any]
    epochs: int
    valid: float | None
    seconds: float

    def describe(self) -> str:
        """Return the changes in words."""
        return ", ".join(f"{name} {spell(value)}" for name, value in self.changes.items()) or "no change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A finished search.

    minutes: asked for.
    metric: of the validation that trials are compared by.
    trials: in the order of training.
    chosen: the changes of the best trial.
    """

    minutes: float
    metric: str
    trials: list[Trial]
    chosen: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of result.json."""
        trials = [trial._asdict() for trial in self.trials]
        return {"minutes": self.minutes, "metric": self.metric, "chosen": self.chosen, "trials": trials}

    def choices(self) -> list[Choice]:
        """Return a line for each changed option."""
        tried = len({json.dumps(trial.changes) for trial in self.trials})
        why = f"best validation of {tried} trials of --tune {self.minutes:g}"
        return [Choice(name, spell(value), why) for name, value in self.chosen.items()]


def make_grid(config: TrainConfig, given: Collection[str]) -> list[dict[str, Any]]:
    """Return the changes of each trial: first none, then one, then several; of learning rates before others.

    config: all options of the run. given: names of options that stay as they are.
    """
    fixed = {*given, *(("hidden", "layers", "hops") if config.warm_start else ())}
    axes = [list(axis(config)) for axis in (_shapes, _regularisations, _rates)]
    free = [[{}, *(each for each in axis if not fixed.intersection(each))] for axis in axes]
    combined = sorted(itertools.product(*free), key=lambda parts: sum(map(bool, parts)))
    return [{name: value for part in parts for name, value in part.items()} for parts in combined]


def _rates(config: TrainConfig) -> Iterator[dict[str, Any]]:
    for rate in (config.lr * _FACTOR, config.lr / _FACTOR):
        yield {"lr": float(f"{rate:.2g}")}


def _regularisations(config: TrainConfig) -> Iterator[dict[str, Any]]:
    if config.model == "sgc":  # one linear layer
        yield {"weight_decay": _WEAK_DECAY if config.weight_decay >= _STRONG_DECAY else _STRONG_DECAY}
    else:
        is_strong = config.dropout > (_STRONG_DROPOUT + _WEAK_DROPOUT) / 2
        yield {"dropout": _WEAK_DROPOUT if is_strong else _STRONG_DROPOUT}


def _shapes(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Yield another number of hops, or one layer more; and twice the width."""
    hops: int | None = getattr(config, "hops", None)
    if hops is not None:
        yield from ({"hops": each} for each in (hops + 1, hops - 1) if each)
        return
    fanouts = {name: getattr(config, name) for name in ("fanout", "eval_fanout")}
    if all(len(set(fanout)) == 1 for fanout in fanouts.values()):
        layers = config.layers + 1
        yield {"layers": layers, **{name: fanout[:1] * layers for name, fanout in fanouts.items()}}
    yield {"hidden": 2 * config.hidden}


def choose_rungs(epochs: int, num_trials: int) -> list[int]:
    """Return the epochs of each rung; the last rung has at least two trials, and all epochs."""
    num_rungs = 1
    while num_trials >= 2 * _FACTOR:
        num_trials //= _FACTOR
        num_rungs += 1
    return [max(1, -(-epochs // _FACTOR**left)) for left in reversed(range(num_rungs))]


def rank_trials(valid: Sequence[float | None], metric: str) -> list[int]:
    """Return the numbers of the trials that have a validation, best first; of equal ones the earlier."""
    found = [(number, value) for number, value in enumerate(valid) if value is not None and math.isfinite(value)]
    sign = 1 if metric in ERRORS else -1
    return [number for number, value in sorted(found, key=lambda each: sign * each[1])]


def halve(
    grid: Sequence[dict[str, Any]],
    rungs: Sequence[int],
    metric: str,
    attempt: Callable[[dict[str, Any], int], Trial],
    most_seconds: float,
) -> dict[str, Any]:
    """Return the best changes of a grid by successive halving.

    rungs: epochs of each. attempt: trains with some changes for some epochs. most_seconds: no trial begins once those
    before it took as long, except for the first. Of a rung that was not finished, the best trial wins: those that it
    lacks were worse in the rung before.
    """
    left, best, seconds = list(range(len(grid))), 0, 0.0
    for rung, epochs in enumerate(rungs):
        trials: list[Trial] = []
        for number in left:
            if seconds >= most_seconds and (rung or trials):
                break
            trials.append(attempt(grid[number], epochs))
            seconds += trials[-1].seconds
        ranked = [left[place] for place in rank_trials([trial.valid for trial in trials], metric)]
        if ranked:
            best = ranked[0]
        if not ranked or len(trials) < len(left):
            break
        left = ranked[: max(1, len(left) // _FACTOR)]
    return grid[best]


class TrialRecord:
    """The trials of a search so far, and their file, from which an interrupted search continues.

    out: the RUN folder; None keeps nothing. search: what the trials depend on besides their own options and epochs.
    Raises ConfigError for the file of another search.
    """

    def __init__(self, out: Path | None, search: Mapping[str, Any]) -> None:
        self.trials: list[Trial] = []
        self._path = None if out is None else out / TUNING_FILE
        self._search = _as_read(search)
        if self._path is not None and self._path.exists():
            saved = json.loads(self._path.read_bytes())
            if saved["search"] != self._search:
                raise ConfigError(
                    f"{self._path}: has trials of another dataset or of other options; name another --out, or remove it"
                )
            self.trials = [Trial(**trial) for trial in saved["trials"]]

    def find(self, changes: Mapping[str, Any], epochs: int) -> Trial | None:
        """Return a trial that was trained before."""
        wanted = (_as_read(changes), epochs)
        return next((trial for trial in self.trials if (_as_read(trial.changes), trial.epochs) == wanted), None)

    def add(self, trial: Trial) -> None:
        """Keep a trial."""
        self.trials.append(trial)
        self._write({"trials": [each._asdict() for each in self.trials]})

    def finish(self, tuning: Tuning) -> None:
        """Keep the result."""
        self._write(tuning.to_dict())

    def _write(self, content: Mapping[str, Any]) -> None:
        if self._path is not None:
            make_directories(self._path.parent)
            write_file(self._path, (json.dumps({"search": self._search, **content}, indent=1) + "\n").encode())


def tune(
    source: RunSource,
    resolve: Callable[[RunSource], Resolved[Any, Any]],
    run: Callable[[Resolved[Any, Any]], Trained],
    minutes: float,
    *,
    preset: str | None,
    out: Path | None,
    callback: Callback,
) -> Tuning:
    """Search the options of a run; see train().

    resolve: completes options. run: trains with complete options, without a folder. Raises ConfigError before anything
    is trained, except where validation has no nodes.
    """
    if not 0 < minutes < math.inf:
        raise ConfigError(f"--tune must be a number of minutes above 0, got {minutes:g}; for example --tune 10")
    if out is not None:
        require_new_folder(out)
    config: TrainConfig = resolve(source).config
    if not config.evaluate:
        raise ConfigError("--tune chooses by validation: remove --no-eval, or remove --tune")
    grid = make_grid(config, source.options)
    if len(grid) == 1:
        raise ConfigError("--tune has nothing to change, since all that it would is given: remove --lr, or --tune")
    rungs = choose_rungs(config.epochs, len(grid))
    search = {"dataset_hash": source.dataset.hash, "preset": preset, "options": source.options}
    record = TrialRecord(out, search)

    def attempt(changes: dict[str, Any], epochs: int) -> Trial:
        trial = record.find(changes, epochs)
        if trial is None:
            limits = {"epochs": epochs, "patience": config.patience, "eval_every": min(config.eval_every, epochs)}
            options = {**source.options, **changes, **limits}
            trial = _train(changes, epochs, lambda: run(resolve(source._replace(options=options))))
            record.add(trial)
            valid = "failed" if trial.valid is None else f"validation {trial.valid:.4f}"
            callback.announced(f"tune: {epochs} epochs, {trial.describe()}: {valid} in {trial.seconds:.1f} s")
        return trial

    callback.announced(f"tune: {len(grid)} trials of {rungs[0]} epochs, then the best third for longer")
    try:
        chosen = halve(grid, rungs, config.metric, attempt, 60 * minutes)
    except (KeyboardInterrupt, SystemExit) as error:
        if record.trials and out is not None:
            error.add_note(f"the same command continues the search, whose trials are in {out / TUNING_FILE}")
        raise
    tuning = Tuning(minutes=minutes, metric=config.metric, trials=record.trials, chosen=chosen)
    record.finish(tuning)
    return tuning


def read_tuning(out: Path) -> dict[str, Any] | None:
    """Return the entry of result.json about the search that a run in `out` began with; None without one."""
    path = out / TUNING_FILE
    saved = json.loads(path.read_bytes()) if path.exists() else {}
    return {name: value for name, value in saved.items() if name != "search"} if "chosen" in saved else None


def _train(changes: dict[str, Any], epochs: int, run: Callable[[], Trained]) -> Trial:
    """Train a trial. One without changes must succeed."""
    began = time.perf_counter()
    valid = None
    try:
        result = run().result
        if "best_valid" not in result:
            raise ConfigError("--tune chooses by validation, and the split has no validation nodes: remove --tune")
        valid = float(result["best_valid"])
    except (TrainingError, BudgetError):
        if not changes:
            raise
    return Trial(changes, epochs, valid, time.perf_counter() - began)


def _as_read(value: Any) -> Any:
    """Return a value as it is read again from JSON."""
    return json.loads(json.dumps(value))
