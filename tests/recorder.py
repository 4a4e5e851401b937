"""A plugin of pytest that follows the advice of every refusal that tests run into: `-p tests.recorder`.

It hears commands typed in this process or by the `diskhop` script, and calls of import_graph(), before test modules
bind their names. The session fails with the chains that lead back, to an unknown option or to a traceback.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import diskhop.cli
import diskhop.importing.run
from diskhop.cli import app
from diskhop.cli.options import spell_options
from diskhop.errors import DiskhopError
from diskhop.importing.options import ImportOptions
from tests.advice import Report, follow, masked

REPORT = Report()
_heard: set[tuple[str, str]] = set()
_is_following = False
_run, _import_graph, _subprocess_run = app.run, diskhop.importing.run.import_graph, subprocess.run


class _Both(io.StringIO):
    """Text that also goes to where it went before."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target

    def write(self, text: str) -> int:
        super().write(text)
        return int(self._target.write(text) or 0)


def _hear(words: list[str], error: str, folder: Any = None) -> None:
    """Follow a refusal, once for each command and message."""
    global _is_following
    lines = [line for line in error.splitlines() if line.startswith("diskhop: ")]
    if not lines or _is_following or (words[0], masked(lines[-1])) in _heard:
        return
    _heard.add((words[0], masked(lines[-1])))
    _is_following = True
    try:
        follow(words, lines[-1], REPORT, None if folder is None else Path(folder))
    finally:
        _is_following = False


def _heard_run(arguments: list[str]) -> int:
    if _is_following:
        return _run(arguments)
    told = _Both(sys.stderr)
    with contextlib.redirect_stderr(told):
        code = _run(arguments)
    if code == 2:
        _hear(list(arguments), told.getvalue())
    return code


def _heard_import(source: Path, destination: Path, **options: Any) -> Any:
    try:
        return _import_graph(source, destination, **options)
    except DiskhopError as error:
        # Faults and tiny limits cannot be typed.
        if error.exit_code == 2 and not _is_following and not options.keys() & {"injector", "limits"}:
            given = options.get("options") or ImportOptions()
            words = spell_options({name: getattr(given, name) for name in given.given()}, ImportOptions)
            words += [f"--{key}={options[f'{key}_name']}" for key in ("format",) if options.get(f"{key}_name")]
            words += [f"--memory={options['budget'].total_bytes}"] if options.get("budget") else []
            _hear(["import", *words, str(source), str(destination)], f"diskhop: {error}")
        raise


def _heard_subprocess(*arguments: Any, **options: Any) -> Any:
    done = _subprocess_run(*arguments, **options)
    words = arguments[0] if arguments else options.get("args")
    if isinstance(words, list) and Path(str(words[0])).name == "diskhop" and done.returncode == 2 and done.stderr:
        told = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
        _hear([str(word) for word in words[1:]], told, options.get("cwd"))
    return done


def pytest_configure() -> None:
    """Listen before test modules are imported."""
    patches: list[tuple[Any, str, Any]] = [
        (app, "run", _heard_run),
        (diskhop.cli, "run", _heard_run),
        (diskhop.importing.run, "import_graph", _heard_import),
        (subprocess, "run", _heard_subprocess),
    ]
    for module, name, heard in patches:
        setattr(module, name, heard)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the chains that lead nowhere."""
    terminalreporter.section("advice")
    terminalreporter.write_line(f"{len(_heard)} refusals, {REPORT.steps} pieces of advice typed")
    for fault in REPORT.faults:
        terminalreporter.write_line(f"FAULT {fault}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session for chains that lead nowhere."""
    if REPORT.faults:
        session.exitstatus = 1
