"""Every store on workloads W, X and U: seconds of fetching a batch, reads, bytes and memory; and whole training loops.

Claims (issue 4): on W, with a cache of 10 % of the rows, `static` and `belady` fetch a batch in at most a fifth of the
time of `mapped`, and in at most .40 s; on X neither is ever slower than `mapped`; stores read at 90 % or more of what
the device model says for their reads. Each store is a process of its own, all files evicted before, in a memory control
group of budget and overhead (but for `memory`: a budget with room for the table, and no limit).

The columns are means of a batch. wall: of the whole pass. fetch: seconds in which the store had batches to bring, from
their submission to their arrival; the claims are about these. each, min..max: the seconds that a batch was worked at:
two of them at once may take twice as long. reads, MB: as the store counts them, or, where it does not read itself, what
the kernel read for the process. amp.: bytes read for one needed. rate: seconds by the device model over fetch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cgroups import run_limited, why_no_limit
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.features import STORES
from diskhop.io.device_model import DeviceModel
from diskhop.io.engine import DEFAULT_DEPTH
from diskhop.io.probe import probe
from workloads import (
    BATCH_SIZE,
    DEFAULT_FOLDER,
    HIDDEN,
    PLAIN_MAP,
    SEED,
    WORKLOADS,
    evict,
    find_dataset,
    require_workload,
)

MOST_OF_MAPPED, MOST_SECONDS, LEAST_RATE = 1 / 5, 0.40, 0.90
PLAIN_MAP_SECONDS = 300
CLAIMED = ("static", "belady")
HERE = Path(__file__).parent

Result = dict[str, Any]


class Bench:
    """One workload and its dataset. capped: whether stores run in memory control groups."""

    def __init__(self, name: str, dataset: Dataset, num_batches: int, *, capped: bool) -> None:
        self.name = name
        self.workload = WORKLOADS[name]
        self.dataset = dataset
        self.num_batches = num_batches
        self._capped = capped

    def fetch_by(self, stores: list[str]) -> dict[str, Result]:
        """Fetching only; of the plain map, which takes minutes a batch, one at most."""

        def fetch(store: str, overhead_bytes: int) -> Result:
            num_batches = 1 if store == PLAIN_MAP else self.num_batches
            command = [sys.executable, str(HERE / "fetching.py"), self.name, str(self.dataset.path), store]
            return self._run([*command, str(num_batches)], store, overhead_bytes, json.loads)

        return self._run_all(fetch, stores)

    def train_by(self, stores: list[str]) -> dict[str, Result]:
        """The whole loop, as a user starts it; what result.json says."""

        def train(store: str, overhead_bytes: int) -> Result:
            with tempfile.TemporaryDirectory(prefix="diskhop-bench-") as folder:
                out = Path(folder) / "run"
                command = self._train_command(store, out)
                return self._run(
                    command, store, overhead_bytes, lambda _: json.loads((out / "result.json").read_text())
                )

        return self._run_all(train, stores)

    def _train_command(self, store: str, out: Path) -> list[str]:
        options = {
            "--model": "sage",
            "--layers": len(self.workload.fanouts),
            "--hidden": HIDDEN,
            "--fanout": ",".join(map(str, self.workload.fanouts)),
            "--batch-size": BATCH_SIZE,
            "--epochs": 1,
            "--max-batches": self.num_batches,
            "--memory": self.workload.memory_bytes(store, self.dataset),
            "--store": store,
            "--seed": SEED,
            "--out": out,
        }
        if STORES[store].keeps_rows:
            options["--cache"] = self.workload.cache
        command = [str(Path(sys.executable).with_name("diskhop")), "train", str(self.dataset.path), "--no-eval"]
        return [*command, *(str(part) for option in options.items() for part in option)]

    def _run_all(self, run: Callable[[str, int], Result], stores: list[str]) -> dict[str, Result]:
        """`memory` comes first: it has no limit, and tells the overhead by which the others have theirs."""
        results = {"memory": run("memory", 0)}
        if "failed" in results["memory"]:
            sys.exit(f"the store 'memory', which all are compared with, failed: {results['memory']['failed']}")
        for store in stores:
            if store != "memory":
                results[store] = run(store, results["memory"]["overhead_bytes"])
        return results

    def _run(self, command: list[str], store: str, overhead_bytes: int, read: Callable[[str], Result]) -> Result:
        evict(self.dataset)
        limit_bytes = None
        if self._capped and store != "memory":
            limit_bytes = self.workload.memory_bytes(store, self.dataset) + overhead_bytes
        try:
            done = run_limited(command, limit_bytes, PLAIN_MAP_SECONDS if store == PLAIN_MAP else None)
        except subprocess.TimeoutExpired:
            return {"failed": f"not one batch in {PLAIN_MAP_SECONDS} s"}
        result: Result = {"limit_bytes": limit_bytes, "group_peak_bytes": done.peak_bytes}
        if done.returncode == 0:
            return result | read(done.output)
        sys.stderr.write(done.errors)
        return result | {"failed": "killed by its limit" if done.returncode == -9 else f"exit code {done.returncode}"}


def summarize_fetching(result: Result, device: DeviceModel) -> Result:
    """Means of a batch."""
    batches = result["batches"]

    def mean(column: str) -> float:
        return statistics.fmean(batch[column] for batch in batches)

    reads, fetching = mean("reads"), mean("fetching_seconds")
    bytes_read = mean("bytes_read") if reads else result["bytes_from_disk"] / len(batches)
    # By the grid, at the size that they have on the mean: between its sizes it is linear, so that this loses little.
    mean_bytes = round(mean("bytes_read") / reads) if reads else 0
    predicted = reads * device.predict_seconds(mean_bytes, DEFAULT_DEPTH) if reads else 0.0
    return {
        "wall_seconds": result["wall_seconds"] / len(batches),
        "sample_seconds": mean("sample_seconds"),
        "fetching_seconds": fetching,
        "fetch_seconds": mean("seconds"),
        "stall_seconds": mean("stall_seconds"),
        "hit_rate": mean("rows_hit") / mean("rows_requested"),
        "reads": reads,
        "bytes_read": bytes_read,
        "bytes_needed": mean("bytes_needed"),
        "amplification": bytes_read / mean("bytes_needed"),
        "bytes_copied": mean("bytes_copied"),
        "predicted_seconds": predicted,
        "rate": predicted / fetching if reads else None,
    }


def print_fetching(results: dict[str, Result], out: Callable[[str], None]) -> None:
    out("\nfetching alone, a batch:")
    heads = ["wall", "sample", "fetch", "each", "min..max", "stall", "hits", "reads", "MB", "amp.", "copied MB", "rate"]
    rows = {}
    for store, result in results.items():
        if "failed" in result:
            rows[store] = [result["failed"]]
            continue
        row = result["summary"]
        times = [batch["seconds"] for batch in result["batches"]]
        against = [results[other].get("summary", {}).get("fetching_seconds") for other in ("memory", "mapped")]
        rows[store] = [
            f"{row['wall_seconds']:.3f}",
            f"{row['sample_seconds']:.3f}",
            f"{row['fetching_seconds']:.3f}",
            f"{row['fetch_seconds']:.3f}",
            f"{min(times):.3f}..{max(times):.3f}",
            f"{row['stall_seconds']:.3f}",
            f"{row['hit_rate']:.1%}",
            f"{row['reads']:,.0f}" if row["reads"] else "-",
            f"{row['bytes_read'] / 1e6:.1f}",
            f"{row['amplification']:.2f}",
            f"{row['bytes_copied'] / 1e6:.1f}",
            "-" if row["rate"] is None else f"{row['rate']:.0%}",
            *("-" if other is None else f"{row['fetching_seconds'] / other:.3f}" for other in against),
            *shown_memory(result),
        ]
    print_table([*heads, "/memory", "/mapped", *MEMORY_HEADS], rows, out)


def print_training(results: dict[str, Result], fetched: dict[str, Result], out: Callable[[str], None]) -> None:
    """Beside each loop, what nothing could hide: its I/O alone, or the CPU's work (as `memory` does it)."""
    out("\nthe whole training loop, a batch:")
    heads = ["epoch", "compute", "sample", "each", "stall", "I/O alone", "CPU alone", "epoch/max", *MEMORY_HEADS]
    parts = ("seconds", "compute_seconds", "sample_seconds", "fetch_seconds", "stall_seconds")
    rows = {}
    cpu_seconds = 0.0
    for store, result in results.items():
        if "failed" in result:
            rows[store] = [result["failed"]]
            continue
        epoch = result["epochs"][0]
        seconds = {part: epoch[part] / epoch["batches"] for part in parts}
        if store == "memory":
            cpu_seconds = seconds["compute_seconds"] + seconds["sample_seconds"] + seconds["fetch_seconds"]
        io_seconds = fetched[store].get("summary", {}).get("wall_seconds", math.nan)
        rows[store] = [
            *(f"{each:.3f}" for each in seconds.values()),
            f"{io_seconds:.3f}",
            f"{cpu_seconds:.3f}",
            f"{seconds['seconds'] / max(cpu_seconds, io_seconds):.2f}",
            *shown_memory(result),
        ]
    print_table(heads, rows, out)


MEMORY_HEADS = ["rss MB", "group MB", "limit MB"]


def shown_memory(result: Result) -> list[str]:
    figures = (result["peak_rss_bytes"], result["group_peak_bytes"], result["limit_bytes"])
    return ["-" if num_bytes is None else f"{num_bytes / 1e6:,.0f}" for num_bytes in figures]


def print_table(heads: list[str], rows: dict[str, list[str]], out: Callable[[str], None]) -> None:
    """A row that is shorter than the heads is a remark."""
    whole = [heads, *(row for row in rows.values() if len(row) == len(heads))]
    widths = [2 + max(len(row[column]) for row in whole) for column in range(len(heads))]
    for name, row in {"": heads, **rows}.items():
        shown = "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) if row in whole else row[0]
        out(f"{name:10}{shown}")


def judge(name: str, results: dict[str, Result]) -> dict[str, bool]:
    """The claims about this workload, as far as its stores were run."""
    claims = {f"{store}: {result['failed']}": False for store, result in results.items() if "failed" in result}
    summaries = {store: result["summary"] for store, result in results.items() if "summary" in result}
    for store in CLAIMED:
        if store not in summaries or "mapped" not in summaries:
            continue
        seconds = summaries[store]["fetching_seconds"]
        ratio = seconds / summaries["mapped"]["fetching_seconds"]
        if name == "W":
            claims[f"{store} fetches in {ratio:.3f} of mapped's time, at most {MOST_OF_MAPPED}"] = (
                ratio <= MOST_OF_MAPPED
            )
            claims[f"{store} fetches a batch in {seconds:.3f} s, at most {MOST_SECONDS}"] = seconds <= MOST_SECONDS
        if name == "X":
            claims[f"{store} fetches in {ratio:.3f} of mapped's time, never more"] = ratio <= 1
    for store, row in summaries.items():
        # A row at a time is the naive baseline: nothing is claimed of it.
        if row["rate"] is not None and store != "pread":
            claims[f"{store} reads at {row['rate']:.0%} of the device's rate, at least {LEAST_RATE:.0%}"] = (
                row["rate"] >= LEAST_RATE
            )
    return claims


def run_workload(bench: Bench, stores: list[str], plain_map: bool, train: bool, out: Callable[[str], None]) -> Result:
    """Run, print and judge; what the JSON says of a workload."""
    # What the disk does now: others may share it.
    device = probe(bench.dataset.path, measure_again=True)
    workload = bench.workload
    out(
        f"\n{bench.name}: {bench.num_batches} batches, memory {workload.memory}, cache {workload.cache}; `memory` has "
        f"{format_bytes(workload.memory_bytes('memory', bench.dataset))} and no limit; device ({device.source}): "
        f"{device.overhead_seconds * 1e6:.1f} us + bytes at {device.bytes_per_second / 1e9:.2f} GB/s a read"
    )
    fetched = bench.fetch_by([*stores, PLAIN_MAP] if plain_map else stores)
    for result in fetched.values():
        if "failed" not in result:
            result["summary"] = summarize_fetching(result, device)
    print_fetching(fetched, out)
    trained = bench.train_by(stores) if train else {}
    if trained:
        print_training(trained, fetched, out)
    claims = judge(bench.name, {store: result for store, result in fetched.items() if store != PLAIN_MAP})
    out("")
    for claim, is_met in claims.items():
        out(f"{bench.name}: {claim}: {'met' if is_met else 'MISSED'}")
    return {"device": device.to_dict(), "fetching": fetched, "training": trained, "claims": claims}


def main() -> int:
    # So that a store that runs, and its group, do not outlive this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="W")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where w, x and u are, or are made and kept")
    parser.add_argument("--dataset", type=Path, help="of one workload, made before; default: the one in --dir")
    parser.add_argument("--batches", type=int, help="of a pass; default: the workload's")
    parser.add_argument("--stores", help="besides memory and mapped, as static,belady; default: all")
    parser.add_argument("--plain-map", action="store_true", help="also a map without advice, for the record: one batch")
    parser.add_argument("--train", action="store_true", help="also the whole training loop")
    parser.add_argument("--no-cap", action="store_true", help="without memory control groups")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")
    arguments = parser.parse_args()
    names = list(WORKLOADS) if arguments.workload == "all" else [arguments.workload]
    if arguments.dataset and len(names) > 1:
        parser.error("--dataset is of one workload: name it by --workload, or all of them by --dir")
    asked = arguments.stores.split(",") if arguments.stores else list(STORES)
    if unknown := set(asked) - set(STORES):
        parser.error(f"no store is called {', '.join(sorted(unknown))}; there are {', '.join(STORES)}")

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    obstacle = "as asked" if arguments.no_cap else why_no_limit()
    if obstacle:
        out(f"NO memory limit ({obstacle}): the page cache is free to hold what is mapped")
    documents, met = {}, True
    for name in names:
        found = open_dataset(arguments.dataset) if arguments.dataset else find_dataset(name, arguments.dir)
        num_batches = arguments.batches or WORKLOADS[name].num_batches
        bench = Bench(name, require_workload(name, found), num_batches, capped=not obstacle)
        document = run_workload(
            bench, list(dict.fromkeys(["mapped", *asked])), arguments.plain_map, arguments.train, out
        )
        met = met and all(document["claims"].values())
        documents[name] = document
    if arguments.json:
        print(json.dumps({"benchmark": "stores", "cores": os.cpu_count(), "workloads": documents}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
