"""Predictions to Parquet: classes and probabilities from logits of 2 M nodes and 47 classes, compared with PyArrow.

Claims (issue 38): with a probability per class (94 M values), and with the class and its probability, writing takes at
most 1.25 times as long as the slower of two: the disk, for the bytes written, and `pyarrow.parquet.write_table` of the
same table from RAM to the same disk, with one fsync. Memory is within budget + 150 MB when logits are on disk.

The two columns of the second case are 40 times smaller than the logits they are computed from: PyArrow's side computes
them too, for all nodes at once, by PyTorch on all cores. Its time without that is shown as well. Turns alternate; each
runs in its own process, with the logits in memory before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.io.engine import open_engine
from diskhop.predicting.columns import Outputs
from diskhop.predicting.output import predictions_folder, write_predictions
from diskhop.predicting.rows import ArrayRows, RowTable
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from turns import Disk, Turn, measure_disk, take_turn

LEAST_RATIO = 0.8
ALLOWED_OVERHEAD_BYTES = 150_000_000
CASES = {"per class": ("class", "probabilities"), "class": ("class", "probability")}


class FileRows:
    """Rows in a .npy file."""

    def __init__(self, path: Path) -> None:
        mapped = np.load(path, mmap_mode="r")
        self._path = path
        self._begin = int(mapped.offset)
        self.num_rows, self.dim = mapped.shape

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        end = self.num_rows if stop is None else stop
        for first, last in row_ranges(end - start, block_rows):
            offset = self._begin + 4 * self.dim * (start + first)
            yield np.fromfile(self._path, np.float32, (last - first) * self.dim, offset=offset).reshape(-1, self.dim)


def make_source(folder: Path, num_nodes: int, num_classes: int) -> None:
    """Make a dataset with gaps between its ids, and logits."""
    generator = np.random.default_rng(0)
    engine = open_engine().engine
    with DatasetBuilder(folder / "graph", name="graph", engine=engine, budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", num_nodes)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(np.zeros((2, 1), np.int64)))
        builder.add_original_ids("node", [np.cumsum(generator.integers(1, 50, num_nodes))])
        builder.finish()
    logits = np.lib.format.open_memmap(folder / "logits.npy", "w+", np.float32, (num_nodes, num_classes))
    for start, stop in row_ranges(num_nodes, 1 << 16):
        logits[start:stop] = 3 * generator.standard_normal((stop - start, num_classes), np.float32)
    logits.flush()


def write_ours(
    folder: Path, words: tuple[str, ...], memory_bytes: int, rows: RowTable, threads: int
) -> dict[str, float]:
    """Write predictions. Returns seconds, by the clock and of the cores."""
    dataset = open_dataset(folder / "graph")
    tools = TaskTools(open_engine().engine)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    with ExitStack() as held:
        work_folder = held.enter_context(WorkFolder(folder / "out"))
        staged = held.enter_context(predictions_folder(folder / "out", overwrite=False))
        work = WorkTools(work_folder, tools, Budget(memory_bytes), threads, silent, held)
        write_predictions(staged, dataset, Outputs(words=words), {"logits": rows}, work, key="logits")
    return {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu_begin}


def ours(folder: Path, words: tuple[str, ...], memory_bytes: int, threads: int, stages: dict[str, float]) -> None:
    rows = ArrayRows(np.load(folder / "logits.npy"))
    stages |= write_ours(folder, words, memory_bytes, rows, threads)


def ours_from_disk(
    folder: Path, words: tuple[str, ...], memory_bytes: int, threads: int, stages: dict[str, float]
) -> None:
    stages |= write_ours(folder, words, memory_bytes, FileRows(folder / "logits.npy"), threads)


def by_pyarrow(folder: Path, words: tuple[str, ...], memory_bytes: int, threads: int, stages: dict[str, float]) -> None:
    """Compute all columns in memory, then write them with the encodings that ours have."""
    torch.set_num_threads(threads)
    logits = torch.from_numpy(np.load(folder / "logits.npy"))
    ids = np.fromfile(folder / "graph/nodes/node/original_ids.bin", np.int64)
    begin = time.perf_counter()
    probabilities = torch.softmax(logits, dim=1)
    probability, classes = probabilities.max(dim=1)
    stages["computed"] = time.perf_counter() - begin
    values = pa.array(probabilities.numpy().reshape(-1))
    columns = {
        "id": ids,
        "class": classes.numpy(),
        "probability": probability.numpy(),
        "probabilities": pa.FixedSizeListArray.from_arrays(values, logits.shape[1]),
    }
    table = pa.table({name: columns[name] for name in ("id", *words)})
    begin, cpu_begin = time.perf_counter(), time.process_time()
    path = folder / "table.parquet"
    pq.write_table(
        table,
        path,
        compression="none",
        use_dictionary=["class"],
        column_encoding={"id": "DELTA_BINARY_PACKED"},
        write_statistics=["id", "class", "probability"],
        write_batch_size=1 << 14,
    )
    with path.open("rb") as file:
        os.fsync(file.fileno())
    stages |= {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu_begin}


def nothing(folder: Path, words: tuple[str, ...], memory_bytes: int, threads: int, stages: dict[str, float]) -> None:
    """Open the dataset only: its peak is the memory of the program."""
    open_dataset(folder / "graph")
    open_engine()


WORK = {"ours": ours, "pyarrow": by_pyarrow, "ours, logits on disk": ours_from_disk, "program": nothing}


def turn(kind: str, folder: Path, words: tuple[str, ...], memory_bytes: int, threads: int) -> Turn:
    """Take a turn and remove what it wrote."""
    done = take_turn(WORK[kind], folder, words, memory_bytes, threads)
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.rmtree(folder / ".out.work", ignore_errors=True)
    (folder / "table.parquet").unlink(missing_ok=True)
    return done


def show(name: str, turns: list[Turn], seconds: list[float]) -> str:
    ordered, written = sorted(seconds), turns[-1].bytes_written
    return (
        f"{name:30}{statistics.median(ordered):7.2f} s ({ordered[0]:.2f}..{ordered[-1]:.2f})"
        f"{statistics.median(each.stages['cpu'] for each in turns):6.2f} s of the cores"
        f"{written / 1e6:8.1f} MB written{max(each.peak_rss_bytes for each in turns) / 1e6:8,.0f} MB peak"
    )


def median_ratio(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use: 1.5 GB")
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--memory", default="100MB", help="budget of ours")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    memory_bytes, threads = parse_bytes(arguments.memory), len(os.sched_getaffinity(0))
    out = partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    claims: dict[str, bool] = {}
    document: dict[str, Any] = {"benchmark": "prediction_output", "claims": claims, "turns": {}}
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as name:
        folder = Path(name)
        make_source(folder, arguments.nodes, arguments.classes)
        out(f"{arguments.nodes:,} nodes, {arguments.classes} classes, {threads} threads, --memory {arguments.memory}")
        program = turn("program", folder, (), memory_bytes, threads)
        for case, words in CASES.items():
            turns: dict[str, list[Turn]] = {kind: [] for kind in ("ours", "pyarrow", "ours, logits on disk")}
            disks: list[Disk] = []
            for _ in range(arguments.repeats):
                disks.append(measure_disk(folder, folder / "logits.npy"))
                for kind, each in turns.items():
                    each.append(turn(kind, folder, words, memory_bytes, threads))
            report(case, turns, disks, claims, out)
            peak_bytes = max(each.peak_rss_bytes for each in turns["ours, logits on disk"])
            most_bytes = memory_bytes + ALLOWED_OVERHEAD_BYTES
            text = f"{case}: {(peak_bytes - program.peak_rss_bytes) / 1e6:.0f} MB more than the program"
            claims[f"{text}, at most {most_bytes / 1e6:.0f}"] = peak_bytes - program.peak_rss_bytes <= most_bytes
            document["turns"][case] = {kind: [asdict(one) for one in each] for kind, each in turns.items()}
    for claim, is_met in claims.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        print(json.dumps(document, indent=1))
    return 0 if all(claims.values()) else 1


def report(case: str, turns: dict[str, list[Turn]], disks: list[Disk], claims: dict[str, bool], out: Any) -> None:
    """Print the costs of a case, and claim its ratio."""
    seconds = {kind: [each.stages["seconds"] for each in kind_turns] for kind, kind_turns in turns.items()}
    for kind, each in turns.items():
        out(show(f"{case}: {kind}", each, seconds[kind]))
    computed = [each.stages["computed"] for each in turns["pyarrow"]]
    out(f"{'':30}{statistics.median(computed):7.2f} s of computing before, in memory, not in PyArrow's time")
    rates = sorted(disk.write_rate / 1e6 for disk in disks)
    out(f"disk: {statistics.median(rates):,.0f} MB/s written ({rates[0]:,.0f}..{rates[-1]:,.0f})")
    bytes_written = turns["ours"][-1].bytes_written
    on_disk = [bytes_written / disk.write_rate for disk in disks]
    alone = [theirs / mine for theirs, mine in zip(seconds["pyarrow"], seconds["ours"], strict=True)]
    against_disk = [disk / mine for disk, mine in zip(on_disk, seconds["ours"], strict=True)]
    both = [(a + b) / mine for a, b, mine in zip(seconds["pyarrow"], computed, seconds["ours"], strict=True)]
    out(f"{case}: {median_ratio(alone)} of PyArrow's speed, {median_ratio(against_disk)} of the disk's")
    out(f"{case}: {median_ratio(both)} of PyArrow's speed with its computing")
    theirs = both if case == "class" else alone
    bounds = [max(pair) for pair in zip(theirs, against_disk, strict=True)]
    ratio = statistics.median(bounds)
    claims[f"{case}: {median_ratio(bounds)} of the slower of both, at least {LEAST_RATIO}"] = ratio >= LEAST_RATIO


if __name__ == "__main__":
    sys.exit(main())
