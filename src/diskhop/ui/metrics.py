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
    """Turns what a run reports into numbers by name. A context, too: leaving it closes what a broken run left open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

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
        self._log({f"epoch/{name}": value for name, value in _numbers(record).items() if name != "epoch"}, epoch)
        self._flush()
        return False

    def finished(self, result: Mapping[str, Any]) -> None:
        """See Callback."""
        tested = _numbers(result.get("test", {}))
        if tested:
            self._log({f"test/{name}": value for name, value in tested.items()}, len(result["epochs"]) - 1)
        self._close()

    def _log(self, values: Mapping[str, float], step: int) -> None:
        raise NotImplementedError

    def _flush(self) -> None:
        """Make what was logged visible to readers."""

    def _close(self) -> None:
        """Close what is open, which may be nothing."""


class MLflowCallback(MetricsCallback):
    """Logs options and numbers to MLflow: to the run that is active, or to one of its own.

    experiment: name of the experiment of its own run; default: MLflow's. run_name: name of that run; default: MLflow's.
    Raises ConfigError where MLflow is not installed.
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

    def _close(self) -> None:
        if self._is_own:
            self._mlflow.end_run()
            self._is_own = False


class WandbCallback(MetricsCallback):
    """Logs options and numbers to Weights & Biases: to the run that is active, or to one of its own.

    arguments: those of wandb.init(), such as project, name or mode="offline". Raises ConfigError where wandb is not
    installed.
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

    def _close(self) -> None:
        if self._is_own and self._run is not None:
            self._run.finish()
        self._run, self._is_own = None, False


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if isinstance(value, int | float)}
