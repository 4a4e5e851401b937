"""The memory of a run's whole process: measured and predicted before it starts, and refused where it does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError
from diskhop.planning.overhead import (
    MemoryWish,
    Overhead,
    OverheadError,
    choose_budget,
    predict_overhead,
    require_first_step,
    require_possible,
)
from diskhop.runs.choices import Choice, Resolved
from diskhop.runs.kinds import RunKind
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.program_memory import MEMORY, measure_program, wish_of
from diskhop.runs.trial_steps import Trial
from diskhop.runtime.progress import Progress, silent
from diskhop.system.limits import MemoryLimit, memory_limit

_TOTAL = "total_memory_bytes"
_BATCH_SIZES = ("batch_size", "eval_batch_size")
# What this process may use, over a named --memory and the program, from which on nothing is measured: trial steps take
# seconds on large batches.
_AMPLE = 4


@dataclass(frozen=True, slots=True)
class FittedMemory:
    """The memory of a run that fits.

    budget_bytes: for graph data.
    overhead: predicted for all else.
    limit: what this process may use.
    wish: what the user has named.
    advise: returns what would fit, in words, if graph data do not.
    """

    budget_bytes: int
    overhead: Overhead
    limit: MemoryLimit
    wish: MemoryWish
    advise: Callable[[], str]

    def choice(self) -> Choice:
        """Return the line of the table of options."""
        num_bytes = [self.budget_bytes, self.overhead.num_bytes, self.budget_bytes + self.overhead.num_bytes]
        budget, overhead, total = map(format_bytes, num_bytes)
        may_use = f"this process may use {format_bytes(self.limit.num_bytes)}, by {self.limit.source}"
        why = f"budget + predicted overhead ({self.overhead}); {may_use}"
        return Choice(_TOTAL, f"{budget} + {overhead} = {total}", why)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say of a budget that is too small for graph data what the whole process needs."""
        try:
            yield
        except BudgetError as error:
            needed_bytes = (error.smallest_bytes or 0) + self.overhead.num_bytes
            if not error.smallest_bytes or (self.wish.memory and needed_bytes <= self.limit.num_bytes):
                raise
            parts = f"graph data need {format_bytes(error.smallest_bytes)} at least, and predicted overhead "
            parts += f"{format_bytes(self.overhead.num_bytes)} ({self.overhead})"
            if needed_bytes > self.limit.num_bytes:
                may_use = f"more than the {format_bytes(self.limit.num_bytes)} that this process may use"
                raise BudgetError(f"{parts}: {may_use} ({self.limit.source}); {self.advise()}") from error
            least = f"--total-memory {-(-needed_bytes // 1_000_000)}MB"
            if self.wish.total:
                raise BudgetError(
                    f"--total-memory {format_bytes(self.wish.total)} is too small: {parts}; the smallest that works is "
                    f"{least}"
                ) from error
            raise BudgetError(f"{error}, or {least}", error.smallest_bytes) from error


def fit_memory(
    kind: RunKind[Any, Any, Any],
    dataset: Dataset,
    resolved: Resolved[Any, Any],
    processes: int = 1,
    progress: Progress = silent,
) -> tuple[Resolved[Any, Any], FittedMemory | None]:
    """Predict the overhead of a run, and choose the budget for graph data next to it, unless --memory names it.

    Returns None, and predicts nothing, where --memory leaves ample room.

    processes: that share the budget on this machine. progress: hears of merged types and clusters. Raises BudgetError
    where both together do not fit.
    """
    if kind.try_steps is None:
        return resolved, None
    config, limit = resolved.config, memory_limit()
    wish = wish_of(config, resolved.choices)
    require_possible(wish, limit)
    if (
        wish.memory
        and not wish.total
        and limit.num_bytes >= _AMPLE * (wish.memory + processes * measure_program(0).program)
    ):
        return resolved, None
    trials = _Trials(kind, dataset, resolved.task, processes, wish.total or limit.num_bytes, progress)
    require_first_step(trials.program.program, limit, wish)
    overhead, trial = trials.run(config)
    advise = partial(trials.advise, config)
    choose = partial(choose_budget, overhead, limit, config.memory_bytes, wish)
    try:
        try:
            budget_bytes = choose()
        except BudgetError:
            # A budget that fits, but is of no use, is not to be named.
            budget_bytes = choose(least_bytes=_least_bytes(trial))
    except OverheadError as error:
        raise BudgetError(f"{error}; {advise()}") from error
    fitted = FittedMemory(budget_bytes, overhead, limit, wish, advise)
    choices = [choice for choice in resolved.choices if choice.option != MEMORY]
    # What is saved is the budget: to resume with another one would plan another run.
    config = replace(config, memory_bytes=budget_bytes, total_memory_bytes=0)
    return Resolved(config, [*choices, fitted.choice()], resolved.task), fitted


class _Trials:
    """Predicts the overhead of a run with different batch sizes.

    allowed_bytes: what the whole process may take.

    program: this process before any trial.
    """

    def __init__(
        self,
        kind: RunKind[Any, Any, Any],
        dataset: Dataset,
        task: Any,
        processes: int,
        allowed_bytes: int,
        progress: Progress,
    ) -> None:
        self._kind = kind
        self._dataset = dataset
        self._task = task
        self._processes = processes
        self._allowed_bytes = allowed_bytes
        self._progress = progress
        self.program = measure_program(task.num_bytes if isinstance(task, NodeTask) else 0)

    def run(self, config: Any) -> tuple[Overhead, Trial]:
        """Measure trial steps, and return the overhead that they lead to."""
        assert self._kind.try_steps is not None
        trial = self._kind.try_steps(self._dataset, config, self._task, self._allowed_bytes, self._progress)
        measured = self.program._replace(
            parameters=max(0, trial.memory.parameter_bytes - trial.held_bytes),
            step=max(0, trial.memory.peak_bytes - trial.held_bytes),
        )
        return predict_overhead(measured, config.threads, self._processes), trial

    def advise(self, config: Any) -> str:
        """Return the largest batch size that fits, by halves, in words."""
        sizes = {name: getattr(config, name) for name in _BATCH_SIZES if hasattr(config, name)}
        needed_bytes = 0
        while max(sizes.values()) > 1:
            sizes = {name: max(1, size // 2) for name, size in sizes.items()}
            overhead, trial = self.run(replace(config, **sizes))
            needed_bytes = overhead.num_bytes + _least_bytes(trial)
            if needed_bytes < self._allowed_bytes:
                return "use " + " ".join(f"--{name.replace('_', '-')} {size}" for name, size in sizes.items())
        return (
            f"no batch size fits: the smallest takes {format_bytes(needed_bytes)}; use a smaller --fanout or --hidden"
        )


def _least_bytes(trial: Trial) -> int:
    """Return the smallest budget of a run, as far as it is known."""
    return 1 if trial.least_bytes is None else trial.least_bytes()
