"""Blocks of an interrupted run, which its tables are cut into: a run that resumes plans with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from diskhop.errors import BudgetError
from diskhop.io.atomic import Injector, write_file
from diskhop.runtime.tasks import WorkFolder

Blocks = Sequence[Sequence[int]]


class PlanOfBlocks(Protocol):
    """A plan of layers in blocks."""

    @property
    def blocks(self) -> Blocks:
        """Tiles of each block of every layer or step."""


PlanT = TypeVar("PlanT", bound=PlanOfBlocks)


def plan_with_earlier(
    folder: WorkFolder, key: str, plan: Callable[[Blocks], PlanT], injector: Injector | None
) -> PlanT:
    """Plan with the blocks of an interrupted run, if they fit; otherwise plan new ones, and note them for the next run.

    key: differs wherever a byte of the tables may. plan: plans with some blocks; () for any.
    """
    path = folder.stage("blocks", key) / "tiles.json"
    if path.exists():
        with suppress(BudgetError):
            return plan(json.loads(path.read_bytes()))
    planned = plan(())
    write_file(path, json.dumps(planned.blocks).encode(), injector)
    return planned
