"""Processes that do things together: none waits for one that has given up."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest

from diskhop.errors import ConfigError
from diskhop.pipeline import peers
from tests.ranks import call_in_group

# Two processes on one machine, one on another. What they do together in a block, in order:
PLACES = ("start", "machine", "all", "end")


def give_up(failing: int, place: str) -> str:
    """Run a block in which one process raises an error before it does something with others; return what this one says.

    Its caller catches the error, and goes on.
    """
    rank = int(os.environ["RANK"])

    def arrive(where: str) -> None:
        if rank == failing and where == place:
            raise ConfigError(f"process {rank} gives up")

    with mock.patch.object(peers, "_machine", return_value=(str(rank // 2),)):
        world, local = peers.meet()
    try:
        with peers.together():
            arrive("start")
            first = local.first(lambda: rank)
            arrive("machine")
            every = local.every(lambda: rank)
            arrive("all")
            found = world.gather((first, every, local.count))
            arrive("end")
    except ConfigError as error:
        return str(error)
    return str(found)


@pytest.fixture(scope="module")
def said() -> dict[tuple[int, str], list[Any]]:
    """Texts of three processes, by the process and the place where it gives up."""
    cases = [(failing, place) for failing in range(3) for place in PLACES] + [(-1, "")]
    return dict(zip(cases, call_in_group(3, [(give_up, case) for case in cases]), strict=True))


@pytest.mark.fast(6)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("failing", range(3))
def test_an_error_of_one_process_is_that_of_all(
    said: dict[tuple[int, str], list[Any]], failing: int, place: str
) -> None:
    assert said[failing, place] == [f"process {failing} gives up"] * 3


def test_they_go_on_together_after_errors(said: dict[tuple[int, str], list[Any]]) -> None:
    assert said[-1, ""] == ["[(0, 0, 2), (0, 1, 2), (2, 2, 1)]"] * 3
