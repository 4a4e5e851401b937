"""The memory of a whole process: the budget for graph data, and the overhead that is predicted next to it.

Everything here is arithmetic on measured numbers; `runs/fitted_memory.py` has them measured.
"""

from __future__ import annotations

from typing import NamedTuple

from diskhop.budget import format_bytes
from diskhop.errors import BudgetError
from diskhop.system.limits import MemoryLimit

# The error of predictions: see docs/reliability.md.
PREDICTION_ERROR = 0.15
# Batches differ in size, and pools and the C library keep memory of all sizes that a run has had. Measured.
_STEP_HEADROOM = 1.3
# Libraries that the first step of a process loads, and what they allocate. Measured.
_FIRST_STEP_BYTES = 40_000_000
# The same of a model that is only applied.
LOADED_BYTES = 15_000_000
# Copies of the parameters while an epoch is committed: the last and the best model, those before them, and the file
# that is written, in which the optimiser has two values each.
_PARAMETER_COPIES = 8
# A stack, Python objects and chunks of the C library's memory, of each thread that samples, reads or computes.
_THREAD_BYTES = 4_000_000


class MeasuredMemory(NamedTuple):
    """Measured numbers that a prediction is made from, in bytes.

    program: resident memory before any batch, without graph data.
    shared: the part of it that processes of one machine share: pages of libraries.
    parameters: parameters of the model.
    step: most that model, gradients, optimiser and activations take in a step on a large batch, without its input.
    """

    program: int
    shared: int
    parameters: int
    step: int


class Overhead(NamedTuple):
    """Predicted memory of all processes on a machine besides graph data, in bytes.

    program: the interpreter, its libraries and threads.
    step: parameters, gradients, the optimiser's state and activations.
    copies: copies of the parameters.
    """

    program: int
    step: int
    copies: int

    @property
    def num_bytes(self) -> int:
        """The sum."""
        return sum(self)

    def __str__(self) -> str:
        parts = {"Python and libraries": self.program, "a step of the model": self.step, "its copies": self.copies}
        return ", ".join(f"{name} {format_bytes(num_bytes)}" for name, num_bytes in parts.items() if num_bytes)


def predict_overhead(measured: MeasuredMemory, threads: int, num_processes: int = 1) -> Overhead:
    """Predict the overhead of a run. threads: of all processes together. num_processes: on one machine."""
    program_bytes = num_processes * measured.program - (num_processes - 1) * measured.shared
    return Overhead(
        program=program_bytes + threads * _THREAD_BYTES,
        step=num_processes * int(_STEP_HEADROOM * measured.step),
        copies=num_processes * _PARAMETER_COPIES * measured.parameters,
    )


class MemoryWish(NamedTuple):
    """Sizes that the user has named, in bytes; 0 for none. memory: --memory. total: --total-memory."""

    memory: int = 0
    total: int = 0


class OverheadError(BudgetError):
    """The overhead leaves nothing for graph data: only smaller batches or a smaller model would."""


def choose_budget(
    overhead: Overhead, limit: MemoryLimit, usual_bytes: int, wish: MemoryWish, least_bytes: int = 1
) -> int:
    """Return the bytes for graph data, which fit next to the overhead.

    usual_bytes: what suits if the user has named nothing. least_bytes: of graph data. Raises BudgetError, with the size
    that would fit, and OverheadError if none does.
    """
    require_possible(wish, limit)
    fitting_bytes = (wish.total or limit.num_bytes) - overhead.num_bytes
    bound = f"--total-memory {format_bytes(wish.total)}" if wish.total else may_use(limit)
    predicted = f"predicted overhead of {format_bytes(overhead.num_bytes)} ({overhead})"
    if fitting_bytes < least_bytes:
        left = (
            f"{format_bytes(fitting_bytes)}, less than {format_bytes(least_bytes)}," if fitting_bytes > 0 else "nothing"
        )
        raise OverheadError(f"{predicted} leaves {left} for graph data of {bound}")
    if not wish.memory:
        # A default leaves room for the error of the prediction.
        return fitting_bytes if wish.total else min(usual_bytes, max(fitting_bytes // 2, _careful(overhead, limit)))
    # The prediction may be that much too high. A resumed run keeps its budget, and is predicted again.
    if wish.memory > fitting_bytes + int(PREDICTION_ERROR * (wish.memory + overhead.num_bytes)):
        total = format_bytes(wish.memory + overhead.num_bytes)
        raise BudgetError(
            f"--memory {format_bytes(wish.memory)} and {predicted} are {total}, more than {bound}: use --memory "
            f"{in_megabytes(fitting_bytes)}",
            fitting_bytes,
        )
    return wish.memory


def require_possible(wish: MemoryWish, limit: MemoryLimit) -> None:
    """Refuse a total that this process cannot have, whatever a run takes."""
    if wish.total > limit.num_bytes:
        most = f"--total-memory {in_megabytes(limit.num_bytes)}"
        raise BudgetError(f"--total-memory {format_bytes(wish.total)} is more than {may_use(limit)}: use {most}")


def require_first_step(program_bytes: int, limit: MemoryLimit, wish: MemoryWish) -> None:
    """Refuse what is too little for any model, which loads libraries with its first step."""
    needed_bytes = program_bytes + _FIRST_STEP_BYTES
    if (wish.total or limit.num_bytes) < needed_bytes:
        bound = f"--total-memory {format_bytes(wish.total)}" if wish.total else may_use(limit)
        raise BudgetError(
            f"Python, its libraries and a step of the smallest model take {format_bytes(needed_bytes)}, more than "
            f"{bound}; give it {format_bytes(2 * needed_bytes)} or more"
        )


def may_use(limit: MemoryLimit) -> str:
    """Return a limit in words."""
    return f"the {format_bytes(limit.num_bytes)} that this process may use ({limit.source})"


def in_megabytes(num_bytes: int) -> str:
    """Write a size as an option takes it, rounded down: 1_999_999 -> '1MB'."""
    return f"{num_bytes // 1_000_000}MB" if num_bytes >= 1_000_000 else f"{num_bytes}B"


def _careful(overhead: Overhead, limit: MemoryLimit) -> int:
    return int((1 - PREDICTION_ERROR) * limit.num_bytes) - overhead.num_bytes
