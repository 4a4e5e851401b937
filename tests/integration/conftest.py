"""Fixtures of the tests of executors: sources, and the results that every executor must make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executing import ACTIONS, make_sources, result_bytes
from tests.graphs import memory_folder


@pytest.fixture(scope="session")
def spread_sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what ACTIONS read."""
    with memory_folder(tmp_path_factory.mktemp("sources")) as folder:
        make_sources(folder)
        yield folder


@pytest.fixture(scope="session")
def spread_expected(spread_sources: Path) -> dict[str, dict[str, bytes]]:
    """The bytes of every action on threads."""
    found = {}
    for name, action in ACTIONS.items():
        out = spread_sources / f"out-{name}"
        out.mkdir()
        found[name] = result_bytes(action(spread_sources, out, "threads"))
    return found
