"""Cases of the campaign, and the tries that they make."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tries:
    """Tries to make. first: number of the first. count: how many. seed: of the campaign. folder: empty."""

    first: int
    count: int
    seed: int
    folder: Path

    def draws(self, what: str, number: int) -> random.Random:
        """Random numbers of one try."""
        return random.Random(f"{self.seed} {what} {number}")


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of fault, done to one thing.

    kind: of fault, such as 'SIGKILL'. what: it is done to. count: tries of a whole campaign.
    run: makes tries, and yields once for each, in order: "" or one line that says what went wrong.
    """

    kind: str
    what: str
    count: int
    run: Callable[[Tries], Generator[str]]
