"""DuckDB within limits of its own, whether its instance is new or one that was closed before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from diskhop.errors import BudgetError
from diskhop.runtime import duck_instances
from diskhop.runtime.duck import Duck, QueryError

MIB = 1 << 20
# More than 24 MiB of rows to sort.
SPILLING = "SELECT max(key) FROM (SELECT hash(range) AS key FROM range(3_000_000) ORDER BY key)"

FORKING = """
import os, signal, sys
from pathlib import Path
from diskhop.runtime.duck import Duck

def count():
    with Duck(64 << 20, 2, Path(sys.argv[1])) as duck:
        return duck.fetch("SELECT count(*) FROM range(300_000)")[0][0]

assert count() == 300_000
child = os.fork()
if child == 0:
    signal.alarm(30)
    sys.exit(int(count() != 300_000))
sys.exit(int(os.waitpid(child, 0)[1] != 0 or count() != 300_000))
"""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[duckdb.DuckDBPyConnection]]:
    """The instances that are opened."""
    found: list[duckdb.DuckDBPyConnection] = []
    connect = duckdb.connect

    def counted(**options: object) -> duckdb.DuckDBPyConnection:
        found.append(connect(**options))  # type: ignore[arg-type]
        return found[-1]

    duck_instances._close_idle()
    monkeypatch.setattr(duckdb, "connect", counted)
    yield found
    duck_instances._close_idle()


def settings_of(duck: Duck) -> list[str]:
    names = ("memory_limit", "threads", "temp_directory", "TimeZone", "enable_external_file_cache")
    return [str(column[0]) for column in duck.fetch(f"SELECT {', '.join(f'current_setting({n!r})' for n in names)}")]


def test_an_instance_is_opened_once_and_has_the_limits_of_each(
    opened: list[duckdb.DuckDBPyConnection], tmp_path: Path
) -> None:
    for number, (mib, threads) in enumerate([(100, 1), (200, 2), (70, 1)]):
        with Duck(mib * MIB, threads, tmp_path / str(number)) as duck:
            assert settings_of(duck) == [f"{mib}.0 MiB", f"{threads}", str(tmp_path / str(number)), "UTC", "False"]
    assert len(opened) == 1
    assert list(tmp_path.iterdir()) == []


def test_two_at_a_time_are_two_instances(opened: list[duckdb.DuckDBPyConnection], tmp_path: Path) -> None:
    with Duck(100 * MIB, 1, tmp_path / "a") as first:
        assert settings_of(first)[0] == "100.0 MiB"
        with Duck(200 * MIB, 1, tmp_path / "b") as second:
            assert settings_of(second)[0] == "200.0 MiB"
        assert settings_of(first)[0] == "100.0 MiB"
    assert len(opened) == 2


def test_one_that_has_spilled_is_closed_and_its_folder_is_gone(
    opened: list[duckdb.DuckDBPyConnection], tmp_path: Path
) -> None:
    with Duck(24 * MIB, 1, tmp_path / "spill") as duck:
        duck.run(SPILLING)
        assert any((tmp_path / "spill").iterdir())
    assert list(tmp_path.iterdir()) == []
    with Duck(64 * MIB, 1, tmp_path / "other") as duck:
        assert settings_of(duck)[2] == str(tmp_path / "other")
    assert len(opened) == 2


def test_one_whose_work_failed_is_closed(opened: list[duckdb.DuckDBPyConnection], tmp_path: Path) -> None:
    with pytest.raises(QueryError), Duck(100 * MIB, 1, tmp_path / "spill") as duck:
        duck.run("SELECT 'x'::INTEGER")
    with Duck(100 * MIB, 1, tmp_path / "spill") as duck:
        settings_of(duck)
    assert len(opened) == 2


def test_the_limit_of_a_later_one_is_kept(opened: list[duckdb.DuckDBPyConnection], tmp_path: Path) -> None:
    """A limit that is not enough is refused by an instance that had more before."""
    wanted = "SELECT list(range) FROM range(5_000_000)"
    with Duck(300 * MIB, 1, tmp_path / "spill") as duck:
        duck.run(wanted)
    with Duck(24 * MIB, 1, tmp_path / "spill") as duck, pytest.raises(BudgetError, match="more than 25"):
        duck.run(wanted)
    assert len(opened) == 1


def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKING, str(tmp_path / "spill")], check=False, timeout=60)
    assert done.returncode == 0
