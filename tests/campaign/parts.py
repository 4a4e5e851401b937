"""The parts of the campaign; a new one is a module with CASES and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign import allocations, calls, disks, flips, fuzz, kills, ranks
from tests.campaign.cases import Case

PARTS: dict[str, Sequence[Case]] = {
    "kills": kills.CASES,
    "ranks": ranks.CASES,
    "flips": flips.CASES,
    "calls": calls.CASES,
    "allocations": allocations.CASES,
    "disks": disks.CASES,
    "fuzz": fuzz.CASES,
}
