"""TensorBoard events of a run: the loss of each batch, the numbers of each epoch's record, and the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from diskhop.errors import ConfigError
from diskhop.runs.callbacks import BatchProgress, Callback

FOLDER = "tensorboard"


class TensorBoardCallback(Callback):
    """Writes events to a folder in RUN. A context: leaving it closes the file.

    Raises ConfigError where tensorboardX is not installed.
    """

    def __init__(self, run: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError(
                "--tensorboard needs the package tensorboardX: pip install 'diskhop[tensorboard]'"
            ) from None
        writer: Callable[[str], Any] = SummaryWriter
        self._make_writer = partial(writer, str(run / FOLDER))
        # Created with the first event, since the folder of a run must be new when it starts.
        self._writer: Any = None

    def __enter__(self) -> TensorBoardCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def batch_done(self, progress: BatchProgress) -> None:
        """See Callback."""
        if progress.loss is None:
            return
        step = progress.epoch * progress.num_batches + progress.batch
        self._add("batch/loss", progress.loss, step)
        self._add(f"batch/{progress.unit}_per_second", progress.rate, step)
        self._add("batch/stall_share", progress.stall_share, step)

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        for name, value in record.items():
            if isinstance(value, int | float) and name != "epoch":
                self._add(f"epoch/{name}", value, record["epoch"])
        self._writer.flush()
        return False

    def finished(self, result: Mapping[str, Any]) -> None:
        """See Callback."""
        for name, value in result.get("test", {}).items():
            if isinstance(value, int | float):
                self._add(f"test/{name}", value, len(result["epochs"]) - 1)

    def _add(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            self._writer = self._make_writer()
        self._writer.add_scalar(name, value, step)
