"""The ranks of a command as an executor: machines may have different numbers of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.predicting.sizes import OutputLimits
from diskhop.runs.distributed import Group
from diskhop.runs.rank_tasks import RankTasks
from diskhop.runtime.jobs import Job, unpickle_job
from diskhop.runtime.ranks import Ranks
from tests.graphs import folder_bytes, make_dataset, threads_engine
from tests.predictions import rows_of, write

# Three ranks on one machine, one on another.
EVERY = [Ranks(rank, 4, rank, 3) for rank in range(3)] + [Ranks(3, 4, 0, 1)]


class CopiedRanks(Group):
    """Rank 0, with copies of the job in the place of the others."""

    def __init__(self) -> None:
        super().__init__(EVERY[0])
        self.jobs: dict[int, Job] = {}

    def send(self, item: Any, rank: int) -> None:
        what, about = item
        if what == "open":
            self.jobs[rank] = unpickle_job(about[0], threads_engine())
        elif what == "run":
            self.jobs[rank].run(about, lambda _: None)

    def receive(self, rank: int) -> Any:
        return "done", None


@pytest.mark.fast(1)
@pytest.mark.parametrize(("threads", "others"), [(1, {3}), (2, {1, 3}), (3, {1, 2, 3})])
def test_a_machine_writes_no_more_predictions_at_a_time_than_its_memory_was_planned_for(
    tmp_path: Path, threads: int, others: set[int]
) -> None:
    dataset, group = make_dataset(tmp_path / "graph"), CopiedRanks()
    limits = OutputLimits(group_bytes=1, group_rows=1, part_bytes=1, read_bytes=24)
    executor = RankTasks(group, EVERY, threads_engine())
    write(tmp_path / "one", dataset, rows_of(dataset), threads=threads, limits=limits)
    write(tmp_path / "four", dataset, rows_of(dataset), threads=threads, limits=limits, executor=executor)
    assert set(group.jobs) == others
    assert folder_bytes(tmp_path / "four") == folder_bytes(tmp_path / "one")
