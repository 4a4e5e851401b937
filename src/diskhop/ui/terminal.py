"""A training run on a terminal: what was chosen, a bar with loss and time left, a line per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from diskhop.budget import format_bytes
from diskhop.config.embed import EmbedConfig
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError
from diskhop.plans import RunPlan
from diskhop.runs.callbacks import BatchProgress, Callback, Callbacks
from diskhop.system.memory import resident_bytes
from diskhop.ui.progress import StageProgress
from diskhop.ui.tensorboard import TensorBoardWatcher

# A line for every epoch of a few; of hundreds, about so many.
_EPOCH_LINES = 20


class TerminalWatcher(Callback):
    """Prints to a console; a context, so that the bar is gone when the run ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
        # Started with the first batch, so that an early error stands alone.
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._stages = StageProgress(self._bars)
        self._task: TaskID | None = None
        self._num_epochs = 1
        self._reasons: list[str] = []
        self._memory_bytes = 0

    def __enter__(self) -> TerminalWatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def configured(self, config: TrainConfig | EmbedConfig, reasons: list[str]) -> None:
        """See Callback."""
        self._num_epochs = config.epochs
        self._reasons = reasons

    def planned(self, plan: RunPlan) -> None:
        """See Callback. Only now: what cannot be planned ends with one line, and nothing before it."""
        self._print([*self._reasons, *plan.reasons])
        self._memory_bytes = plan.memory_bytes

    def announced(self, text: str) -> None:
        """See Callback."""
        self._print([text])

    def prepared(self, stage: str, done: int, total: int) -> None:
        """See Callback."""
        self._stages(stage, done, total)

    def progressed(self, progress: BatchProgress) -> None:
        """See Callback."""
        if self._task is None:
            self._bars.start()
            self._task = self._bars.add_task("", status="")
        self._bars.update(
            self._task,
            description=f"epoch {progress.epoch}/{progress.num_epochs} {progress.stage}",
            completed=progress.batch,
            total=progress.num_batches,
            status="  ".join(self._status(progress)),
        )

    def _status(self, progress: BatchProgress) -> Iterator[str]:
        """What is told beside the bar."""
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

    def epoch_done(self, record: dict[str, Any]) -> None:
        """See Callback."""
        number = record["epoch"] + 1
        if number % max(1, self._num_epochs // _EPOCH_LINES) and number != self._num_epochs:
            return
        valid = "" if record.get("valid") is None else f"  valid {record['valid']:.4f}"
        times = f"{record['seconds']:.1f} s, waiting {record['stall_seconds']:.1f} s"
        if "edges_per_second" in record:
            times += f"  {record['edges_per_second']:,.0f} edges/s"
        self._print([f"epoch {number}/{self._num_epochs}  loss {record['loss']:.4f}{valid}  {times}"])

    def _print(self, lines: list[str] | tuple[str, ...]) -> None:
        for line in lines:
            self._console.print(line, markup=False)


@contextmanager
def watching(console: Console, out: Path | None, *, tensorboard: bool) -> Iterator[Callback]:
    """What the command line shows of a run, and TensorBoard's events where they are asked for."""
    with ExitStack() as stack:
        watchers: list[Callback] = [stack.enter_context(TerminalWatcher(console))]
        if tensorboard:
            if out is None:
                raise ConfigError("--tensorboard writes to the run's folder: name one with --out")
            watchers.append(stack.enter_context(TensorBoardWatcher(out)))
        yield Callbacks(watchers)
