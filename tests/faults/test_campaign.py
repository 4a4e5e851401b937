"""A share of the fault campaign; `make campaign` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.parts import PARTS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("part", [name for name in PARTS if name != "fuzz"])  # which `make check` runs for minutes
def test_a_fifth_of_the_campaign_finds_nothing(part: str) -> None:
    """Each part in a process of its own, as some fork."""
    command = [sys.executable, "-m", "tests.campaign", part, "--share", "1/5"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
