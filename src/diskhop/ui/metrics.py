"""Callbacks that send the numbers of a run elsewhere: TensorBoard, MLflow, Weights & Biases.

All of them get the same names: batch/loss after every training batch, epoch/NAME of each record in result.json, and
test/NAME at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from diskhop.errors import ConfigError
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.choices import Choice


class MetricsCallback(Callback):
    """Turns what a run reports into numbers by name. A context, too: leaving it closes what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def batch_done(self, progress: BatchProgress) -> None:
        """See Callback."""
        if progress.loss is None:
            return
        values = {
            "batch/loss": progress.loss,
            f"batch/{progress.unit}_per_second": progress.rate,
            "batch/stall_share": progress.stall_share,
        }
        self._log(values, progress.epoch * progress.num_batches + progress.batch)

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        epoch = record["epoch"]
        values = {f"epoch/{name}": value for name, value in _numbers(record).items() if name != "epoch"}
        if values:
            self._log(values, epoch)
            self._flush()
        return False

    def finished(self, result: Mapping[str, Any]) -> None:
        """See Callback."""
        tested = _numbers(result.get("test", {}))
        if tested:
            self._log({f"test/{name}": value for name, value in tested.items()}, len(result["epochs"]) - 1)
        self._close()

    def failed(self, error: BaseException) -> None:
        """See Callback."""
        self._close(error)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        """Log some numbers, at least one."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Make what was logged visible to readers."""

    def _close(self, error: BaseException | None = None) -> None:
        """Close what is open, which may be nothing. error: what ended the run; None: it is finished."""


class MLflowCallback(MetricsCallback):
    """Logs options and numbers to MLflow: to the run that is active, or to one of its own.

    experiment: name of the experiment of its own run; default: MLflow's. run_name: name of that run; default: MLflow's.
    Raises ConfigError where MLflow is not installed.

    >>> tracked = diskhop.MLflowCallback(experiment="graphs")
    >>> trained = diskhop.train("my-graph", memory="200MB", callbacks=[tracked])
    """

    def __init__(self, experiment: str | None = None, run_name: str | None = None) -> None:
        try:
            import mlflow
        except ImportError:
            raise ConfigError("MLflowCallback needs the package mlflow: pip install 'diskhop[mlflow]'") from None
        self._mlflow: Any = mlflow
        self._experiment = experiment
        self._run_name = run_name
        self._is_own = False

    def configured(self, config: Any, choices: list[Choice] | Any) -> None:
        """See Callback."""
        if self._mlflow.active_run() is None:
            if self._experiment is not None:
                self._mlflow.set_experiment(self._experiment)
            self._mlflow.start_run(run_name=self._run_name)
            self._is_own = True
        self._mlflow.log_params(asdict(config))

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def _close(self, error: BaseException | None = None) -> None:
        if self._is_own:
            self._is_own = False
            is_interrupted = isinstance(error, KeyboardInterrupt)
            self._mlflow.end_run("FINISHED" if error is None else "KILLED" if is_interrupted else "FAILED")


class WandbCallback(MetricsCallback):
    """Logs options and numbers to Weights & Biases: to the run that is active, or to one of its own.

    arguments: those of wandb.init(), such as project, name or mode="offline". Raises ConfigError where wandb is not
    installed.

    >>> tracked = diskhop.WandbCallback(project="graphs", mode="offline")
    >>> trained = diskhop.train("my-graph", memory="200MB", callbacks=[tracked])
    """

    def __init__(self, **arguments: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError("WandbCallback needs the package wandb: pip install 'diskhop[wandb]'") from None
        self._wandb: Any = wandb
        self._arguments = arguments
        self._run: Any = None
        self._is_own = False

    def configured(self, config: Any, choices: list[Choice] | Any) -> None:
        """See Callback."""
        self._is_own = self._wandb.run is None
        self._run = self._wandb.init(**self._arguments) if self._is_own else self._wandb.run
        self._run.config.update(asdict(config))

    def _log(self, values: Mapping[str, float], step: int) -> None:
        # Without its own step, which may not go back: an epoch's number follows those of its batches.
        kind = next(iter(values)).partition("/")[0]
        self._run.log({**values, f"{kind}/step": step})

    def _close(self, error: BaseException | None = None) -> None:
        run, self._run = self._run, None
        if self._is_own and run is not None:
            run.finish(exit_code=0 if error is None else 1)
        self._is_own = False


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if isinstance(value, int | float)}
