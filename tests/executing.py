"""Commands that spread tasks, on tiny data with several tasks in every stage, and indices that help them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.embedding.partitions import sort
from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.runs.nodes.packing import pack
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import embed, train
from diskhop.runtime.array_folder import JobFolder
from diskhop.runtime.array_index import IndexWork, run_index
from diskhop.runtime.jobs import COPIED_ARRAY_BYTES, Job, Lane, Share, copied, pickle_job, unpickle_job
from diskhop.runtime.plain import decode_job
from tests.graphs import folder_bytes, random_pairs, threads_engine
from tests.integration.test_workers import TINY

# Predictions share out groups of 4096 rows.
NUM_NODES = 9000

# Runs an executor's spread of a command: (folder of the sources, folder for results, executor) -> the result.
Action = Callable[[Path, Path, str], Path]


def make_sources(folder: Path) -> None:
    """Write what ACTIONS read."""
    generator = np.random.default_rng(0)
    (folder / "arrays").mkdir()
    np.savez(
        folder / "arrays" / "data.npz",
        edge_index=random_pairs(NUM_NODES, 20_000),
        x=generator.normal(size=(NUM_NODES, 96)).astype(np.float32),
        y=generator.integers(0, 3, NUM_NODES),
        train_idx=np.arange(300),
        val_idx=np.arange(300, 400),
        test_idx=np.arange(400, 500),
    )
    (folder / "text").mkdir()
    for part in range(3):
        lines = "".join(f"{3 * a},{3 * b}\n" for a, b in random_pairs(300, 1500, part).T.tolist())
        (folder / "text" / f"{part}.csv").write_text(lines)
    graph = import_graph(folder / "arrays", folder / "graph", engine=threads_engine())
    train(graph, out=folder / "run", max_batches=2, evaluate=False, **_MODEL, epochs=1)


_MODEL: dict[str, Any] = {
    "model": "sage",
    "hidden": 8,
    "batch_size": 100,
    "fanout": (4, 4),
    "memory": "300MB",
    "threads": 2,
    "engine": "threads",
}


def _import(sources: Path, out: Path, executor: str) -> Path:
    return import_graph(
        sources / "text",
        out / "graph",
        options=ImportOptions(duplicates="drop"),
        engine=threads_engine(),
        budget=Budget(1 << 30),
        threads=2,
        executor=executor,
        limits=TINY,
    ).path


def _propagate(sources: Path, out: Path, executor: str) -> Path:
    done = propagate(
        sources / "graph",
        PropagationSpec(hops=2),
        memory=1_200_000,
        scratch=out,
        threads=2,
        engine=threads_engine(),
        executor=executor,
    )
    return done.tables.path


def _pack(sources: Path, out: Path, executor: str) -> Path:
    return pack(sources / "graph", scratch=str(out), epochs=4, cache="100KB", executor=executor, **_MODEL).layout.path


def _predict(sources: Path, out: Path, executor: str) -> Path:
    done = predict_run(
        sources / "run",
        out=out / "predictions",
        memory="300MB",
        threads=2,
        engine="threads",
        format="npy",
        what=("class", "probability", "embedding"),
        executor=executor,
    )
    return done.predictions.path


def _embed(sources: Path, out: Path, executor: str) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sort, "LEAST_RANGE_EDGES", 1 << 12)
        embed(
            sources / "graph",
            out=out / "embedded",
            model="dot",
            dim=4,
            epochs=1,
            partitions=4,
            buffer=2,
            repartitions=2,
            batch_size=5000,
            memory="300MB",
            threads=2,
            engine="threads",
            executor=executor,
        )
    return out / "embedded" / "partitions"


ACTIONS: Mapping[str, Action] = {
    "import": _import,
    "propagate": _propagate,
    "pack": _pack,
    "predict": _predict,
    "embed": _embed,
}
# What runs elsewhere.
SPREAD: Mapping[str, set[str]] = {
    "import": {"ParsePairs", "SpillTask"},
    "propagate": {"HopJob"},
    "pack": {"PackJob"},
    "predict": {"FileTask", "RowsJob"},
    "embed": {"SortJob"},
}
# Files that say how long the work took.
_TIMES = ("took.json", "_manifest.json")


def result_bytes(path: Path) -> dict[str, bytes]:
    """Return the files of a result, without those that say how long it took."""
    return {name: content for name, content in folder_bytes(path).items() if name not in _TIMES}


@contextmanager
def indices(tasks: Path, order: Sequence[int], of: int) -> Iterator[list[IndexWork]]:
    """Run indices in threads of this process; yield what they did, complete once the context ends."""
    done: list[IndexWork] = []
    threads = [threading.Thread(target=lambda index=index: done.append(run_index(tasks, index, of))) for index in order]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        for thread in threads:
            thread.join()


def recorded(executor: type[Any], monkeypatch: Any) -> list[tuple[str, int]]:
    """Record the class of the tasks of every job that an executor opens, and its number of lanes."""
    found: list[tuple[str, int]] = []
    whole = executor.open

    @contextmanager
    def record(self: Any, job: Job, folder: Path, threads: int) -> Iterator[Sequence[Lane]]:
        with whole(self, job, folder, threads) as lanes:
            tasks = getattr(job, "_tasks", [job])
            found.append((type(tasks[0]).__name__.lstrip("_"), len(lanes)))
            yield lanes

    monkeypatch.setattr(executor, "open", record)
    return found


def no_driver_work(monkeypatch: Any) -> None:
    """Leave all tasks of an array job to its indices."""
    whole = JobFolder.claim
    monkeypatch.setattr(JobFolder, "claim", lambda self, number: "driver" not in self.name and whole(self, number))


class Copies:
    """An executor that runs parts in copies of a job, as other processes have them, one part at a time.

    count: number of copies. encode: makes them. parts: the steps and numbers of the parts that ran. overlaps: how often
        a part counted while it was counting, which other processes report one after the other.
    """

    def __init__(self, count: int, encode: Callable[[Job, Share], Any] = pickle_job) -> None:
        self.count, self.machines = count, (count,)
        self.parts: list[tuple[str, int]] = []
        self.overlaps = 0
        self._encode = encode
        self._lock = threading.Lock()

    @contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[Sequence[Lane]]:
        with copied(job, folder, min(self.count, threads), COPIED_ARRAY_BYTES, self._encode) as copy:
            if copy is None:
                yield ()
                return
            processes, content = copy
            decode: Any = unpickle_job if self._encode is pickle_job else decode_job
            yield [_CopyLane(decode(content, threads_engine()), self) for _ in range(processes)]

    def run(self, job: Job, number: int, count: Callable[[int], None]) -> None:
        """Run a part twice, as a process does that is taken for dead."""
        counting = threading.Lock()

        def count_alone(done: int) -> None:
            self.overlaps += counting.locked()
            with counting:
                time.sleep(0.001)
                count(done)

        with self._lock:
            self.parts.append((str(getattr(job, "step", "")), number))
            job.run(number, lambda _: None)
            job.run(number, count_alone)

    def kill(self) -> None:
        pass

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


class _CopyLane:
    def __init__(self, job: Job, executor: Copies) -> None:
        self._job = job
        self._executor = executor

    def run(self, number: int, count: Callable[[int], None]) -> None:
        self._executor.run(self._job, number, count)
