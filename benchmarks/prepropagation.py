"""HopLoader from disk, compared with the disk alone, PyTorch's DataLoader, and the same tables in memory.

1 M labelled rows of 128 float32 features, 3 hops (4 tables of 512 MB), batches and chunks of 8000 rows; --memory of
the loader is 10 % of the tables; in memory it is their size. Both sides of a claim alternate in one run; each turn has
its own process, and reads past the page cache, or from a cold one. Bytes are those of /proc/self/io.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from diskhop.hops.read.placement import loader_bytes
from diskhop.hops.tables import HopTables
from diskhop.system.memory import default_threads
from hop_runs import BATCH_SIZE, Way, make_tables, read_files, run_items, run_loader
from turns import Turn, drop_from_page_cache, take_turn
from workloads import DEFAULT_FOLDER

LEAST_OF_DISK, LEAST_OF_ITEMS, LEAST_OF_MEMORY = 0.8, 15.0, 0.9
# The number of requests of one batch of all tables.
DISK_DEPTH = 16
ITEM_BATCHES = 1
SGC_EPOCHS = 3


class Claim(NamedTuple):
    text: str
    is_met: bool


class Bench:
    """Turns on the same tables."""

    def __init__(self, tables: HopTables, threads: int) -> None:
        self.tables = tables
        self.paths = [tables.table_path(table) for table in range(tables.num_tables)]
        self._threads = threads
        self.memory_bytes = tables.num_bytes // 10
        for path in self.paths:
            drop_from_page_cache(path)

    def read(self) -> float:
        """Measure the disk alone: rows per second of all tables."""
        turn = take_turn(read_files, self.paths, DISK_DEPTH)
        self._show("disk alone", turn)
        return self.tables.num_rows / turn.stages["seconds"]

    def load(self, model: str = "", *, in_memory: bool = False, num_buffers: int = 2, epochs: int = 1) -> Turn:
        """Measure epochs of a loader, with a model if there is one."""
        which = (self.tables.num_tables - 1,) if model == "sgc" else tuple(range(self.tables.num_tables))
        order_bytes = 16 * self.tables.num_rows
        in_memory_bytes = sum(loader_bytes(self.tables.shape, len(which), BATCH_SIZE, "memory").values()) + order_bytes
        way = Way(
            place="memory" if in_memory else "disk",
            shuffle="chunks",
            memory_bytes=in_memory_bytes if in_memory else self.memory_bytes,
            which=which,
            num_buffers=num_buffers,
            model=model,
            epochs=epochs,
            threads=self._threads,
        )
        turn = take_turn(run_loader, self.tables.path, way)
        ahead = "" if num_buffers > 1 else ", nothing ahead"
        self._show(f"{model or 'loader alone'}, {way.place}{ahead}", turn)
        return turn

    def load_items(self, workers: int) -> float:
        """Measure rows per second of PyTorch's DataLoader."""
        for path in self.paths:
            drop_from_page_cache(path)
        way = Way(place="disk", shuffle="rows", memory_bytes=0)
        turn = take_turn(run_items, self.paths, self.tables.num_rows, workers, ITEM_BATCHES, way)
        rate = BATCH_SIZE / turn.stages["seconds"]
        print(f"  DataLoader, {workers} workers: {rate:,.0f} rows/s", flush=True)
        return rate

    def rows_per_second(self, turn: Turn) -> float:
        return self.tables.num_rows / turn.stages["seconds"]

    def _show(self, name: str, turn: Turn) -> None:
        stages = turn.stages
        parts = [f"{self.rows_per_second(turn):,.0f} rows/s"]
        if "bytes_read" in stages:
            parts.append(
                f"{stages['bytes_read'] / 1e6:.0f} MB read per epoch, {stages['held_bytes'] / 1e6:.0f} MB reserved"
            )
            parts.append(f"{stages['computing']:.0%} computing, {stages['stalled']:.0%} waiting")
        print(f"  {name}: {', '.join(parts)}; peak {turn.peak_rss_bytes / 1e6:.0f} MB", flush=True)


def spread(ratios: list[float]) -> str:
    """Format a median and its range."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def measure_loading(bench: Bench, turns: int) -> Iterator[Claim]:
    """Compare loading without a model."""
    of_disk, rates = [], []
    for _ in range(turns):
        # On both sides: the disk's rate changes while others use it.
        before, turn, after = bench.read(), bench.load(), bench.read()
        assert turn.stages["bytes_read"] >= 0.99 * bench.tables.num_bytes, "rows come from the disk"
        rates.append(bench.rows_per_second(turn))
        of_disk.append(rates[-1] / statistics.mean((before, after)))
    yield Claim(
        f"loading takes {spread(of_disk)} of the disk's sequential rate, at least {LEAST_OF_DISK}",
        statistics.median(of_disk) >= LEAST_OF_DISK,
    )
    items = max(bench.load_items(workers) for workers in (0, default_threads()))
    faster = statistics.median(rates) / items
    yield Claim(
        f"it is {faster:.0f} times as fast as a DataLoader item by item, at least {LEAST_OF_ITEMS:.0f}",
        faster >= LEAST_OF_ITEMS,
    )


def measure_training(bench: Bench, turns: int) -> Iterator[Claim]:
    """Compare SGC from disk, from memory, and without prefetching; all train the same on the same chunks."""
    found: dict[int, list[float]] = {2: [], 1: []}
    for _ in range(turns):
        resident = bench.rows_per_second(bench.load("sgc", in_memory=True, epochs=SGC_EPOCHS))
        for num_buffers, ratios in found.items():
            turn = bench.load("sgc", num_buffers=num_buffers, epochs=SGC_EPOCHS)
            ratios.append(bench.rows_per_second(turn) / resident)
    yield Claim(
        f"SGC from the disk takes {spread(found[2])} of its rate from memory, at least {LEAST_OF_MEMORY}",
        statistics.median(found[2]) >= LEAST_OF_MEMORY,
    )
    yield Claim(
        f"(without double buffering) {spread(found[1])} of memory, which is to miss {LEAST_OF_MEMORY}",
        statistics.median(found[1]) < LEAST_OF_MEMORY,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of tables, generated if missing")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=default_threads(), help="threads of the models")
    parser.add_argument("--models", nargs="*", default=["sgc", "sign", "hoga"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    bench = Bench(make_tables(arguments.dir / f"tables-{arguments.rows}", arguments.rows), arguments.threads)
    claims = list(measure_loading(bench, arguments.turns))
    if "sgc" in arguments.models:
        claims += measure_training(bench, arguments.turns)
    for model in (each for each in arguments.models if each != "sgc"):
        bench.load(model)
    for claim in claims:
        print(f"{claim.text}: {'met' if claim.is_met else 'MISSED'}")
    if arguments.json:
        print(json.dumps({"benchmark": "prepropagation", "claims": dict(claims)}))
    return 0 if all(claim.is_met for claim in claims) else 1


if __name__ == "__main__":
    sys.exit(main())
