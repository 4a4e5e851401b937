"""A run for people: a table of what was chosen, a bar with loss and time left, a line per epoch; see progress.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from diskhop.budget import format_bytes
from diskhop.errors import ConfigError
from diskhop.plans import RunPlan
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.choices import Choice
from diskhop.system.memory import resident_bytes
from diskhop.ui.console import SafeConsole
from diskhop.ui.progress import MinuteLines, StageProgress, draws_bars
from diskhop.ui.still_working import PLANNING, PREPARING, StillWorking
from diskhop.ui.table import plan_choices, table_lines
from diskhop.ui.tensorboard import TensorBoardCallback

# Lines about epochs of a long run; a short run has one per epoch.
_EPOCH_LINES = 20
# Between the plan and the first batch.
_OPENING = "Reading what stays in memory"


class TerminalCallback(Callback):
    """Prints to a console: a terminal, a notebook or a log file. A context: leaving it removes the bar of a broken run.

    console: default: the standard error output.

    >>> with diskhop.TerminalCallback() as shown:
    ...     trained = diskhop.train("my-graph", epochs=1, memory="200MB", callbacks=[shown])
    """

    def __init__(self, console: Console | None = None) -> None:
        console = console or SafeConsole(stderr=True, soft_wrap=True, highlight=False)
        self._console = console
        self._lines = MinuteLines(console)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
        # Started with the first batch, so that an early error stands alone.
        self._bars = Progress(*columns, console=console, transient=True, disable=not draws_bars(console))
        self._stages = StageProgress(self._bars)
        self._task: TaskID | None = None
        self._num_epochs = 1
        self._choices: Sequence[Choice] = ()
        self._memory_bytes = 0
        self._before_batches = StillWorking(console)

    def __enter__(self) -> TerminalCallback:
        self._before_batches.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def configured(self, config: Any, choices: Sequence[Choice]) -> None:
        """See Callback."""
        self._num_epochs = config.epochs
        self._choices = choices
        self._before_batches.now_does(PLANNING)

    def planned(self, plan: RunPlan) -> None:
        """See Callback. Prints the table only now, so that an error in planning stands alone."""
        width = self._console.width if self._console.is_terminal else None
        self._print(table_lines([*self._choices, *plan_choices(plan.reasons)], width))
        self._memory_bytes = plan.memory_bytes
        self._before_batches.now_does(_OPENING)

    def announced(self, text: str) -> None:
        """See Callback."""
        self._before_batches.now_does(PREPARING)
        self._print([text])

    def prepared(self, stage: str, done: int, total: int) -> None:
        """See Callback."""
        self._before_batches.now_does(stage, has_lines=True)
        self._stages(stage, done, total)

    def batch_done(self, progress: BatchProgress) -> None:
        """See Callback."""
        if self._task is None:
            self._before_batches.end()
            self._bars.start()
            self._task = self._bars.add_task("", status="")
        self._bars.update(
            self._task,
            description=_where(progress),
            completed=progress.batch,
            total=progress.num_batches,
            status="  ".join(self._status(progress)),
        )
        self._lines.show(lambda: self._batch_line(progress))

    def _batch_line(self, progress: BatchProgress) -> str:
        return (
            f"{_where(progress)}: batch {progress.batch} of {progress.num_batches}  {'  '.join(self._status(progress))}"
        )

    def _status(self, progress: BatchProgress) -> Iterator[str]:
        """Return the texts next to the bar."""
        if progress.loss is not None:
            yield f"loss {progress.loss:.4f}"
        yield (
            f"{progress.rate:,.0f} {progress.unit}/s"
            if progress.rate >= 10
            else f"{progress.rate:.1f} {progress.unit}/s"
        )
        yield f"waiting {progress.stall_share:.0%}"
        if progress.hit_rate is not None:
            yield f"hits {progress.hit_rate:.0%}"
        yield f"{format_bytes(resident_bytes('VmRSS'))} resident, budget {format_bytes(self._memory_bytes)}"
        if progress.seconds_left is not None:
            yield f"{max(0, progress.seconds_left):.0f} s left"

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        number = record["epoch"] + 1
        if number % max(1, self._num_epochs // _EPOCH_LINES) == 0 or number == self._num_epochs:
            self._print([self._epoch_line(number, record)])
        return False

    def finished(self, result: Mapping[str, Any]) -> None:
        """See Callback."""
        self._end()

    def failed(self, error: BaseException) -> None:
        """See Callback."""
        self._end()

    def _end(self) -> None:
        self._before_batches.end()
        self._bars.stop()

    def _epoch_line(self, number: int, record: dict[str, Any]) -> str:
        valid = "" if record.get("valid") is None else f"  valid {record['valid']:.4f}"
        times = f"{record['seconds']:.1f} s, waiting {record['stall_seconds']:.1f} s"
        if "edges_per_second" in record:
            times += f"  {record['edges_per_second']:,.0f} edges/s"
        return f"epoch {number}/{self._num_epochs}  loss {record['loss']:.4f}{valid}  {times}"

    def _print(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False)


def _where(progress: BatchProgress) -> str:
    # The test comes after the last epoch.
    return f"epoch {min(progress.epoch + 1, progress.num_epochs)}/{progress.num_epochs} {progress.stage}"


@contextmanager
def run_callbacks(console: Console, out: Path | None, *, tensorboard: bool) -> Iterator[list[Callback]]:
    """Open the callbacks of a run on the command line. tensorboard: write TensorBoard events to `out`, too."""
    with ExitStack() as stack:
        callbacks: list[Callback] = [stack.enter_context(TerminalCallback(console))]
        if tensorboard:
            if out is None:
                raise ConfigError("--tensorboard writes to the run's folder: name one with --out")
            callbacks.append(stack.enter_context(TensorBoardCallback(out)))
        yield callbacks
