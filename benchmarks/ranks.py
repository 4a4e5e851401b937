"""Two training processes of one thread each against one process of one thread: seconds per epoch, memory and disk.

Claim (issue 41): on W, where computing takes longer than reading, two processes take an epoch of SAGE with three layers
from disk at least 1.8 times as fast (GNNDrive's Figure 13, PP-GNN's scaling). There every process has one core, as
ranks have where all cores are in use; the threads that prepare its batches share it. The same case is repeated without:
then those of one process have the second core to themselves. The third case reads as much as it can and computes
little: there processes wait for the same disk, and the share of the time that they wait is printed. Both sides take the
same steps, of eight batches each, and end with the same model. All files are evicted before each run. Memory is the sum
of the processes' proportional shares (PSS), sampled in the first epoch: a sample stops a process for as long as the
kernel walks its pages, so that epochs that count have none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from diskhop import cli
from diskhop.dataset.dataset import Dataset
from paper_results import Finding, Results, draw, keep_results
from workloads import DEFAULT_FOLDER, evict, find_dataset

# Of two processes; of the paper's variant on the CPU.
LEAST_GAIN = PAPER_GAIN = 1.8
PROCESSES = (1, 2)
_SECONDS_BETWEEN_SAMPLES = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """A run.

    words: options of `diskhop train`. has_core: whether each process has one core. is_claimed: whether its gain must be
    LEAST_GAIN.
    """

    name: str
    words: str
    has_core: bool
    is_claimed: bool


_COMPUTING = "--model sage --layers 3 --hidden 1024 --fanout 10,10,10 --store static --memory 8GB --cache 1400MB"
CASES = (
    Case("a core each", _COMPUTING, has_core=True, is_claimed=True),
    Case("any core", _COMPUTING, has_core=False, is_claimed=False),
    Case(
        "reading",
        "--model sage --layers 2 --hidden 16 --fanout 10,10 --store direct --memory 1600MB",
        has_core=False,
        is_claimed=False,
    ),
)


def run(case: Case, dataset: Dataset, num_processes: int, num_batches: int, num_epochs: int) -> dict[str, Any]:
    """Train in some processes of one thread each, and return what it took."""
    evict(dataset)
    out = Path(tempfile.mkdtemp(prefix="ranks-", dir=dataset.path.parent))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    command += [__file__, "rank", "core" if case.has_core else "any", "train", str(dataset.path)]
    command += ["--json", "--out", str(out)]
    command += [*case.words.split(), "--no-eval", "--seed", "0", "--batch-size", "1000", "--matmul", "blas"]
    command += ["--max-batches", str(num_batches), "--epochs", str(num_epochs), "--threads", str(num_processes)]
    # Processes wait for each other at the end of a step.
    command += ["--accumulate", "8"]
    peak, is_counted = [0], threading.Event()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True) as process,
    ):
        sampling = threading.Thread(target=_sample_pss, args=(psutil.Process(process.pid), peak, is_counted))
        sampling.start()
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if line.startswith("epoch 1/") and "waiting" in line and "batch" not in line:
                is_counted.set()
        is_counted.set()
        sampling.join()
        process.wait()
        output.seek(0)
        found = output.read()
    if process.returncode:
        sys.exit(f"{case.name} in {num_processes} processes ended with {process.returncode}")
    model = (out / "model.safetensors").read_bytes()
    shutil.rmtree(out)
    # The first epoch also fills caches.
    epochs = json.loads(found)["epochs"][1:]
    seconds = statistics.median(epoch["seconds"] for epoch in epochs)
    return {
        "seconds": seconds,
        "waiting": statistics.median(epoch["stall_seconds"] for epoch in epochs) / seconds,
        "bytes_read": statistics.median(epoch["bytes_read"] for epoch in epochs),
        "peak_pss_bytes": peak[0],
        "loss": epochs[-1]["loss"],
        "model": hash(model),
    }


def _be_rank(cores: str, words: list[str]) -> int:
    """Run a command of diskhop as a rank, with a core of its own or with any."""
    if cores == "core":
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(os.environ["LOCAL_RANK"])]})
    return cli.run(words)


def _sample_pss(launcher: psutil.Process, peak: list[int], is_counted: threading.Event) -> None:
    """Sample the memory of training processes until epochs count. peak: its only item is updated."""
    while not is_counted.wait(_SECONDS_BETWEEN_SAMPLES):
        num_bytes = 0
        try:
            # The launcher of several processes only waits for them.
            for process in launcher.children(recursive=True) or [launcher]:
                num_bytes += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        peak[0] = max(peak[0], num_bytes)


def _keep(folder: Path, found: dict[str, Any], hours: float) -> None:
    """Keep the gain as the paper's Figure 13, of its variant on the CPU."""
    case = next(case for case in CASES if case.is_claimed)
    runs: dict[int, list[dict[str, Any]]] = found[case.name]["runs"]
    seconds = {count: statistics.median(result["seconds"] for result in results) for count, results in runs.items()}
    why = " and ".join(f"{count} x 1 thread {each:.1f} s per epoch" for count, each in seconds.items())
    claim = "GNNDrive in two processes over one, epochs per second (paper: 1.7 on GPUs, 1.8 on CPUs)"
    results = Results([Finding("Figure 13", claim, found[case.name]["gain"], PAPER_GAIN, why=why)], [])
    drawn = {"diskhop": {f"{count}": each for count, each in seconds.items()}}
    draw(results, "Figure 13", "", "processes", "seconds per epoch", drawn)
    keep_results(folder, "paper_gnndrive", "figure13", results, is_quick=False, trainer="", hours=hours)


def main() -> int:
    if sys.argv[1:2] == ["rank"]:
        return _be_rank(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of w, generated if missing")
    parser.add_argument("--batches", type=int, default=40, help="batches per epoch")
    parser.add_argument("--epochs", type=int, default=3, help="epochs per run; the first one is not counted")
    parser.add_argument("--turns", type=int, default=3)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a JSON file here for docs/papers.md")
    arguments = parser.parse_args()
    claimed = next(case.name for case in CASES if case.is_claimed)
    if arguments.keep is not None and claimed not in arguments.only:
        parser.error(f"--keep keeps the case '{claimed}': name it with --only")
    started = time.monotonic()
    out = sys.stderr if arguments.json else sys.stdout
    dataset = find_dataset("W", arguments.dir)
    found: dict[str, Any] = {}
    are_met = True
    for case in (case for case in CASES if case.name in arguments.only):
        runs: dict[int, list[dict[str, Any]]] = {count: [] for count in PROCESSES}
        for _ in range(arguments.turns):
            for count, results in runs.items():
                results.append(run(case, dataset, count, arguments.batches, arguments.epochs))
        models = {result["model"] for results in runs.values() for result in results}
        for count, results in runs.items():
            seconds = [result["seconds"] for result in results]
            waiting = statistics.median(result["waiting"] for result in results)
            rate = statistics.median(result["bytes_read"] / result["seconds"] for result in results) / 1e6
            peak = max(result["peak_pss_bytes"] for result in results) / 1e6
            print(
                f"{case.name:11} {count} x 1 thread: {statistics.median(seconds):.2f} s per epoch "
                f"({min(seconds):.2f} to {max(seconds):.2f}), {waiting:.0%} waiting for data, {rate:.0f} MB/s "
                f"read, PSS {peak:.0f} MB",
                file=out,
            )
        gain = statistics.median(
            one["seconds"] / two["seconds"] for one, two in zip(runs[PROCESSES[0]], runs[PROCESSES[1]], strict=True)
        )
        is_met = len(models) == 1 and (gain >= LEAST_GAIN or not case.is_claimed)
        claim = f", at least {LEAST_GAIN}: {'met' if is_met else 'MISSED'}" if case.is_claimed else ""
        same = "the same model" if len(models) == 1 else f"{len(models)} different models"
        print(f"{case.name:11} {gain:.2f} times as fast{claim}; {same}", file=out)
        found[case.name] = {"runs": runs, "gain": gain}
        are_met &= is_met
    if arguments.json:
        print(json.dumps({"benchmark": "ranks", **found}, indent=1))
    if arguments.keep is not None:
        _keep(arguments.keep, found, hours=(time.monotonic() - started) / 3600)
    return 0 if are_met else 1


if __name__ == "__main__":
    sys.exit(main())
