"""Every error that diskhop raises on purpose.

Each message names the thing, the rule, the value and the next step. `exit_code` is what the command line
ends with: 2 for bad input (the user can mend it), 1 for a failure while running.
"""

from __future__ import annotations


class DiskhopError(Exception):
    """Base class: catch this to catch whatever diskhop reports in one line."""

    exit_code = 1


class ConfigError(DiskhopError, ValueError):
    """An option, argument or combination of them that cannot work."""

    exit_code = 2


class BudgetError(ConfigError):
    """The memory budget is too small; `smallest_bytes` is the smallest that would do, where it is known."""

    def __init__(self, message: str, smallest_bytes: int | None = None) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes


class DiskBudgetError(ConfigError):
    """What a packed layout may take on the disk is too little; `smallest_rows` is the least that would do."""

    def __init__(self, message: str, smallest_rows: int) -> None:
        super().__init__(message)
        self.smallest_rows = smallest_rows


class FormatError(DiskhopError, ValueError):
    """A directory that is not a dataset, or one whose files are damaged, incomplete or of a newer format."""

    exit_code = 2


class SourceError(DiskhopError, ValueError):
    """A graph to import that breaks a rule: ids out of range, NaN features, an array of objects."""

    exit_code = 2


class DestinationError(DiskhopError, OSError):
    """A place to write that cannot take the result: full, read-only, or already there."""

    exit_code = 2


class ReadError(DiskhopError, OSError):
    """A read that failed or fell short; the message names file and offset. No data of it is used."""


class WriteError(DiskhopError, OSError):
    """A write or fsync that failed; the message names file and offset."""


class PipelineError(DiskhopError, RuntimeError):
    """A stage of the pipeline stopped; the cause is chained."""


class WorkerError(DiskhopError, RuntimeError):
    """A process that shared the work of this one could not be started, or ended before its time."""


class TrainingError(DiskhopError, RuntimeError):
    """Training cannot go on: the loss is not finite, or a checkpoint does not fit."""
