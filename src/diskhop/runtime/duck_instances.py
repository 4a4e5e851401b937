"""Instances of DuckDB. One is kept when it is closed: opening another takes 20 ms, most of a small import's time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import duckdb

_Options = dict[str, str | bool | int | float | list[str]]

_CONFIG: _Options = {
    # The cache would confuse a slice with an earlier one at the same path.
    "enable_external_file_cache": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

# The instance that is kept. No lock guards the list, since a process may fork while another thread holds it.
_idle: list[duckdb.DuckDBPyConnection] = []


def open_instance(memory_bytes: int, threads: int, spill: Path) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB within limits of memory and threads, which spills to a folder."""
    limits: _Options = {"memory_limit": f"{memory_bytes}B", "threads": threads, "temp_directory": str(spill)}
    try:
        instance = _idle.pop()
    except IndexError:
        return duckdb.connect(config=_CONFIG | limits)
    try:
        for name, value in limits.items():
            instance.execute(f"SET {name} = $1", [value]).complete()
    except duckdb.Error:
        instance.close()
        return duckdb.connect(config=_CONFIG | limits)
    return instance


def close_instance(instance: duckdb.DuckDBPyConnection, had_error: bool) -> None:
    """Close an instance, the cursors of which are closed, or keep it for open_instance()."""
    is_kept = False
    try:
        if not had_error and not _idle:
            # An error says that it has spilled: only closing removes what it left in the folder.
            with suppress(duckdb.Error):
                instance.execute("SET temp_directory = ''").complete()
                is_kept = True
    finally:
        if is_kept:
            _idle.append(instance)
        else:
            instance.close()


def _close_idle() -> None:
    with suppress(IndexError):  # another thread may take it
        _idle.pop().close()


# A forked process has none of the instance's threads, and would wait for them.
os.register_at_fork(before=_close_idle)
