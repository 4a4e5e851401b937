"""An import of edges in text against DuckDB's parsing alone, and against NumPy's loadtxt on a slice, in one run.

Claims: the whole import (parsed, checked, numbered, sorted, on disk) of whole numbers takes at most 4 times as long as
DuckDB's parsing of the same file, and peak resident memory is at most the budget + 150 MB. They alternate, each in its
own process.
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
from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np

from diskhop.budget import Budget, parse_bytes
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from turns import stage_clock, take_turn

MOST_TIMES_PARSING = 4
ALLOWED_OVERHEAD_BYTES = 150_000_000
LOADTXT_ROWS = 3_000_000
_NO_BAR = "SET enable_progress_bar = false"
# Integers have gaps, as published ids do; names are text.
KINDS = {"integers": "(hash({0}) % {1}) * 3", "names": "'user' || hash({0}) % {1}"}


def write_text(path: Path, num_rows: int, num_nodes: int, kind: str) -> None:
    ends = [KINDS[kind].format(f"i + {offset}", num_nodes) for offset in (0, 10**12)]
    with duckdb.connect(config={"memory_limit": "500MB"}) as connection:
        connection.execute(_NO_BAR)
        query = f"SELECT {ends[0]} AS a, {ends[1]} AS b FROM range({num_rows}) t(i)"
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT csv, HEADER false, DELIMITER '\t')")


def parse_only(text: Path, threads: int, memory_bytes: int, kind: str, stages: dict[str, float]) -> None:
    """Parse the file only, and reduce the result to two numbers."""
    id_type = {"integers": "BIGINT", "names": "VARCHAR"}[kind]
    with duckdb.connect(config={"threads": threads, "memory_limit": f"{memory_bytes}B"}) as connection:
        connection.execute(_NO_BAR)
        columns = f"columns={{'a': '{id_type}', 'b': '{id_type}'}}"
        rows = f"read_csv('{text}', auto_detect=false, header=false, delim='\t', {columns})"
        connection.execute(f"SELECT max(a), max(b) FROM {rows}").fetchall()


def import_text(text: Path, threads: int, memory_bytes: int, kind: str, stages: dict[str, float]) -> None:
    import_graph(
        text,
        text.with_suffix(".graph"),
        engine=open_engine("auto").engine,
        budget=Budget(memory_bytes),
        threads=threads,
        progress=stage_clock(stages),
        options=ImportOptions(header=False),
    )


def loadtxt_rate(text: Path) -> float:
    begin = time.perf_counter()
    pairs = np.loadtxt(text, dtype=np.int64, delimiter="\t", max_rows=LOADTXT_ROWS)
    return len(pairs) / (time.perf_counter() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use")
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--ids", choices=list(KINDS), default="integers")
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3, help="pairs of turns")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    memory_bytes = parse_bytes(arguments.memory)

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    imports, parses = [], []
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as folder:
        text = Path(folder) / "edges.tsv"
        write_text(text, arguments.rows, arguments.nodes, arguments.ids)
        text_bytes = text.stat().st_size
        out(
            f"{arguments.rows / 1e6:g} M rows of {arguments.ids}, {text_bytes / 1e9:.2f} GB, "
            f"{arguments.threads} threads, {arguments.memory}"
        )
        for _ in range(arguments.repeats):
            task = (text, arguments.threads, memory_bytes, arguments.ids)
            imports.append(take_turn(import_text, *task))
            shutil.rmtree(text.with_suffix(".graph"))
            parses.append(take_turn(parse_only, *task))
        loadtxt = loadtxt_rate(text) if arguments.ids == "integers" else None
    for what, turns in (("import", imports), ("DuckDB, parsing only", parses)):
        seconds = sorted(turn.seconds for turn in turns)
        out(
            f"{what:22}{arguments.rows / statistics.median(seconds) / 1e6:7.2f} M rows/s  "
            f"{statistics.median(seconds):6.2f} s ({seconds[0]:.2f}..{seconds[-1]:.2f})  "
            f"peak {max(turn.peak_rss_bytes for turn in turns) / 1e6:,.0f} MB, from disk "
            f"{turns[-1].bytes_read / 1e6:,.0f} MB, to disk {turns[-1].bytes_written / 1e6:,.0f} MB"
        )
    ratios = [ours.seconds / theirs.seconds for ours, theirs in zip(imports, parses, strict=True)]
    times = statistics.median(ratios)
    out(f"the whole import takes {times:.2f} times its parsing ({min(ratios):.2f}..{max(ratios):.2f})")
    out("each stage ended after: " + ", ".join(f"{name} {at:.2f} s" for name, at in imports[-1].stages.items()))
    met = {"memory": max(turn.peak_rss_bytes for turn in imports) <= memory_bytes + ALLOWED_OVERHEAD_BYTES}
    if loadtxt is not None:
        met["time"] = times <= MOST_TIMES_PARSING
        out(f"loadtxt, {LOADTXT_ROWS / 1e6:g} M rows into memory: {loadtxt / 1e6:.2f} M rows/s")
    for name, is_met in met.items():
        out(f"{name}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document = {
            "benchmark": "edge_list",
            "cores": os.cpu_count(),
            "rows": arguments.rows,
            "ids": arguments.ids,
            "text_bytes": text_bytes,
            "memory_bytes": memory_bytes,
            "threads": arguments.threads,
            "imports": [asdict(turn) for turn in imports],
            "parses": [asdict(turn) for turn in parses],
            "loadtxt_rows_per_second": loadtxt,
            "met": met,
        }
        print(json.dumps(document, indent=1))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
