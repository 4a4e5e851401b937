"""Every store on workloads W, X and U: seconds per fetched batch, reads, bytes and memory; and whole training loops.

Claims (issue 4): on W, with a cache of 10 % of the rows, `static` and `belady` fetch a batch in at most a fifth of the
time of `mapped`, and in at most .40 s; on X neither is ever slower than `mapped`; stores read at 90 % or more of the
disk model's rate for their reads; an epoch of either takes at most 1.1 times the longer of its I/O alone and the CPU's
work alone. Claims (issue 5): on W, with a cache of 10 % and of 25 % (`--cache 512MB`), `shared` has at least two
extractors, fetches a batch in at most a quarter of the time of `mapped`, and reads no row that is resident or in
flight. `--without` adds these without one of the ideas in switches.py, which should miss the claims: their loops, and
those of stores far from any claim, have the number of fetched batches. Each store runs in its own process, all files
evicted before, in a memory control group of budget and overhead (except `memory`: a budget with room for the table, and
no limit).

The columns are means per batch. wall: of the whole pass. fetch: seconds in which the store had batches to fetch, from
their submission to their arrival; the claims are about these. each, min..max: seconds of work on the batch: two
concurrent ones may take twice as long. reads, MB: as the store counts them, or, where it does not read itself, the
bytes that the kernel read for the process. amp.: bytes read per byte needed. rate: seconds by the disk model, measured
just before the store runs and just after it (others may share the disk), over fetch. The model is of the fastest of a
few short passes. stream: seconds that a plain stream of such reads takes, just after the store and for the same
duration (STREAM_SECONDS at most), over fetch.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgroups import run_limited, why_no_limit
from diskhop._native import BufferPool, File
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.measure import measure_read_seconds, random_offsets, reads_per_ticket
from diskhop.disk.model import DiskModel
from diskhop.io.engine import DEFAULT_DEPTH, open_engine
from diskhop.stores.stores import STORES
from switches import IDEAS, IDEAS_OF
from workloads import DEFAULT_FOLDER, PLAIN_MAP, WORKLOADS, evict, find_dataset, measure_device, require_workload

MOST_OF_MAPPED = {"static": 1 / 5, "belady": 1 / 5, "shared": 1 / 4}
MOST_SECONDS, LEAST_RATE, MOST_OF_ALONE, LEAST_EXTRACTORS = 0.40, 0.90, 1.1, 2
PLAIN_MAP_SECONDS, STREAM_SECONDS = 300, 12.0
CLAIMED = ("static", "belady")
# Baselines that take a quarter of an hour or more per epoch.
SLOW = ("mapped", "pread")
HERE = Path(__file__).parent

Result = dict[str, Any]


class Case(NamedTuple):
    """Subject of a line of the tables: a store, whole or without one of the IDEAS."""

    store: str
    without: str = ""

    def __str__(self) -> str:
        return f"{self.store}, no {self.without}" if self.without else self.store


class Claim(NamedTuple):
    """A claim about a case, and whether it is met."""

    case: Case
    text: str
    is_met: bool


MEMORY, MAPPED = Case("memory"), Case("mapped")


class Bench:
    """One workload and its dataset. capped: whether stores run in memory control groups."""

    def __init__(self, name: str, dataset: Dataset, num_batches: int, cache: str, *, capped: bool) -> None:
        self.name = name
        self.workload = WORKLOADS[name]
        self.cache = cache
        self.dataset = dataset
        self.num_batches = num_batches
        self._capped = capped

    def fetch_each(self, cases: list[Case]) -> dict[Case, Result]:
        """Run fetching.py for each case and return its output. `devices`: the disk model before and after it."""
        # The plain map takes minutes per batch.
        return self._run_each("fetching.py", cases, lambda case: 1 if case.store == PLAIN_MAP else self.num_batches)

    def stream_seconds(self, num_bytes: int, seconds: float) -> float:
        """Measure seconds per read in a stream of random reads of the table, at the depth of the stores."""
        table = self.dataset.feature_table()
        assert table is not None
        engine, file = open_engine().engine, File(str(table.path), "read")
        num_bytes = num_bytes // 4096 * 4096
        offsets = random_offsets(
            file.num_bytes, num_bytes, reads_per_ticket(engine.depth, num_bytes), np.random.default_rng(0)
        )
        buffer = BufferPool(0).take(engine.depth * num_bytes)
        return measure_read_seconds(engine, file, buffer, num_bytes, seconds, offsets)

    def train_each(self, cases: list[Case], epoch_batches: int) -> dict[Case, Result]:
        """Run training.py for each case and return its output. epoch_batches: for loops with claims; 0: whole epoch."""

        def count(case: Case) -> int:
            return self.num_batches if case.without or case.store in SLOW else epoch_batches

        return self._run_each("training.py", cases, count)

    def _run_each(self, script: str, cases: list[Case], count: Callable[[Case], int]) -> dict[Case, Result]:
        # `memory` comes first: it has no limit, and its overhead determines the limits of the others.
        results = {MEMORY: self._run(script, MEMORY, count(MEMORY), 0)}
        if "failed" in results[MEMORY]:
            sys.exit(f"the store 'memory', the baseline, failed: {results[MEMORY]['failed']}")
        for case in cases:
            if case != MEMORY:
                results[case] = self._run(script, case, count(case), results[MEMORY]["overhead_bytes"])
        return results

    def _run(self, script: str, case: Case, num_batches: int, overhead_bytes: int) -> Result:
        measures = script == "fetching.py"
        devices = [measure_device(self.dataset)] if measures else []
        evict(self.dataset)
        is_plain_map = case.store == PLAIN_MAP
        limit_bytes = None
        if self._capped and case != MEMORY:
            limit_bytes = self.workload.memory_bytes(case.store, self.dataset) + overhead_bytes
        what = self.name, str(self.dataset.path), case.store, str(num_batches), self.cache
        command = [sys.executable, str(HERE / script), *what]
        if case.without:
            command.append(case.without)
        try:
            done = run_limited(command, limit_bytes, PLAIN_MAP_SECONDS if is_plain_map else None)
        except subprocess.TimeoutExpired:
            return {"failed": f"not one batch in {PLAIN_MAP_SECONDS} s"}
        result: Result = {"limit_bytes": limit_bytes, "group_peak_bytes": done.peak_bytes}
        if done.returncode == 0:
            result.update(json.loads(done.output))
            num_reads = sum(batch["reads"] for batch in result["batches"]) if measures else 0
            if num_reads:
                mean_bytes = sum(batch["bytes_read"] for batch in result["batches"]) // num_reads
                seconds = min(result["wall_seconds"], STREAM_SECONDS)
                result["stream_seconds_a_read"] = self.stream_seconds(mean_bytes, seconds)
            if measures:
                devices.append(measure_device(self.dataset))
            result["devices"] = [device.to_dict() for device in devices]
            return result
        sys.stderr.write(done.errors)
        return result | {"failed": "killed by its limit" if done.returncode == -9 else f"exit code {done.returncode}"}


def summarize_fetching(result: Result) -> Result:
    """Compute means per batch."""
    batches = result["batches"]

    def mean(column: str) -> float:
        return statistics.fmean(batch[column] for batch in batches)

    reads, fetching = mean("reads"), mean("fetching_seconds")
    bytes_read = mean("bytes_read") if reads else result["bytes_from_disk"] / len(batches)
    # Predicted at the mean size: the model is linear between its sizes, so that this loses little accuracy.
    mean_bytes = round(mean("bytes_read") / reads) if reads else 0
    devices = [DiskModel.from_dict(device) for device in result["devices"]]
    seconds_per_read = statistics.fmean(device.predict_seconds(mean_bytes, DEFAULT_DEPTH) for device in devices)
    predicted = reads * seconds_per_read
    return {
        "wall_seconds": result["wall_seconds"] / len(batches),
        "sample_seconds": mean("sample_seconds"),
        "fetching_seconds": fetching,
        "fetch_seconds": mean("seconds"),
        "stall_seconds": mean("stall_seconds"),
        "hit_rate": (mean("rows_hit") + mean("rows_shared")) / mean("rows_requested"),
        "reads": reads,
        "bytes_read": bytes_read,
        "bytes_needed": mean("bytes_needed"),
        "amplification": bytes_read / mean("bytes_needed"),
        "bytes_copied": mean("bytes_copied"),
        "predicted_seconds": predicted,
        "rate": predicted / fetching if reads else None,
        "stream": reads * result["stream_seconds_a_read"] / fetching if reads else None,
    }


def print_fetching(results: dict[Case, Result], out: Callable[[str], None]) -> None:
    out("\nfetching alone, per batch:")
    heads = ["wall", "sample", "fetch", "each", "min..max", "stall", "hits", "reads", "MB", "amp.", "copied MB"]
    heads += ["rate", "stream"]
    rows = {}
    for case, result in results.items():
        if "failed" in result:
            rows[case] = [result["failed"]]
            continue
        row = result["summary"]
        times = [batch["seconds"] for batch in result["batches"]]
        against = [results[other].get("summary", {}).get("fetching_seconds") for other in (MEMORY, MAPPED)]
        rows[case] = [
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
            *("-" if row[name] is None else f"{row[name]:.0%}" for name in ("rate", "stream")),
            # `memory` lends its rows: without fetching there is nothing to compare.
            *("-" if not other or other < 1e-3 else f"{row['fetching_seconds'] / other:.3f}" for other in against),
            *shown_memory(result),
        ]
    print_table([*heads, "/memory", "/mapped", *MEMORY_HEADS], rows, out)


def summarize_training(trained: dict[Case, Result], fetched: dict[Case, Result]) -> None:
    """Compute means per batch, and the lower bounds of each loop: its store's I/O alone, or the CPU's work alone.

    The first is the pass that only fetches, the second is computing, sampling and gathering with `memory`.
    """
    for result in trained.values():
        if "failed" not in result:
            epoch = result["epochs"][0]
            parts = ("seconds", "compute_seconds", "sample_seconds", "fetch_seconds", "stall_seconds")
            result["summary"] = {part: epoch[part] / epoch["batches"] for part in parts}
    memory = trained[MEMORY]["summary"]
    cpu_seconds = memory["compute_seconds"] + memory["sample_seconds"] + memory["fetch_seconds"]
    for case, result in trained.items():
        if "failed" not in result:
            # I/O of the whole store, also for a case without an idea, so that the bound stays the same.
            io_seconds = fetched[Case(case.store)].get("summary", {}).get("wall_seconds", math.nan)
            row = result["summary"]
            row["io_alone_seconds"], row["cpu_alone_seconds"] = io_seconds, cpu_seconds
            row["of_alone"] = row["seconds"] / max(io_seconds, cpu_seconds)


def print_training(results: dict[Case, Result], out: Callable[[str], None]) -> None:
    out("\nthe whole training loop, per batch:")
    seconds_heads = ["whole", "compute", "sample", "each", "stall", "I/O alone", "CPU alone"]
    heads = ["batches", *seconds_heads, "whole/max", *MEMORY_HEADS]
    rows = {}
    for case, result in results.items():
        if "failed" in result:
            rows[case] = [result["failed"]]
            continue
        *seconds, of_alone = result["summary"].values()
        shown = [f"{each:.3f}" for each in seconds]
        rows[case] = [str(result["epochs"][0]["batches"]), *shown, f"{of_alone:.2f}", *shown_memory(result)]
    print_table(heads, rows, out)


MEMORY_HEADS = ["rss MB", "group MB", "limit MB"]


def shown_memory(result: Result) -> list[str]:
    figures = (result["peak_rss_bytes"], result["group_peak_bytes"], result["limit_bytes"])
    return ["-" if num_bytes is None else f"{num_bytes / 1e6:,.0f}" for num_bytes in figures]


def print_table(heads: list[str], rows: dict[Case, list[str]], out: Callable[[str], None]) -> None:
    """Print a table; a row shorter than the heads is a remark."""
    whole = [heads, *(row for row in rows.values() if len(row) == len(heads))]
    widths = [2 + max(len(row[column]) for row in whole) for column in range(len(heads))]
    lines = {"": heads, **{str(case): row for case, row in rows.items()}}
    name_width = max(map(len, lines))
    for name, row in lines.items():
        is_remark = len(row) < len(heads)
        shown = f"  {row[0]}" if is_remark else "".join(map("{:>{}}".format, row, widths))
        out(f"{name:{name_width}}{shown}")


def judge_fetching(name: str, results: dict[Case, Result]) -> Iterator[Claim]:
    """Yield the claims about fetching on this workload, for stores that were run."""
    mapped = results[MAPPED].get("summary")
    for case, result in results.items():
        if "failed" in result:
            yield Claim(case, f"fetches ({result['failed']})", False)
            continue
        row = result["summary"]
        seconds, rate = row["fetching_seconds"], row["rate"]
        if case.store in MOST_OF_MAPPED and mapped is not None:
            ratio = seconds / mapped["fetching_seconds"]
            most = MOST_OF_MAPPED[case.store] if name == "W" else 1
            if name in "WX":
                yield Claim(case, f"fetches in {ratio:.3f} of mapped's time, at most {most}", ratio <= most)
        if name == "W" and case.store in CLAIMED:
            text = f"fetches a batch in {seconds:.3f} s, at most {MOST_SECONDS}"
            yield Claim(case, text, seconds <= MOST_SECONDS)
        if "ordered" in STORES[case.store].uses:
            extractors, rows_twice = result["plan"]["extractors"], result["rows_twice"]
            most_at_once = result["most_at_once"]
            text = f"has {extractors} extractors, {most_at_once} batches in flight, at least {LEAST_EXTRACTORS}"
            yield Claim(case, text, min(extractors, most_at_once) >= LEAST_EXTRACTORS)
            text = f"read {rows_twice:,} rows that were resident or in flight, at most 0"
            yield Claim(case, text, rows_twice == 0)
        # One row at a time is the naive baseline, without claims.
        if rate is not None and case.store in ("direct", *CLAIMED):
            of_stream = f"{row['stream']:.0%} of a stream's"
            text = f"reads at {rate:.0%} of the device's rate ({of_stream}), at least {LEAST_RATE:.0%}"
            yield Claim(case, text, rate >= LEAST_RATE)


def judge_training(results: dict[Case, Result]) -> Iterator[Claim]:
    """Yield the claims about the whole loop."""
    for case, result in results.items():
        if "failed" in result:
            yield Claim(case, f"trains ({result['failed']})", False)
        elif case.store in CLAIMED:
            ratio = result["summary"]["of_alone"]
            text = f"trains in {ratio:.2f} of its I/O alone or the CPU's work alone, at most {MOST_OF_ALONE}"
            yield Claim(case, text, ratio <= MOST_OF_ALONE)


def run_workload(
    bench: Bench, cases: list[Case], plain_map: bool, epoch_batches: int | None, out: Callable[[str], None]
) -> Result:
    """Run, print and judge a workload; returns its JSON. epoch_batches: see train_each(); None: no training."""
    device = measure_device(bench.dataset)
    workload = bench.workload
    out(
        f"\n{bench.name}: {bench.num_batches} batches, memory {workload.memory}, cache {bench.cache}; `memory` has "
        f"{format_bytes(workload.memory_bytes('memory', bench.dataset))} and no limit; device ({device.source}): "
        f"{device.overhead_seconds * 1e6:.1f} us + bytes at {device.bytes_per_second / 1e9:.2f} GB/s per read"
    )
    fetched = bench.fetch_each([*cases, Case(PLAIN_MAP)] if plain_map else cases)
    for result in fetched.values():
        if "failed" not in result:
            result["summary"] = summarize_fetching(result)
    print_fetching(fetched, out)
    trained = {} if epoch_batches is None else bench.train_each(cases, epoch_batches)
    if trained:
        summarize_training(trained, fetched)
        print_training(trained, out)
    judged = {case: result for case, result in fetched.items() if case.store != PLAIN_MAP}
    claims = [*judge_fetching(bench.name, judged), *judge_training(trained)]
    out("")
    for claim in claims:
        remark = f" (not claimed without {claim.case.without})" if claim.case.without else ""
        out(f"{bench.name}: {claim.case} {claim.text}: {'met' if claim.is_met else 'MISSED'}{remark}")
    return {
        "device": device.to_dict(),
        "fetching": {str(case): result for case, result in fetched.items()},
        "training": {str(case): result for case, result in trained.items()},
        "claims": {f"{case} {text}": is_met for case, text, is_met in claims if not case.without},
        "without": {f"{case} {text}": is_met for case, text, is_met in claims if case.without},
    }


def main() -> int:
    # Ends a running store and its group with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="W")
    parser.add_argument(
        "--dir", type=Path, default=DEFAULT_FOLDER, help="folder of w, x and u, which are generated if missing"
    )
    parser.add_argument("--dataset", type=Path, help="dataset of one workload; default: the one in --dir")
    parser.add_argument("--batches", type=int, help="batches per pass; default: the workload's")
    parser.add_argument(
        "--cache", help="memory for rows kept between batches; default: the workload's, 10 %% of the table"
    )
    parser.add_argument(
        "--stores", help="stores in addition to memory and mapped, for example static,belady; default: all"
    )
    parser.add_argument(
        "--plain-map", action="store_true", help="also run a map without advice, for the record: one batch"
    )
    parser.add_argument(
        "--train",
        type=int,
        nargs="?",
        const=0,
        metavar="BATCHES",
        help="also the training loop: a whole epoch, or this number of batches",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=IDEAS,
        default=[],
        help=f"also run the stores among {', '.join(IDEAS_OF)} that use this idea without it",
    )
    parser.add_argument("--no-cap", action="store_true", help="run without memory control groups")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")
    arguments = parser.parse_args()
    names = list(WORKLOADS) if arguments.workload == "all" else [arguments.workload]
    if arguments.dataset and len(names) > 1:
        parser.error("--dataset is for one workload: name it with --workload, or use --dir for all")
    wanted = arguments.stores.split(",") if arguments.stores else list(STORES)
    if unknown := set(wanted) - set(STORES):
        parser.error(f"unknown store {', '.join(sorted(unknown))}; choose from {', '.join(STORES)}")
    cases = list(dict.fromkeys([MAPPED, *map(Case, wanted)]))
    cases += [
        Case(store, idea)
        for store, ideas in IDEAS_OF.items()
        if store in wanted
        for idea in dict.fromkeys(arguments.without)
        if idea in ideas
    ]

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    obstacle = "--no-cap" if arguments.no_cap else why_no_limit()
    if obstacle:
        out(f"NO memory limit ({obstacle}): the page cache may hold mapped files")
    documents, met = {}, True
    for name in names:
        found = open_dataset(arguments.dataset) if arguments.dataset else find_dataset(name, arguments.dir)
        num_batches = arguments.batches or WORKLOADS[name].num_batches
        cache = arguments.cache or WORKLOADS[name].cache
        bench = Bench(name, require_workload(name, found), num_batches, cache, capped=not obstacle)
        document = run_workload(bench, cases, arguments.plain_map, arguments.train, out)
        met = met and all(document["claims"].values())
        documents[name] = document
    if arguments.json:
        print(json.dumps({"benchmark": "stores", "cores": os.cpu_count(), "workloads": documents}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
