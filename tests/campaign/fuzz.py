"""Fuzz targets of the core and of the readers in Python: an hour each, as tries of five minutes with other seeds.

Every try begins with the repository's inputs. The core's targets use libFuzzer where CXX names Clang, the readers
where atheris is installed; see tools/fuzz.sh and tests/fuzz/run.py.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from tests.campaign.cases import Case, Tries
from tests.fuzz.run import NAMES

NUM_TRIES = 12
SECONDS = 300
_CORE = sorted(path.name for path in (Path(__file__).parents[2] / "native/fuzz/corpus").iterdir())


def core(name: str, seed: int) -> list[str]:
    """The command for a target of the core."""
    return ["env", f"FUZZ_SEED={seed}", "sh", "tools/fuzz.sh", str(SECONDS), name]


def reader(name: str, seed: int) -> list[str]:
    """The command for a target in Python."""
    return [sys.executable, "-m", "tests.fuzz.run", name, "--seconds", str(SECONDS), "--seed", str(seed)]


def tries_of(command: Callable[[str, int], list[str]], name: str, tries: Tries) -> Generator[str]:
    """Fuzz a target with a seed for each try."""
    for number in range(tries.first, tries.first + tries.count):
        seed = 1 + tries.seed * NUM_TRIES + number
        told = tries.folder / "told"
        with told.open("wb") as out:
            done = subprocess.run(command(name, seed), stdout=out, stderr=subprocess.STDOUT, check=False)
        words = " ".join(told.read_text(errors="replace").split())
        yield f"seed {seed}: {words[-1000:]}" if done.returncode else ""


CASES: Sequence[Case] = tuple(
    Case(kind, name, NUM_TRIES, functools.partial(tries_of, command, name))
    for kind, command, names in (("core", core, _CORE), ("reader", reader, NAMES))
    for name in names
)
