"""All errors that diskhop raises on purpose.

Each message names the thing, the rule, the value and the next step. `exit_code` is the exit status of the command line:
2 for bad input, which the user can fix, and 1 for a failure while running.
"""

from __future__ import annotations

from collections.abc import Sequence


class DiskhopError(Exception):
    """Base class of all errors that diskhop reports in one line, or in a few.

    >>> try:
    ...     diskhop.open_dataset("nowhere")
    ... except diskhop.DiskhopError as error:
    ...     print(error.exit_code, error)
    2 nowhere: ...
    """

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, as the lines that a person reads."""
        return (str(self),)


class ConfigError(DiskhopError, ValueError):
    """An invalid option or argument, or a combination that cannot work."""

    exit_code = 2


class BudgetError(ConfigError):
    """The memory budget is too small; `smallest_bytes` is the smallest that works, if known."""

    def __init__(self, message: str, smallest_bytes: int | None = None) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes


class SchemaError(ConfigError):
    """A dataset, or options, that do not fit the model of a run; `lines` has each mismatch."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self._lines = tuple(lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """See DiskhopError."""
        return self._lines


class DiskBudgetError(ConfigError):
    """The disk budget of a packed layout is too small; `smallest_rows` is the smallest that works."""

    def __init__(self, message: str, smallest_rows: int) -> None:
        super().__init__(message)
        self.smallest_rows = smallest_rows


class FormatError(DiskhopError, ValueError):
    """A folder that is not a dataset, or a dataset with damaged or missing files or of a newer format."""

    exit_code = 2


class SourceError(DiskhopError, ValueError):
    """A graph to import that is invalid: ids out of range, NaN features, an array of objects."""

    exit_code = 2


class DestinationError(DiskhopError, OSError):
    """A destination that cannot be written: the disk is full or read-only, or the destination exists."""

    exit_code = 2


class BusyError(DestinationError):
    """A destination that another process is writing to."""


class ReadError(DiskhopError, OSError):
    """A read that failed or was short; the message names file and offset. None of its data is used."""


class WriteError(DiskhopError, OSError):
    """A write or fsync that failed; the message names file and offset."""


class PipelineError(DiskhopError, RuntimeError):
    """A stage of the pipeline stopped; the cause is chained."""


class WorkerError(DiskhopError, RuntimeError):
    """A worker process that could not be started, or ended unexpectedly."""


class RankError(DiskhopError, RuntimeError):
    """Another process of a run failed, or ended; `lines` and `exit_code` are those of its error."""

    def __init__(self, lines: Sequence[str], exit_code: int = 1) -> None:
        super().__init__("; ".join(lines))
        self._lines = tuple(lines)
        self.exit_code = exit_code

    @property
    def lines(self) -> tuple[str, ...]:
        """See DiskhopError."""
        return self._lines


class TrainingError(DiskhopError, RuntimeError):
    """Training cannot continue: the loss is not finite, or a checkpoint does not match."""


class RequirementError(DiskhopError, RuntimeError):
    """A model that is not as good as `--require` demands; nothing is published."""


class PredictionError(DiskhopError, RuntimeError):
    """Predictions that must not be used: a value is not finite."""
