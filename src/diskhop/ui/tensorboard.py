"""TensorBoard events of a run: the loss of each batch, the numbers of each epoch's record, and the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.errors import ConfigError
from diskhop.ui.metrics import MetricsCallback

FOLDER = "tensorboard"


class TensorBoardCallback(MetricsCallback):
    """Writes events to the folder `tensorboard` in RUN.

    run: the RUN folder. Raises ConfigError where tensorboardX is not installed.

    >>> written = diskhop.TensorBoardCallback("logged-run")
    >>> trained = diskhop.train("my-graph", epochs=1, memory="200MB", out="logged-run", callbacks=[written])
    """

    def __init__(self, run: Path | str) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError(
                "--tensorboard needs the package tensorboardX: pip install 'diskhop[tensorboard]'"
            ) from None
        writer: Callable[[str], Any] = SummaryWriter
        self._make_writer = partial(writer, str(Path(run) / FOLDER))
        # Created with the first event, since the folder of a run must be new when it starts.
        self._writer: Any = None

    def _log(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is None:
            self._writer = self._make_writer()
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _flush(self) -> None:
        self._writer.flush()

    def _close(self, error: BaseException | None = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
