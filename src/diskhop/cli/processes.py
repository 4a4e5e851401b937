"""Commands run again in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diskhop.cli.options import spell_options
from diskhop.errors import RankError
from diskhop.run_files import CONFIG_FILE, resume_command


def run_in_processes(
    command: str,
    processes: int,
    own: Mapping[str, Path | str | int | bool | None],
    given: Mapping[str, Any],
    *configs: type[Any],
    resume: Callable[[], str | None] = lambda: None,
) -> bool:
    """Run a command in several processes; return False for one process, to continue in this one.

    own: the command's parameters that are not options of a configuration, by flag; '' for an argument.
    given: options of the configurations.
    resume: returns what resumes the command after one of the processes has ended; None for nothing to add.
    Raises ConfigError for a number of processes that cannot be started, RankError if one of them fails.
    """
    # Not at the top: torch takes seconds to load.
    from diskhop.runs.launch import launch, require_launchable

    require_launchable(processes, os.environ)
    if processes == 1:
        return False
    words = [command]
    for flag, value in own.items():
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)] if flag else [str(value)]
    try:
        code = launch([*words, *spell_options(given, *configs)], processes)
    except RankError as error:
        way = resume()
        if way is not None:
            error.add_note(f"resume with: {way}")
        raise
    if code:
        raise RankError([""], code)  # rank 0 has printed why
    return True


def resume_of_run(kind: str, out: Path | None, processes: int) -> str | None:
    """Return the command that resumes a run in some processes; None if there is no run yet."""
    if out is None or not (out / CONFIG_FILE).exists():
        return None
    return f"{resume_command(kind, out)} --processes {processes}"
