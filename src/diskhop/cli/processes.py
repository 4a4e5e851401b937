"""Commands that train, run again in several processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.cli.options import spell_options
from diskhop.errors import RankError
from diskhop.run_files import COMMANDS, CONFIG_FILE, resume_command


def run_in_processes(
    kind: str,
    processes: int,
    own: Mapping[str, Path | str | bool | None],
    given: Mapping[str, Any],
    *configs: type[Any],
) -> bool:
    """Run a command in several processes; return False for one process, to continue in this one.

    kind: kind of run, whose command it is.
    own: the command's parameters that are not options of a configuration, by flag; '' for the dataset.
    given: options of the configurations.
    Raises ConfigError for a number of processes that cannot be started, RankError if one of them fails.
    """
    # Not at the top: torch takes seconds to load.
    from diskhop.runs.launch import launch, require_launchable

    require_launchable(processes, os.environ)
    if processes == 1:
        return False
    words = [COMMANDS[kind]]
    for flag, value in own.items():
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)] if flag else [str(value)]
    out = own["--out"]
    try:
        code = launch([*words, *spell_options(given, *configs)], processes)
    except RankError as error:
        if isinstance(out, Path) and (out / CONFIG_FILE).exists():
            error.add_note(f"resume with: {resume_command(kind, out)} --processes {processes}")
        raise
    if code:
        raise RankError([""], code)  # rank 0 has printed why
    return True
