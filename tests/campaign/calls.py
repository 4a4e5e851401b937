"""Calls that fail: every call of a job on a file, one at a time, once.

With the engine `threads`, calls of the C library fail: those of the engine, of Python and of other libraries. With
io_uring they fail in the engine, where the kernel's completions arrive. Each job must end with success or with one
line, and the same command must then complete it, with the same bytes.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Generator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from diskhop._native import FaultInjector, FaultRule
from tests.campaign.cases import Case, Tries
from tests.campaign.preloaded import Server, job_named, run_preloaded

# Kinds of faulty_calls.cpp, and of the core's injector.
KINDS = {
    "EIO": (1, "io_error"),
    "ENOSPC": (2, "no_space"),
    "EINTR": (3, "interrupted"),
    "short transfer": (4, "short_transfer"),
    "EAGAIN": (5, "again"),
}
# Calls that each kind can befall, in the order of KINDS: every one of them fails once. A job that makes
# fewer now ends without a fault in some tries.
CALLS = {
    ("import", "uring"): (6, 6, 6, 6, 6),
    ("pack", "uring"): (40, 15, 40, 40, 40),
    ("propagate", "uring"): (15, 4, 15, 15, 15),
    ("train", "uring"): (84, 23, 84, 84, 84),
    ("embed", "uring"): (28, 18, 28, 28, 28),
    ("predict", "uring"): (14, 6, 14, 14, 14),
    ("import", "threads"): (114, 50, 101, 37, 6),
    ("embed", "threads"): (195, 126, 185, 38, 28),
    ("propagate", "threads"): (169, 92, 155, 27, 15),
    ("predict", "threads"): (295, 190, 262, 42, 14),
    ("pack", "threads"): (287, 80, 274, 170, 160),
    ("train", "threads"): (417, 124, 406, 214, 204),
}
_COUNTED = {"no_space": "changes"}


def run(job: str, engine: str, tries: Tries) -> Generator[str]:
    return run_preloaded(__name__, tries, job, engine)


def tries_of(tries: Tries, job: str, engine: str) -> Generator[str]:
    """Make tries in this process, which has the library."""
    server = Server(job_named(job), tries.folder, engine=engine)
    server.run_without_fault()
    ends = np.cumsum(CALLS[job, engine]).tolist()
    for each in range(tries.first, tries.first + tries.count):
        number = spread(each, ends[-1])
        place = bisect.bisect_right(ends, number)
        nth = number + 1 - (ends[place - 1] if place else 0)
        kind = list(KINDS)[place]
        wrong = server.run_with_fault(partial(_arm, server, engine, kind, nth))
        yield f"{kind} at call {nth}: {wrong}" if wrong else ""


def spread(number: int, total: int) -> int:
    """Permute numbers below total, so that the first ones are everywhere."""
    step = round(0.618 * total)
    while math.gcd(step, total) > 1:
        step += 1
    return number * step % total


def _arm(server: Server, engine: str, kind: str, nth: int) -> None:
    number, rule = KINDS[kind]
    if engine == "uring":
        _inject(rule, nth)
    else:
        server.library.faulty_calls_arm(bytes(server.folder), number, nth)


def _inject(rule: Any, nth: int) -> FaultInjector:
    """Have every engine of this process fail at the nth operation; 0: only count."""
    injector = FaultInjector([FaultRule(rule, _COUNTED.get(rule, "all"), nth)] if nth else [])
    engines: Any = import_module("diskhop.io.engine")
    plain = engines.Engine
    engines.Engine = lambda name, depth, given=None: plain(name, depth, given or injector)
    return injector


CASES = tuple(
    Case("calls that fail", f"{job}, {engine}", sum(counts), partial(run, job, engine))
    for (job, engine), counts in CALLS.items()
)
