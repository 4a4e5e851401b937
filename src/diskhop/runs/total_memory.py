"""The memory of a run's whole process: measured on trial steps and predicted before it starts; see fitted_memory.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.planning.overhead import Overhead, predict_overhead
from diskhop.runs.choices import Resolved
from diskhop.runs.fitted_memory import FittedMemory, fit_needs
from diskhop.runs.kinds import RunKind
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.program_memory import MEMORY, measure_program, wish_of
from diskhop.runs.trial_steps import Trial
from diskhop.runtime.progress import Progress, silent

_BATCH_SIZES = ("batch_size", "eval_batch_size")


def fit_memory(
    kind: RunKind[Any, Any, Any],
    dataset: Dataset,
    resolved: Resolved[Any, Any],
    processes: int = 1,
    progress: Progress = silent,
) -> tuple[Resolved[Any, Any], FittedMemory | None]:
    """Predict the overhead of a run, and choose the budget for graph data next to it; see fit_needs().

    processes: that share the budget on this machine. progress: hears of merged types and clusters. Raises BudgetError
    where both together do not fit.
    """
    config, task = resolved.config, resolved.task
    trials = _Trials(kind, dataset, config, task, processes, progress)
    fitted = fit_needs(trials, wish_of(config, resolved.choices), config.memory_bytes)
    if fitted is None:
        return resolved, None
    choices = [choice for choice in resolved.choices if choice.option != MEMORY]
    # What is saved is the budget: to resume with another one would plan another run.
    config = replace(config, memory_bytes=fitted.budget_bytes, total_memory_bytes=0)
    return Resolved(config, [*choices, fitted.choice()], task), fitted


class _Trials:
    """Needs of a run, by trial steps with its batch sizes; see Needs."""

    has_steps = True

    def __init__(
        self, kind: RunKind[Any, Any, Any], dataset: Dataset, config: Any, task: Any, processes: int, progress: Progress
    ) -> None:
        self._kind = kind
        self._dataset = dataset
        self._config = config
        self._task = task
        self._progress = progress
        self._trial: Trial | None = None
        self.processes = processes
        self.program = measure_program(task.num_bytes if isinstance(task, NodeTask) else 0)

    def predict(self, allowed_bytes: int) -> Overhead:
        """See Needs."""
        overhead, self._trial = self._run(self._config, allowed_bytes)
        return overhead

    def least_bytes(self) -> int:
        """See Needs."""
        assert self._trial is not None, "predict() is called first"
        return _least_bytes(self._trial)

    def advise(self, allowed_bytes: int) -> str:
        """Return the largest batch size that fits, by halves, in words."""
        sizes = {name: getattr(self._config, name) for name in _BATCH_SIZES if hasattr(self._config, name)}
        needed_bytes = 0
        while max(sizes.values()) > 1:
            sizes = {name: max(1, size // 2) for name, size in sizes.items()}
            overhead, trial = self._run(replace(self._config, **sizes), allowed_bytes)
            needed_bytes = overhead.num_bytes + _least_bytes(trial)
            if needed_bytes < allowed_bytes:
                return "use " + " ".join(f"--{name.replace('_', '-')} {size}" for name, size in sizes.items())
        smaller = " or ".join(self._kind.sizes_of_step)
        return f"no batch size fits: the smallest takes {format_bytes(needed_bytes)}; use a smaller {smaller}"

    def _run(self, config: Any, allowed_bytes: int) -> tuple[Overhead, Trial]:
        """Measure trial steps, and return the overhead that they lead to."""
        trial = self._kind.try_steps(self._dataset, config, self._task, allowed_bytes, self._progress)
        measured = self.program._replace(
            parameters=max(0, trial.memory.parameter_bytes - trial.held_bytes),
            step=max(0, trial.memory.peak_bytes - trial.held_bytes),
        )
        return predict_overhead(measured, config.threads, self.processes), trial


def _least_bytes(trial: Trial) -> int:
    """Return the smallest budget of a run, as far as it is known."""
    return 1 if trial.least_bytes is None else trial.least_bytes()
