"""Fuzz targets of the core and of the readers in Python: an hour each, as tries of five minutes with other seeds.

Every try begins with the repository's inputs. The core's targets use libFuzzer where CXX names Clang, the readers
where atheris is installed; see tools/fuzz.sh and tests/fuzz/run.py.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from tests.campaign.cases import Case, Tries
from tests.fuzz.run import NAMES

NUM_TRIES = 12
SECONDS = 300
_CORE = sorted(path.name for path in Path("native/fuzz/corpus").iterdir())


def core(name: str) -> list[str]:
    """The command for a target of the core. It finds the seed in the environment."""
    return ["sh", "tools/fuzz.sh", str(SECONDS), name]


def reader(name: str) -> list[str]:
    """The command for a target in Python."""
    return [sys.executable, "-m", "tests.fuzz.run", name, "--seconds", str(SECONDS)]


def tries_of(command: Callable[[str], list[str]], name: str, tries: Tries) -> Generator[str]:
    """Fuzz a target with a seed for each try."""
    for number in range(tries.first, tries.first + tries.count):
        seed = str(1 + tries.seed * NUM_TRIES + number)
        told = tries.folder / "told"
        with told.open("wb") as out:
            options = [] if command is core else ["--seed", seed]
            environment = {**os.environ, "FUZZ_SEED": seed}
            done = subprocess.run(
                [*command(name), *options], stdout=out, stderr=subprocess.STDOUT, env=environment, check=False
            )
        lines = told.read_text(errors="replace").split("\n")
        yield f"seed {seed}: {' | '.join(lines[-6:])}" if done.returncode else ""


CASES: Sequence[Case] = tuple(
    Case(kind, name, NUM_TRIES, functools.partial(tries_of, command, name))
    for kind, command, names in (("core", core, _CORE), ("reader", reader, NAMES))
    for name in names
)
