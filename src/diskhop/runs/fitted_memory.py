"""The memory of a whole process: predicted before any work, fitted into what the process may use, or refused.

Every command does it here, in the same way and with the same words. What work takes besides graph data differs: a run
that trains measures trial steps (total_memory.py), other work computes nothing to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from diskhop.budget import format_bytes
from diskhop.errors import BudgetError
from diskhop.planning.overhead import (
    LOADED_BYTES,
    MeasuredMemory,
    MemoryWish,
    Overhead,
    OverheadError,
    choose_budget,
    predict_overhead,
    require_first_step,
    require_possible,
)
from diskhop.runs.choices import Choice
from diskhop.system.limits import MemoryLimit, memory_limit
from diskhop.system.memory import default_memory_bytes

TOTAL = "total_memory_bytes"
# What this process may use, over a named --memory and the program, from which on nothing is predicted: trial steps take
# seconds on large batches.
_AMPLE = 4


class Needs(Protocol):
    """Memory of work next to graph data.

    program: this process before the work.
    processes: that do it on this machine.
    has_steps: whether a model is trained.
    """

    @property
    def program(self) -> MeasuredMemory:
        """See above."""

    @property
    def processes(self) -> int:
        """See above."""

    @property
    def has_steps(self) -> bool:
        """See above."""

    def predict(self, allowed_bytes: int) -> Overhead:
        """Predict the overhead. allowed_bytes: what the whole process may take."""

    def least_bytes(self) -> int:
        """Return the smallest budget for graph data, as far as it is known. Called after predict()."""

    def advise(self, allowed_bytes: int) -> str:
        """Return what would fit, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainNeeds:
    """Needs of work without training; see Needs.

    threads: of all processes.
    model_bytes: parameters of the model that is applied, and what it keeps between batches; None: there is no model.
    """

    program: MeasuredMemory
    threads: int
    processes: int = 1
    model_bytes: int | None = None
    has_steps: bool = False

    def predict(self, _allowed_bytes: int) -> Overhead:
        """See Needs."""
        step_bytes = 0 if self.model_bytes is None else LOADED_BYTES + self.model_bytes
        return predict_overhead(self.program._replace(step=step_bytes), self.threads, self.processes)

    def least_bytes(self) -> int:
        """See Needs: it is known when the work is planned."""
        return 1

    def advise(self, allowed_bytes: int) -> str:
        """See Needs."""
        enough = f"give it {format_bytes(2 * self.predict(allowed_bytes).num_bytes)} or more"
        return enough if self.processes == 1 else f"{enough}, or use fewer processes"


@dataclass(frozen=True, slots=True)
class FittedMemory:
    """The memory of work that fits.

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
        return Choice(TOTAL, f"{budget} + {overhead} = {total}", why)

    def __str__(self) -> str:
        choice = self.choice()
        return f"total memory {choice.value}: {choice.why}"

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


class WorkMemory:
    """The memory of work without training, and what was predicted of it: a budget from the first moment on.

    needs: what it takes besides graph data. wish: what the user has named. Raises BudgetError where both do not fit.

    budget_bytes: for graph data.
    fitted: what was predicted; None where a named budget leaves ample room.
    """

    def __init__(self, needs: Needs, wish: MemoryWish) -> None:
        usual_bytes = wish.memory or default_memory_bytes()
        self.fitted = fit_needs(needs, wish, usual_bytes)
        self.budget_bytes = usual_bytes if self.fitted is None else self.fitted.budget_bytes

    @contextmanager
    def explained(self) -> Iterator[None]:
        """See FittedMemory."""
        if self.fitted is None:
            yield
            return
        with self.fitted.explained():
            yield

    def describe(self, tell: Callable[[str], None]) -> None:
        """Give a line about what was predicted, if anything was."""
        if self.fitted is not None:
            tell(str(self.fitted))

    def result(self) -> Mapping[str, int]:
        """Return the entries of a result about what was predicted."""
        return {} if self.fitted is None else {"predicted_overhead_bytes": self.fitted.overhead.num_bytes}


def fit_needs(needs: Needs, wish: MemoryWish, usual_bytes: int) -> FittedMemory | None:
    """Predict the overhead of work, and choose the budget for graph data next to it, unless --memory names it.

    Returns None, and predicts nothing, where --memory leaves ample room.

    usual_bytes: budget that suits if the user has named nothing. Raises BudgetError where both do not fit.
    """
    limit = memory_limit()
    require_possible(wish, limit)
    program_bytes = needs.processes * needs.program.program
    if wish.memory and not wish.total and limit.num_bytes >= _AMPLE * (wish.memory + program_bytes):
        return None
    if needs.has_steps:
        require_first_step(needs.program.program, limit, wish)
    allowed_bytes = wish.total or limit.num_bytes
    overhead = needs.predict(allowed_bytes)
    try:
        try:
            budget_bytes = choose_budget(overhead, limit, usual_bytes, wish)
        except BudgetError:
            # A budget that fits, but is of no use, is not to be named.
            budget_bytes = choose_budget(overhead, limit, usual_bytes, wish, needs.least_bytes())
    except OverheadError as error:
        raise BudgetError(f"{error}; {needs.advise(allowed_bytes)}") from error
    return FittedMemory(budget_bytes, overhead, limit, wish, lambda: needs.advise(allowed_bytes))
