"""The ranks of a command as an executor: rank 0 runs the command, and all of them run the tasks that it shares out.

Rank 0 sends a job to the others, then the number of a part to each that is free; an answer ends every message.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from diskhop._native import Engine
from diskhop.errors import ConfigError
from diskhop.io.engine import kind_of_engine, open_engine
from diskhop.runs.distributed import Group, open_group
from diskhop.runs.shares import require_whole_machines
from diskhop.runtime.executors import open_executor
from diskhop.runtime.jobs import (
    COPIED_ARRAY_BYTES,
    Executor,
    InWorkerError,
    Job,
    Lane,
    copied,
    pickle_job,
    portable_error,
    unpickle_job,
)
from diskhop.runtime.process import work_in
from diskhop.runtime.ranks import ONE, Ranks, most_per_machine, read_ranks
from diskhop.system.memory import default_threads

ResultT = TypeVar("ResultT")
_OPEN, _RUN, _CLOSE, _END, _COUNTED, _DONE, _FAILED = "open", "run", "close", "end", "counted", "done", "failed"
_FIRST = 0


class RankTasks:
    """The executor of rank 0: one lane per rank. Ranks of a machine take equal parts of its memory and threads.

    every: all ranks, in their order. Machines may have different numbers of them: all take what a rank of the fullest
        machine does.
    """

    def __init__(self, group: Group, every: Sequence[Ranks], engine: Engine) -> None:
        self.count = len(every)
        self.machines = tuple(each.local_count for each in every if each.local_rank == 0)
        self._group = group
        self._engine = engine
        # First one of each machine, so that a job of few parts takes little of the memory of each.
        others = sorted(every[1:], key=lambda each: each.local_rank)
        self._others = [each.rank for each in others]

    @contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[Sequence[Lane]]:
        """See Executor."""
        with copied(job, folder, min(self.count, threads), COPIED_ARRAY_BYTES, pickle_job) as copy:
            if copy is None:
                yield ()
                return
            processes, content = copy
            others = [_RankLane(self._group, rank) for rank in self._others[: processes - 1]]
            for each in others:
                each.send(_OPEN, (content, kind_of_engine(self._engine), str(Path.cwd())))
            for each in others:
                each.wait()
            yield [_OwnLane(job), *others]
            for each in others:
                each.send(_CLOSE, None)
                each.wait()

    def kill(self) -> None:
        """See Executor: a signal ends all ranks, as their launcher sends it to each."""

    def __enter__(self) -> RankTasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _OwnLane:
    """Runs parts in rank 0."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """See Lane."""
        self._job.run(number, count)


class _RankLane:
    """Runs parts in another rank. Raises RankError if it ends."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group = group
        self._rank = rank

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """See Lane."""
        self.send(_RUN, number)
        self.wait(count)

    def send(self, what: str, about: Any) -> None:
        """Send a message, which wait() receives the answer to."""
        self._group.send((what, about), self._rank)

    def wait(self, count: Callable[[int], None] = lambda _: None) -> None:
        """Wait for the answer. Raises the error of the rank."""
        while True:
            what, about = self._group.receive(self._rank)
            if what == _DONE:
                return
            if what == _FAILED:
                error, trace = about
                raise error from InWorkerError(trace)
            count(about)


def in_ranks(command: Callable[[TaskPlace], ResultT], executor: str, workers: int | None) -> ResultT:
    """Run a command on rank 0 of those that torchrun has started, and its tasks on all. Returns its result on each.

    executor, workers: where tasks run if torchrun has started none, as --executor and --workers say. An error of any
    rank ends all, and rank 0 raises it.
    """
    with open_group(read_ranks(os.environ)) as group:
        require_whole_machines(group)
        every = group.gather(group.ranks)
        if not group.ranks.is_first:
            result: ResultT = _serve(group)
            return result
        result = command(TaskPlace(group, every, executor, workers))
        for rank in range(1, group.ranks.count):
            group.send((_END, result), rank)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlace:
    """Where the tasks of a command run: in its ranks, or where --executor and --workers say.

    every: all ranks, in their order.
    """

    group: Group
    every: Sequence[Ranks] = (ONE,)
    executor: str = ""
    workers: int | None = None

    @property
    def is_here(self) -> bool:
        """Whether they can only run in this process."""
        return self.group.is_alone and self.executor in ("", "threads") and self.workers in (None, 1)

    @property
    def processes(self) -> int:
        """Processes of the fullest machine, with this one."""
        if not self.group.is_alone:
            return most_per_machine(self.every)
        is_elsewhere = self.executor.partition(":")[0] in ("ray", "array")
        if self.is_here or is_elsewhere:
            return 1
        return 1 + (self.workers or default_threads())

    def threads(self, wanted: int) -> int:
        """Return the threads of all processes of a machine: at least one for each."""
        return max(wanted, self.workers or most_per_machine(self.every))

    def open(self, threads: int, memory_bytes: int, engine: Engine) -> Executor:
        """Return the executor, which shares threads and memory. Raises ConfigError."""
        if self.group.is_alone:
            return open_executor(self.executor, self.workers, threads=threads, memory_bytes=memory_bytes, engine=engine)
        if self.executor or self.workers is not None:
            flag = f"--executor {self.executor}" if self.executor else f"--workers {self.workers}"
            raise ConfigError(f"tasks run in the {self.group.ranks.count} processes of this command: remove {flag}")
        return RankTasks(self.group, self.every, engine)


def _serve(group: Group) -> Any:
    """Run parts for rank 0 until its command ends; return the result."""
    job: Job | None = None
    while True:
        what, about = group.receive(_FIRST)
        if what == _END:
            return about
        try:
            if what == _OPEN:
                content, engine, folder = about
                work_in(folder)
                job = unpickle_job(content, open_engine(*engine).engine)
            elif what == _CLOSE:
                job = None
            else:
                assert job is not None, "it was opened"
                job.run(about, lambda done: group.send((_COUNTED, done), _FIRST))
            answer: tuple[str, Any] = (_DONE, None)
        except Exception as error:
            answer = (_FAILED, (portable_error(error), traceback.format_exc()))
        group.send(answer, _FIRST)
