"""Allocations of the core that fail: of every call that allocates, the first, the last and one in between.

A library that is preloaded counts the allocations of each call in the core by its place, and lets one of them fail. The
command must end with one line or succeed, and the same command must then complete its work, with the same bytes.
"""

from __future__ import annotations

import ctypes
import json
import random
from collections.abc import Generator
from functools import partial
from pathlib import Path

from tests.campaign.cases import Case, Tries
from tests.campaign.preloaded import Server, job_named, run_preloaded

_MOST_SITES = 1 << 14
# Places of nanobind, which makes lists of arguments and a map of objects in functions that must not throw: the process
# ends. More such places in a job are failures.
_PLACES_OF_NANOBIND = 5
# Places in the core that allocate in each job, three times as many tries.
TRIES = {"import": 100, "pack": 200, "propagate": 150, "train": 200, "embed": 150, "predict": 150}


def run(job: str, engine: str, tries: Tries) -> Generator[str]:
    return run_preloaded(__name__, tries, job, engine)


def tries_of(tries: Tries, job: str, engine: str) -> Generator[str]:
    """Make tries in this process, which has the library."""
    server = Server(job_named(job), tries.folder, engine=engine)
    server.names_nothing = True
    core = core_addresses()
    sites = _sites_of(server, core)
    ending = set[int]()
    for number in range(tries.first, tries.first + tries.count):
        place, nth = chosen(sites, number, tries.draws(job, number))
        wrong = server.run_with_fault(partial(server.library.faulty_news_arm, *core, place, nth))
        if wrong.startswith("ended by SIGABRT") and "std::bad_alloc" in wrong:
            ending.add(place)
            if len(ending) <= _PLACES_OF_NANOBIND:
                wrong = ""
        yield f"allocation {nth} at {place:#x} of the core: {wrong}" if wrong else ""


def chosen(sites: list[tuple[int, int]], number: int, draws: random.Random) -> tuple[int, int]:
    """Return the call in the core and which of its allocations fails in a try."""
    turn, index = divmod(number, len(sites))
    place, count = sites[index]
    return place, [1, count, draws.randint(1, count)][turn % 3]


def core_addresses() -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    """Return where the core's code begins and ends in this process, and in its children."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "diskhop/_native" in line]
    ranges = [[int(number, 16) for number in line[0].split("-")] for line in lines]
    begin, end = min(begin for begin, _ in ranges), max(end for _, end in ranges)
    return ctypes.c_void_p(begin), ctypes.c_void_p(end)


def _sites_of(server: Server, core: tuple[ctypes.c_void_p, ctypes.c_void_p]) -> list[tuple[int, int]]:
    """Run the job without a fault, and return the calls in the core that allocate, and how often they do."""
    counted = server.folder / "counted"

    def tell() -> None:
        places, counts = (ctypes.c_uint64 * _MOST_SITES)(), (ctypes.c_long * _MOST_SITES)()
        number = server.library.faulty_news_sites(places, counts, _MOST_SITES)
        counted.write_text(json.dumps(list(zip(places[:number], counts[:number], strict=True))))

    server.at_end = tell
    server.run_without_fault(partial(server.library.faulty_news_arm, *core, ctypes.c_void_p(0), 0))
    server.at_end = lambda: None
    return sorted((place, count) for place, count in json.loads(counted.read_text()))


CASES = tuple(
    Case("allocations that fail", f"{job}, {engine}", count, partial(run, job, engine))
    for engine in ("threads", "uring")
    for job, count in TRIES.items()
)
