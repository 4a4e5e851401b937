"""Delivery of batches as they finish against delivery in order, where one batch in eight is deliberately slow.

Claim (issue 5): on W, the store `shared` with a cache of 10 % delivers batches at least 1.1 times faster in any order
than in theirs. A slow batch is delayed for SLOW_SECONDS when its rows have arrived, as a disk or a sampler that stalls
now and then would. Passes of both kinds alternate, each in its own process in a memory control group, all files evicted
before. Nothing is computed: batches are released on delivery.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cgroups import run_limited, why_no_limit
from diskhop.protocols import Rows, Table
from diskhop.stores.resources import StoreResources
from diskhop.stores.shared import SharedStore
from diskhop.stores.stores import STORES
from fetching import run_fetching
from workloads import DEFAULT_FOLDER, WORKLOADS, evict, find_dataset

LEAST_GAIN = 1.1
ONE_IN, SLOW_SECONDS = 8, 2.0
# A process without a graph: interpreter, libraries, torch.
OVERHEAD_BYTES = 400_000_000


class _Stumbling(SharedStore):
    """Delivers one batch in ONE_IN SLOW_SECONDS later."""

    def submit(self, batch: Any, make_room: Any) -> Any:
        return super().submit(batch, make_room), batch.number

    def collect(self, ticket: Any) -> Rows:
        of_store, number = ticket
        rows = super().collect(of_store)
        if number % ONE_IN == 1:
            time.sleep(SLOW_SECONDS)
        return rows

    def cancel(self, ticket: Any) -> None:
        super().cancel(ticket[0])

    def release(self, ticket: Any) -> None:
        super().release(ticket[0])


def run_pass(path: Path, num_batches: int, *, ordered: bool) -> dict[str, Any]:
    """Run one pass and return its costs."""

    def open_store(table: Table, resources: StoreResources) -> SharedStore:
        return _Stumbling(table, resources)

    store = "shared with slow batches"
    STORES[store] = replace(STORES["shared"], name=store, open=open_store)
    found = run_fetching("W", path, store, num_batches, WORKLOADS["W"].cache, lambda: None, ordered=ordered)
    return {
        "seconds": found["wall_seconds"] / num_batches,
        "bytes_read": sum(batch["bytes_read"] for batch in found["batches"]) / num_batches,
        "peak_rss_bytes": found["peak_rss_bytes"],
        "most_extracting": found["plan"]["most_extracting"],
    }


def main() -> int:
    if sys.argv[1:2] == ["pass"]:
        print(json.dumps(run_pass(Path(sys.argv[2]), int(sys.argv[3]), ordered=sys.argv[4] == "ordered")))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of w, generated if missing")
    parser.add_argument("--batches", type=int, default=40, help="batches per pass")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    out = sys.stderr if arguments.json else sys.stdout
    dataset = find_dataset("W", arguments.dir)
    obstacle = why_no_limit()
    limit_bytes = None if obstacle else WORKLOADS["W"].memory_bytes("shared", dataset) + OVERHEAD_BYTES
    passes: dict[str, list[dict[str, Any]]] = {"ordered": [], "as finished": []}
    for _ in range(arguments.turns):
        for how, results in passes.items():
            evict(dataset)
            command = [sys.executable, __file__, "pass", str(dataset.path), str(arguments.batches), how]
            done = run_limited(command, limit_bytes, None)
            if done.returncode:
                sys.exit(f"{how}: {done.errors}")
            results.append(json.loads(done.output))
    for how, results in passes.items():
        seconds = [result["seconds"] for result in results]
        megabytes = statistics.median(result["bytes_read"] for result in results) / 1e6
        peak = max(result["peak_rss_bytes"] for result in results) / 1e6
        print(
            f"{how:12} {statistics.median(seconds):.3f} s per batch ({min(seconds):.3f} to {max(seconds):.3f}), "
            f"{megabytes:.0f} MB read, peak {peak:.0f} MB, up to {results[0]['most_extracting']} at once",
            file=out,
        )
    gains = [
        ordered["seconds"] / free["seconds"]
        for ordered, free in zip(passes["ordered"], passes["as finished"], strict=True)
    ]
    gain = statistics.median(gains)
    is_met = gain >= LEAST_GAIN
    print(
        f"as they are finished {gain:.2f} times as fast ({min(gains):.2f} to {max(gains):.2f}), at least {LEAST_GAIN}: "
        f"{'met' if is_met else 'MISSED'}",
        file=out,
    )
    if arguments.json:
        print(json.dumps({"benchmark": "reordering", "passes": passes, "gain": gain}, indent=1))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
