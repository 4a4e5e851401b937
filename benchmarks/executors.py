"""An import whose tasks run in two workers of each executor, against the same command on threads, in one run.

Claims (issue 41): 200 M edges of .npy at --memory 512MB, with two workers by Ray, give the bytes of the local run, and
take at most 10 s longer: Ray starts, hands out tasks and ends. Commands alternate, each in its own process, on a source
that is not in the page cache. `array` has the driver and one index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from csc import write_edges
from turns import drop_from_page_cache

MOST_OVERHEAD_SECONDS = 10.0
EXECUTORS = ("threads", "processes", "ray", "array")
_DISKHOP = (sys.executable, "-m", "diskhop")


@dataclass(frozen=True, slots=True)
class Run:
    """One import. digest: of all files of the dataset."""

    seconds: float
    digest: str


def import_once(source: Path, folder: Path, executor: str, memory: str) -> Run:
    drop_from_page_cache(source / "edge_index.npy")
    dest, tasks = folder / "dataset", folder / "tasks"
    chosen = f"array:{tasks}" if executor == "array" else executor
    options = ["--memory", memory, "--threads", "2", "--name", "edges", "--executor", chosen]
    options += [] if executor == "threads" else ["--workers", "2"]
    started = time.perf_counter()
    with ExitStack() as stack:
        index = None
        if executor == "array":
            index = stack.enter_context(subprocess.Popen([*_DISKHOP, "task", str(tasks), "--index=0", "--of=1"]))
        subprocess.run([*_DISKHOP, "import", str(source), str(dest), *options], check=True, stdout=subprocess.DEVNULL)
        if index is not None and index.wait():
            raise SystemExit("the index of the array job failed")
    seconds = time.perf_counter() - started
    digest = hashlib.sha256()
    for path in sorted(each for each in dest.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(dest)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    for path in (dest, tasks):
        shutil.rmtree(path, ignore_errors=True)
    return Run(seconds, digest.hexdigest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--executors", default=",".join(EXECUTORS), help="threads, and others to compare with it")
    parser.add_argument("--dir", type=Path, default=None, help="folder for the files (on the disk to measure)")
    arguments = parser.parse_args()
    names = list(dict.fromkeys(("threads", *arguments.executors.split(","))))
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        source = write_edges(Path(folder) / "source", arguments.edges)
        for _ in range(arguments.repeats):
            for name in names:
                runs[name].append(import_once(source, Path(folder), name, arguments.memory))
    digests = {run.digest for each in runs.values() for run in each}
    print(f"{arguments.edges:,} edges, --memory {arguments.memory}, 2 threads; {arguments.repeats} runs each, in turn")
    baseline = statistics.median(run.seconds for run in runs["threads"])
    over: dict[str, float] = {}
    for name, each in runs.items():
        seconds = sorted(run.seconds for run in each)
        over[name] = statistics.median(seconds) - baseline
        shown = " ".join(f"{value:.1f}" for value in seconds)
        print(f"{name:<10} {statistics.median(seconds):6.1f} s ({shown}), {over[name]:+.1f} s")
    print(f"bytes: {'the same' if len(digests) == 1 else 'DIFFERENT'}")
    claims = {"same bytes": len(digests) == 1}
    if "ray" in over:
        claims[f"Ray takes at most {MOST_OVERHEAD_SECONDS:.0f} s more"] = over["ray"] <= MOST_OVERHEAD_SECONDS
    for claim, holds in claims.items():
        print(f"{claim}: {'holds' if holds else 'MISSED'}")
    print(json.dumps({name: [run.seconds for run in each] for name, each in runs.items()}))
    if not all(claims.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
