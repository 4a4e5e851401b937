"""The comparisons of the DiskGNN paper at a laptop's scale: its figures next to ours.

Nothing is claimed; results that the paper only plots are marked as plotted only. Every run has its own process, all
files evicted before, in a memory control group of its memory and overhead (the rest of the process, model included).
Memory is a part of the table for rows, all lists of neighbours, and OTHER_BYTES for what every system needs.

The graphs are uniform, because popular nodes matter little in Friendster (FS), and R-MAT in input order, because they
do in IGB260M (IG). Rows have 512 bytes; a batch requests about 1 % of the uniform table (--quick: 2 %), and the number
of batches makes an unbounded layout about 5 times the table, as for FS with a tenth of the rows in memory.

DiskGNN: `packed` from a layout packed ahead, of the first epoch's batches, which every epoch repeats, as in the paper.
DiskGNN, streaming: `packed` with nothing packed ahead and new samples in every epoch. Ginex: `belady`; one row per
read; one page of 4 KiB per row, as in the paper. MariusGNN: the sampler `marius` with resident partitions as large as
the other caches (marius_system.py). DGL-OnDisk: one pread per row after the other, as the paper's authors altered DGL;
one epoch, with the fewest rows in memory. For the record: `pread`, `static` and `shared`. All train the same 3-layer
SAGE, 256 wide, on the CPU; the paper's on a GPU that overlaps with the rest. With --trainer stand-in:4ms each step is
a wait in its place.

The columns are per epoch, means of those after the first. s: seconds of the whole, with the first partitions of
MariusGNN. +preprocess: with packing, sampling included, spread over EPOCHS_PACKED_FOR epochs; of MariusGNN, what the
first partitions took. fetch: seconds in which the store fetched rows; wait: of the model for
data; compute: of the model. hit: share of rows in memory. asked: bytes of the rows of all batches; read: bytes counted
by the store; kernel: bytes counted by the kernel, with lists and traces; disk: size of a layout; all as multiples of
the table.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baseline_stores import PAGES_IN_FLIGHT_BYTES
from cgroups import why_no_limit
from diskgnn_systems import FANOUTS, Case
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.generating import GraphConfig
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.policies.segments import count_rows
from diskhop.policies.static import most_accessed
from diskhop.sampling.topology import topology_bytes
from individual_packing import PackingCase
from paper_results import Finding, Plot, add_options, draw, leave_out, print_findings, run_experiments
from papers import find_graph, is_broken, print_table, run_script
from sampler_accuracy import MARIUS_HALF, measure
from segments import NUM_NODES, PAPER_TABLE_4, EpochTrace, compare_orders, compare_with_grid, record_trace
from stand_in import add_trainer_option, name_trainer
from workloads import DEFAULT_FOLDER, measure_device

DIM, EDGES_PER_NODE, ACCURACY_GRAPH = 128, 16, "oewn"
OTHER_BYTES = 400_000_000
# As the paper trains its graphs until they converge; FS has no classes, and is counted with the others.
EPOCHS_PACKED_FOR = {"uniform": 50, "kronecker": 20}
# Shares of an unbounded layout: 7, 5 and 3 of the 10.19 times the table that IG takes.
DISK_PARTS = {"7 of 10.19": 7 / 10.19, "5 of 10.19": 5 / 10.19, "3 of 10.19": 3 / 10.19}
SYSTEMS = (
    *("DiskGNN", "DiskGNN, streaming", "Ginex", "Ginex, a row per read", "Ginex, a page per row", "MariusGNN"),
    *("DGL-OnDisk", "pread", "static", "shared"),
)
# With more rows in memory: of DGL-OnDisk memory changes nothing, and an epoch takes longest.
WITH_CACHE = tuple(system for system in SYSTEMS if system not in ("DGL-OnDisk", "pread"))
SYSTEMS_OF_FIGURE_10 = ("DiskGNN", "Ginex", "Ginex, a page per row")
KINDS = {"uniform": "uniform, for FS", "kronecker": "R-MAT, for IG"}
# Ideas in switches.py that a system does without.
WITHOUT = {"Ginex, a row per read": "coalescing"}
# Table 1, Papers100M, SAGE, memory a tenth: seconds per epoch, of these reading, GB read, test accuracy.
TABLE_1 = {
    "Ginex": ("580", "412", "484", "65.9 %"),
    "MariusGNN": ("165", "27.1", "6.46", "64.0 %"),
    "DiskGNN": ("76.3", "51.2", "73.9", "65.9 %"),
}
# Section 7.2, a tenth of the rows in memory: others' epoch times over DiskGNN's (DGL-OnDisk: up to 86.53).
TIMES_OVER = {"Ginex, a page per row": 6.0, "Ginex": None, "MariusGNN": 2.0, "DGL-OnDisk": None}
# Table 1: GB read from the disk.
VOLUME = {"MariusGNN": 6.46, "DiskGNN": 73.9}
# Table 3, SAGE, in the mean of its graphs: MariusGNN's accuracy less DiskGNN's, in points.
MARIUS_BELOW = statistics.fmean((64.01 - 65.91, 65.50 - 67.79, 58.77 - 59.03))
# Table 4: amplification of the search over the grid's, and times as fast; the least of five.
SEARCH_OVER_GRID, SEARCH_SPEEDUP = 4.85 / 5.10, 259.6
# Figure 14: in the mean of four graphs, times as fast as individual packing, and as its reading.
BATCHED_PACKING, BATCHED_READING = 7.34, 61
# Table 5, seconds per epoch: sequential, pipelined.
TABLE_5 = {
    "FS": {0.1: (165.3, 96.67), 0.3: (88.98, 36.51), 0.5: (54.24, 28.12)},
    "IG": {0.1: (1901.82, 960.73), 0.3: (652.35, 312.71), 0.5: (641.26, 324.61)},
}
PAPER_OF = {"uniform": "FS", "kronecker": "IG"}

CPU_TRAINER = "the model on the CPU"
_AMPLE_BYTES, _KERNEL_BYTES = 4 << 30, 16 << 20

Result = dict[str, Any]


class Scale(NamedTuple):
    """Sizes of graphs and runs.

    fractions: shares of the rows in memory.
    trace_nodes: nodes of the graphs of Figures 5, 12, 13 and Table 4, which need no rows.
    searches: repetitions of each search of Table 4.
    accuracy_seeds: of Table 3.
    most_seconds: of a run, after which it is killed.
    """

    num_nodes: int
    nodes_a_seed: int
    num_batches: int
    num_epochs: int
    fractions: tuple[float, ...]
    kinds: tuple[str, ...]
    disk_parts: tuple[str, ...]
    trace_nodes: int = NUM_NODES
    searches: int = 5
    accuracy_seeds: int = 3
    most_seconds: float = 3600


WHOLE = Scale(1_000_000, 100_000, 640, 5, (0.1, 0.3, 0.5), tuple(KINDS), tuple(DISK_PARTS))
# With few batches a layout takes at least half of its unbounded size.
QUICK = Scale(
    200_000,
    50_000,
    150,
    2,
    (0.1, 0.5),
    ("uniform",),
    tuple(DISK_PARTS)[:2],
    searches=1,
    accuracy_seeds=1,
    most_seconds=300,
)


class Point(NamedTuple):
    """Point of comparison. disk_bytes: largest layout; 0: no bound."""

    kind: str
    fraction: float
    disk_bytes: int = 0


class Bench:
    """Runs cases, each once, and keeps their results."""

    def __init__(self, arguments: argparse.Namespace, out: Callable[[str], None], *, capped: bool) -> None:
        self.out = out
        self.folder: Path = arguments.dir
        self.is_quick: bool = arguments.quick
        self.source: Path = arguments.source
        self.step_seconds: float = arguments.step_seconds
        self.scale = QUICK if arguments.quick else WHOLE
        if arguments.nodes is not None:
            self.scale = self.scale._replace(num_nodes=arguments.nodes)
        self.num_nodes = self.scale.num_nodes
        self.batch_size = max(1, self.num_nodes // self.scale.nodes_a_seed)
        self.results: dict[tuple[str, Case], Result] = {}
        self.findings: list[Finding] = []
        self.plots: list[Plot] = []
        self._graphs: dict[str, Dataset] = {}
        self._capped = capped

    def graph(self, kind: str) -> Dataset:
        """Open the graph, or generate it once."""
        if kind not in self._graphs:
            config = GraphConfig(
                kind=kind,
                num_nodes=self.num_nodes,
                num_edges=EDGES_PER_NODE * self.num_nodes,
                dim=DIM,
                num_classes=47,
                train_fraction=0.01,
                order="input",
                seed=1,
            )
            self._graphs[kind] = find_graph(self.folder / f"diskgnn-{kind}-{self.num_nodes}", config)
        return self._graphs[kind]

    @cached_property
    def traces(self) -> dict[str, EpochTrace]:
        """Traces of segments.py, by kind of graph."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="diskhop-bench-") as folder:
            return {kind: record_trace(kind, Path(folder), self.scale.trace_nodes) for kind in KINDS}

    def table_bytes(self, kind: str) -> int:
        """Return the bytes of the feature table."""
        table = self.graph(kind).feature_table()
        assert table is not None
        return table.num_rows * table.row_bytes

    def case(self, system: str, point: Point) -> Case:
        """Return the case of a system at a point."""
        cache_bytes = int(self.table_bytes(point.kind) * point.fraction)
        lists_bytes = topology_bytes(self.graph(point.kind).topology, "memory")
        return Case(
            system=system,
            cache_bytes=cache_bytes,
            memory_bytes=cache_bytes + lists_bytes + OTHER_BYTES,
            disk_bytes=point.disk_bytes,
            batch_size=self.batch_size,
            num_batches=self.scale.num_batches,
            num_epochs=1 if system == "DGL-OnDisk" else self.scale.num_epochs,
            step_seconds=self.step_seconds,
        )

    def run(self, system: str, point: Point, without: str = "") -> Result:
        """Train once and return the result."""
        case = replace(self.case(system, point), without=without or WITHOUT.get(system, ""))
        if (point.kind, case) not in self.results:
            if case.is_packed_ahead:
                self._run_packed(point)
            else:
                with self.scratch() as scratch:
                    self._run(point.kind, case, scratch)
        return self.results[point.kind, case]

    def packing(self, point: Point) -> Result:
        """Return the costs of packing DiskGNN's layout."""
        self.run("DiskGNN", point)
        return self.results[point.kind, replace(self.case("DiskGNN", point), work="pack")]

    def run_packing(self, point: Point, kind: str) -> Result:
        """Measure packing alone, 'batched' or 'individual', of the point's batches."""
        table = self.graph(point.kind).feature_table()
        assert table is not None
        case = PackingCase(
            kind="batched" if kind == "batched" else "individual",
            fanouts=FANOUTS,
            batch_size=self.batch_size,
            num_batches=self.scale.num_batches,
            held_rows=int(table.num_rows * point.fraction),
        )
        with self.scratch() as scratch:
            run = {"case": asdict(case), "scratch": scratch}
            return run_script("individual_packing.py", self.graph(point.kind), run, None, self.scale.most_seconds)

    def _run_packed(self, point: Point) -> None:
        """Pack, and train on the layout both ways before it is removed, because layouts are large."""
        case = self.case("DiskGNN", point)
        sequential = replace(case, without="pipeline")
        with self.scratch() as scratch:
            packed = self._run(point.kind, replace(case, work="pack"), scratch)
            for each in (case,) if point.disk_bytes else (case, sequential):
                if "failed" in packed:
                    self.results[point.kind, each] = packed
                else:
                    self._run(point.kind, each, scratch)

    def _run(self, kind: str, case: Case, scratch: str) -> Result:
        limit_bytes = None
        if self._capped and case.system != "in memory":
            limit_bytes = case.memory_bytes + self._overhead_bytes(kind)
            limit_bytes += PAGES_IN_FLIGHT_BYTES if case.system == "Ginex, a page per row" else 0
        run = {"case": asdict(case), "scratch": scratch}
        result = run_script("diskgnn_systems.py", self.graph(kind), run, limit_bytes, self.scale.most_seconds)
        self.results[kind, case] = result
        return result

    def _overhead_bytes(self, kind: str) -> int:
        """Measure the overhead of a group beyond its memory, with a run in memory without a limit."""
        case = self.case("in memory", Point(kind, 0.0))
        case = replace(case, memory_bytes=_AMPLE_BYTES + self.table_bytes(kind), num_batches=32, num_epochs=1)
        if (kind, case) not in self.results:
            self._run(kind, case, "")
        result = self.results[kind, case]
        if "failed" in result:
            sys.exit(f"the run in memory, which measures the overhead, failed: {result['failed']}")
        return int(result["overhead_bytes"]) + _KERNEL_BYTES

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """Return a folder on the disk of the graphs that is removed with its context."""
        return tempfile.TemporaryDirectory(dir=self.folder, prefix="diskhop-bench-")

    def table(self, cases: dict[str, tuple[str, Point]]) -> None:
        """Print a line for each system at a point; times are divided by those of the first."""
        heads = [
            *("s", "min..max", "/first", "+preprocess", "fetch", "wait", "compute", "hit", "asked", "reads"),
            *("read", "kernel", "disk", "rss MB", "group MB", "limit MB"),
        ]
        first_seconds = self.seconds(*next(iter(cases.values())))
        print_table(self.out, heads, {name: self._row(*case, first_seconds) for name, case in cases.items()})

    def seconds(self, system: str, point: Point, without: str = "") -> float:
        """Return the seconds per epoch; of a run that was killed as too slow the fewest; NaN for a failed one."""
        result = self.run(system, point, without)
        if "ran_seconds" in result:
            return float(result["ran_seconds"]) / self.case(system, point).num_epochs
        return float(result.get("seconds", np.nan))

    def counts(self, system: str, point: Point, without: str = "") -> str:
        """Return what an epoch of a system took and read, in words, for the page."""
        result = self.run(system, point, without)
        if "failed" in result:
            return f"{system}: {result['failed']}"
        times, asked = (result[name] / self.table_bytes(point.kind) for name in ("bytes_read", "bytes_needed"))
        return (
            f"{system}: {result['seconds']:.1f} s, of which {result['stall_seconds']:.1f} wait for data, "
            f"{result['reads']:,.0f} reads of {times:.2f} times the table for {asked:.2f} of rows"
        )

    def _row(self, system: str, point: Point, first_seconds: float) -> list[str]:
        result = self.run(system, point)
        if "failed" in result:
            return [result["failed"]]
        steady = [epoch["seconds"] for epoch in result["epochs"][1:] or result["epochs"]]
        table_bytes = self.table_bytes(point.kind)
        whole, disk = "-", "-"
        if system == "DiskGNN":
            packing = self.packing(point)
            whole = f"{result['seconds'] + packing['seconds'] / EPOCHS_PACKED_FOR[point.kind]:.2f}"
            disk = f"{packing['disk_bytes'] / table_bytes:.2f}"
        elif system == "MariusGNN":
            whole = f"{result['preparation_seconds']:.2f}"
        return [
            f"{result['seconds']:.2f}",
            f"{min(steady):.2f}..{max(steady):.2f}" if len(steady) > 1 else "-",
            f"{result['seconds'] / first_seconds:.2f}",
            whole,
            *(f"{result[f'{name}_seconds']:.2f}" for name in ("fetch", "stall", "compute")),
            f"{(result['rows_hit'] + result['rows_shared']) / result['rows_requested']:.1%}",
            f"{result['bytes_needed'] / table_bytes:.2f}",
            f"{result['reads']:,.0f}",
            *(f"{result[name] / table_bytes:.2f}" for name in ("bytes_read", "kernel_bytes")),
            disk,
            *(
                "-" if result[name] is None else f"{result[name] / 1e6:,.0f}"
                for name in ("peak_rss_bytes", "group_peak_bytes", "limit_bytes")
            ),
        ]


def figures_8_to_10(bench: Bench) -> None:
    bench.out("\nTable 1 and Figures 8 to 10: epoch time, DiskGNN = 1, and disk traffic, by rows in memory")
    for kind in bench.scale.kinds:
        for fraction in bench.scale.fractions:
            point = Point(kind, fraction)
            is_first = fraction == bench.scale.fractions[0]
            systems = SYSTEMS if is_first else SYSTEMS_OF_FIGURE_10 if bench.is_quick else WITH_CACHE
            bench.out(f"{KINDS[kind]}, {fraction:.0%}: {format_bytes(bench.case('DiskGNN', point).memory_bytes)}")
            bench.table({system: (system, point) for system in systems})
            _find_times(bench, point, systems, is_first)
            _find_traffic(bench, point, systems, is_first)
        _draw_systems(bench, kind)
    bench.out(
        "paper, SAGE and GAT, 10 %: Ginex takes more than 6 times as long, 8.76 at most; MariusGNN about 2 times in 6 "
        "of 8 cases, DGL-OnDisk up to 86.53 times; preprocessing adds\n       less than 5 % to DiskGNN's epochs; up to "
        "50 % (SAGE): Ginex up to 8.73, MariusGNN up to 10.62 times; 10 to 30 % gains much more than 30 to 50 %\n"
        "       disk traffic is never more than a fifth of Ginex's; at 50 % both read next to nothing (IG); the rest "
        "is plotted only; Table 1 (Papers100M, SAGE, 10 %):"
    )
    heads = ["s", "of these reading", "GB read", "test accuracy"]
    print_table(bench.out, heads, {name: list(row) for name, row in TABLE_1.items()})
    bench.out(
        "what differs here: the model shares the cores with all other work, and its time is part of every epoch: see "
        "'compute'; `belady` reads many rows at once, and near ones\n  together by default; a row per read takes 512 "
        "bytes, where Ginex reads a page of 4 KiB; `pread` keeps the engine's depth in flight;\n  a partition of "
        "MariusGNN is read when a batch first needs it; static's rows and those of DiskGNN, streaming, are chosen by\n"
        "  degree, DiskGNN's by requests"
    )


def _find_times(bench: Bench, point: Point, systems: tuple[str, ...], is_first: bool) -> None:
    """Find the times of others over DiskGNN's; the paper's are those of a tenth of the rows in memory."""
    name = _describe(point)
    for other in systems[1:]:
        ratio = bench.seconds(other, point) / bench.seconds("DiskGNN", point)
        paper = TIMES_OVER.get(other) if is_first else None
        claim = f"time over DiskGNN's: {other}, {name}"
        why = f"{bench.counts(other, point)}; {bench.counts('DiskGNN', point)}" if other in TIMES_OVER else ""
        if other == "MariusGNN":
            why += (
                "; in the paper's Table 1 the disk takes 27 of its 165 s: sampling and training are slow, not reading"
            )
        bench.findings.append(Finding("Table 1, Figures 8 and 9", claim, ratio, paper, why=why))
    packing, epoch = bench.packing(point), bench.run("DiskGNN", point)
    share = packing.get("seconds", np.nan) / EPOCHS_PACKED_FOR[point.kind] / epoch.get("seconds", np.nan)
    claim = f"DiskGNN: packing over the time of {EPOCHS_PACKED_FOR[point.kind]} epochs, {name} (paper: within .05)"
    why = f"packing {packing.get('seconds', np.nan):.2f} s, an epoch {epoch.get('seconds', np.nan):.2f}"
    bench.findings.append(Finding("Table 1, Figures 8 and 9", claim, share, 0.05, less_is_better=True, why=why))


def _find_traffic(bench: Bench, point: Point, systems: tuple[str, ...], is_first: bool) -> None:
    """Find bytes read; the paper's Ginex reads a page for each row, ours also near rows together."""
    name, disk = _describe(point), bench.run("DiskGNN", point).get("bytes_read", np.nan)
    for other in ("Ginex, a page per row", "Ginex"):
        if other in systems:
            traffic = disk / bench.run(other, point).get("bytes_read", np.nan)
            paper = 0.2 if other != "Ginex" else None
            claim = f"bytes from the disk over those of {other}, {name}"
            bench.findings.append(Finding("Figure 10", claim, traffic, paper, less_is_better=True))
    if is_first and "MariusGNN" in systems:
        traffic = bench.run("MariusGNN", point).get("bytes_read", np.nan) / disk
        paper = VOLUME["MariusGNN"] / VOLUME["DiskGNN"]
        why = "few seeds stand for the paper's million: an epoch of it loads all partitions, for any number of batches"
        claim = f"bytes from the disk over DiskGNN's: MariusGNN, {name}"
        bench.findings.append(Finding("Table 1, Figures 8 and 9", claim, traffic, paper, less_is_better=True, why=why))


def _describe(point: Point) -> str:
    return f"{KINDS[point.kind]}, {point.fraction:.0%} of the rows in memory"


def _draw_systems(bench: Bench, kind: str) -> None:
    """Draw epoch times and disk traffic by rows in memory."""
    points = {f"{fraction:.0%}": Point(kind, fraction) for fraction in bench.scale.fractions}
    times: dict[str, dict[str, float]] = {}
    traffic: dict[str, dict[str, float]] = {}
    for system in ("DiskGNN", "Ginex", "Ginex, a page per row", "MariusGNN", "DGL-OnDisk"):
        for name, point in points.items():
            if (kind, bench.case(system, point)) in bench.results:
                normal = bench.seconds("DiskGNN", point)
                times.setdefault(system, {})[name] = bench.seconds(system, point) / normal
                read_bytes = bench.run(system, point).get("bytes_read", np.nan)
                traffic.setdefault(system, {})[name] = read_bytes / bench.table_bytes(kind)
    name = "Table 1, Figures 8 and 9"
    draw(bench, name, KINDS[kind], "rows in memory", "epoch time, DiskGNN = 1", times, is_logarithmic=True)
    draw(bench, "Figure 10", KINDS[kind], "rows in memory", "bytes read an epoch / table", traffic)


def figure_11(bench: Bench) -> None:
    bench.out("\nFigure 11: epoch time by the disk that a layout may take, a tenth of the rows in memory")
    for kind in bench.scale.kinds:
        free = Point(kind, bench.scale.fractions[0])
        packing = bench.packing(free)
        if "failed" in packing:
            bench.out(f"{KINDS[kind]}: {packing['failed']}")
            continue
        cases = {"DiskGNN, no bound": ("DiskGNN", free)}
        for name in bench.scale.disk_parts:
            bounded = free._replace(disk_bytes=int(DISK_PARTS[name] * packing["disk_bytes"]))
            times = bounded.disk_bytes / bench.table_bytes(kind)
            cases[f"DiskGNN, {name}: {times:.2f}x"] = ("DiskGNN", bounded)
        bench.out(f"{KINDS[kind]}:")
        bench.table({**cases, "Ginex": ("Ginex", free)})
        normal = bench.seconds("DiskGNN", free)
        with_ginex = {**cases, "Ginex": ("Ginex", free)}
        drawn = {name: bench.seconds(*case) / normal for name, case in with_ginex.items()}
        for name, each in drawn.items():
            claim = f"{KINDS[kind]}, {name}: time of an epoch, DiskGNN without a bound = 1"
            failed = bench.run(*cases[name]).get("failed", "") if name in cases else ""
            bench.findings.append(Finding("Figure 11", claim, each, less_is_better=True, why=failed))
        draw(bench, "Figure 11", KINDS[kind], "layout", "epoch time, no bound = 1", {"time": drawn})
        segments = [str(bench.packing(point).get("segment", "-")) for _, point in cases.values()]
        bench.out(f"batches of a segment: {', '.join(segments)}")
    bench.out(
        "paper: without a bound FS takes 5.39 and IG 10.19 times the table; 7, 5 and 3 times are the longer the less, "
        "plotted only; FS hardly longer at 5;\n       Papers100M and MAG240M take less than the table"
    )


def figure_12(bench: Bench) -> None:
    bench.out("\nFigure 12: disk that a layout takes without a bound, in times of the table, by rows in memory")
    fractions = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    rows: dict[str, list[str]] = {}
    drawn: dict[str, dict[str, float]] = {}
    for kind, trace in bench.traces.items():
        counts = np.bincount(np.concatenate(trace.batches), minlength=trace.num_nodes)
        rows[KINDS[kind]] = []
        for fraction in fractions:
            is_held = np.zeros(trace.num_nodes, np.bool_)
            is_held[most_accessed(counts, int(fraction * trace.num_nodes))] = True
            disk_times = count_rows(trace, is_held, 1).packed_rows / trace.num_nodes
            rows[KINDS[kind]].append(f"{disk_times:.2f}")
            drawn.setdefault(KINDS[kind], {})[f"{fraction:.0%}"] = disk_times
            claim = f"{KINDS[kind]}, {fraction:.0%} of the rows in memory: disk / table"
            paper = 2.0 if fraction == 0.2 else None
            why = "all rows are requested alike: a share of them in memory saves hardly more than that share"
            why = why if kind == "uniform" and paper else ""
            bench.findings.append(Finding("Figure 12", claim, disk_times, paper, less_is_better=True, why=why))
    draw(bench, "Figure 12", "", "rows in memory", "disk of a layout / table", drawn, kind="lines")
    print_table(bench.out, [f"{fraction:.0%}" for fraction in fractions], rows)
    bench.out("paper: about 20 % in memory keep it below 2 times the table; it falls faster for IG; plotted only")


def segments(bench: Bench) -> None:
    bench.out(f"\nTable 4: the search for segments (segments.py, 200 batches, {bench.scale.trace_nodes:,} nodes)")
    for kind in bench.scale.kinds:
        searches, _ = compare_with_grid(KINDS[kind], bench.traces[kind], bench.scale.searches, bench.out)
        for each in searches:
            name = f"{KINDS[kind]}, {each['disk_times_table']}x"
            ratio = each["found"]["amplification"] / each["best_reads"]["amplification"]
            claim = f"{name}: amplification of the search over the grid's"
            bench.findings.append(Finding("Table 4", claim, ratio, SEARCH_OVER_GRID, less_is_better=True))
            speedup = each["grid_seconds"] / each["seconds"]
            claim = f"{name}: search over grid, times as fast"
            bench.findings.append(Finding("Table 4", claim, speedup, SEARCH_SPEEDUP))
    for line in PAPER_TABLE_4:
        bench.out(f"paper's Table 4, amplification: {line}")
    bench.out("\nFigures 5 and 13: one disk cache for all batches or segments of 50, 100, 150, reordered or not")
    amplifications: dict[str, dict[str, float]] = {}
    for each in compare_orders(bench.traces["uniform"], bench.out):
        of_orders = each["orders"]
        for order in ("by id", "by two hashes"):
            name = f"segments of {each['num_batches']}, {order}"
            amplifications.setdefault(name, {})[f"{each['most_shared_rows']:,}"] = of_orders[order]["amplification"]
        saved = 1 - of_orders["by two hashes"]["amplification"] / of_orders["by id"]["amplification"]
        claim = f"bytes saved by reordering, segments of {each['num_batches']}, {each['most_shared_rows']:,} rows"
        bench.findings.append(Finding("Figures 5 and 13", claim, saved))
    draw(bench, "Figures 5 and 13", "", "rows in the disk cache", "amplification", amplifications, kind="lines")
    bench.out(
        "paper: in one disk cache for all, reordering saves less than 10 % of the bytes, a third of the batches gain "
        "noticeably, a tenth more than half (FS);\n       segments gain the more the shorter they are and take the "
        "more disk; with few shared rows all lengths take about as much; plotted only"
    )


def figure_14(bench: Bench) -> None:
    bench.out("\nFigure 14: packing batches individually or all of them by one pass, a tenth of the rows in memory")
    rows = {}
    for kind in bench.scale.kinds:
        point = Point(kind, bench.scale.fractions[0])
        results = {name: bench.run_packing(point, name) for name in ("individual", "batched")}
        failed = [result["failed"] for result in results.values() if "failed" in result]
        if failed:
            rows[KINDS[kind]] = failed[:1]
            continue
        if len({result["checksum"] for result in results.values()}) > 1:
            sys.exit(f"{KINDS[kind]}: packed individually the file differs from the one packed by one pass")
        individual = results["individual"]
        speedup = individual["seconds"] / results["batched"]["seconds"]
        reading = individual["read_seconds"] / results["batched"]["read_seconds"]
        why = "; ".join(
            f"{name}: {result['seconds']:.2f} s, of which {result['read_seconds']:.2f} read"
            for name, result in results.items()
        )
        claim = f"{KINDS[kind]}: batched over individual packing, times as fast"
        bench.findings += [
            Finding("Figure 14", claim, speedup, BATCHED_PACKING, why=why),
            Finding(
                "Figure 14",
                f"{claim}, reading alone",
                reading,
                BATCHED_READING,
                why=f"{individual['bytes_read'] / bench.table_bytes(kind):.1f} and "
                f"{results['batched']['bytes_read'] / bench.table_bytes(kind):.1f} times the table's bytes for "
                f"{individual['batches']} batches; the more batches one pass packs, the more it saves",
            ),
        ]
        drawn = {name: {"reading": of["read_seconds"], "all": of["seconds"]} for name, of in results.items()}
        draw(bench, "Figure 14", KINDS[kind], "part", "seconds of packing", drawn)
        for name, result in results.items():
            rows[f"{KINDS[kind]}, {name}"] = [
                f"{result['seconds']:.2f}",
                f"{result['seconds'] / result['batches'] * 1e3:.1f}",
                f"{result['read_seconds']:.2f}",
                f"{result['read_seconds'] / result['seconds']:.0%}",
                f"{result['bytes_read'] / bench.table_bytes(kind):.2f}",
                f"{result['bytes_written'] / bench.table_bytes(kind):.2f}",
                f"{individual['seconds'] / result['seconds']:.2f}",
                f"{individual['read_seconds'] / result['read_seconds']:.1f}",
            ]
    heads = ["s", "ms per batch", "s reading", "of all", "read/table", "written/table", "times as fast", "reading"]
    print_table(bench.out, heads, rows)
    bench.out(
        "paper: 7.34 times as fast on average, reading 61 times; individually 81 to 90 % is reading; more where access "
        "is more uniform (FS, IG)\nwhat differs here: individual packing has as many reads in flight as the engine "
        "takes, and writes a chunk while it reads for the next; batched,\n  reading is the wait for it; sampling "
        "is not counted, and the files are the same, byte by byte"
    )


def table_5(bench: Bench) -> None:
    bench.out("\nTable 5: pipelined training against sequential, seconds per epoch")
    rows = {}
    for kind in bench.scale.kinds:
        for fraction in bench.scale.fractions:
            point = Point(kind, fraction)
            results = [bench.run("DiskGNN", point, without) for without in ("pipeline", "")]
            failed = [result["failed"] for result in results if "failed" in result]
            if failed:
                rows[f"{KINDS[kind]}, {fraction:.0%}"] = failed[:1]
                continue
            sequential, pipelined = (result["seconds"] for result in results)
            of_paper = TABLE_5[PAPER_OF[kind]][fraction]
            claim = f"{KINDS[kind]}, {fraction:.0%}: sequential over pipelined"
            why = "; ".join(bench.counts("DiskGNN", point, without) for without in ("pipeline", ""))
            ratio = of_paper[0] / of_paper[1]
            bench.findings.append(
                Finding("Table 5", claim, sequential / pipelined, ratio, why=f"sequential and not: {why}")
            )
            rows[f"{KINDS[kind]}, {fraction:.0%}"] = [
                *(f"{result[name]:.2f}" for result in results for name in ("seconds", "stall_seconds")),
                f"{results[0]['fetch_seconds']:.2f}",
                f"{sequential / pipelined:.2f}",
                *(f"{seconds:.2f}" for seconds in of_paper),
                f"{of_paper[0] / of_paper[1]:.2f}",
            ]
    heads = ["sequential", "wait", "pipelined", "wait", "fetch", "ratio", "paper's: sequential", "pipelined", "ratio"]
    print_table(bench.out, heads, rows)
    bench.out(
        "paper: sequential is one thread for all; with 10 % reading takes longest, with 50 % all other work\n"
        "what differs here: sequential, a batch is read once the one before has been trained on, by as many threads; "
        "the model is on the CPU, takes longest\n  throughout, and has the cores to itself meanwhile"
    )


def table_3(bench: Bench) -> None:
    bench.out(f"\nTable 3: test accuracy on Open English WordNet, {bench.scale.accuracy_seeds} seeds")
    accuracy = {}
    with bench.scratch() as scratch:
        dataset = import_graph(
            bench.source / ACCURACY_GRAPH, Path(scratch) / ACCURACY_GRAPH, engine=open_engine().engine
        )
        for name, sampler in (("DiskGNN", "neighbor"), ("MariusGNN", MARIUS_HALF)):
            runs = [
                measure(dataset, ACCURACY_GRAPH, sampler, seed, Path(scratch) / "runs")
                for seed in range(bench.scale.accuracy_seeds)
            ]
            accuracy[name] = statistics.fmean(runs)
            bench.findings.append(Finding("Table 3", f"{name}: test accuracy, %", accuracy[name]))
    below = accuracy["MariusGNN"] - accuracy["DiskGNN"]
    why = "half of 48 partitions resident; Ginex and DiskGNN sample all neighbours alike, bit for bit"
    claim = "MariusGNN less DiskGNN, points of accuracy"
    bench.findings.append(Finding("Table 3", claim, below, MARIUS_BELOW, is_trait=True, why=why))
    print_table(bench.out, ["test accuracy, %"], {name: [f"{each:.2f}"] for name, each in accuracy.items()})
    bench.out(
        "paper, SAGE: DiskGNN 65.91, 67.79 and 59.03, Ginex 65.85, 67.90 and 58.96, MariusGNN 64.01, 65.50, 58.77"
    )


EXPERIMENTS = {
    "figure8": figures_8_to_10,
    "figure11": figure_11,
    "figure12": figure_12,
    "segments": segments,
    "figure14": figure_14,
    "table5": table_5,
    "table3": table_3,
}


def main() -> int:
    # Ends a running case and its group with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the graphs, generated if missing")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[2] / "shared" / "data", help="of Table 3")
    parser.add_argument(
        "--nodes", type=int, help=f"of the graphs; default: {WHOLE.num_nodes:,}, quick {QUICK.num_nodes:,}"
    )
    add_trainer_option(parser, CPU_TRAINER)
    parser.add_argument("--quick", action="store_true", help="fewer batches, epochs and points, a smaller graph")
    add_options(parser, EXPERIMENTS)
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    leave_out(arguments, ("table3",), arguments.source / ACCURACY_GRAPH, out)
    obstacle = why_no_limit()
    if obstacle:
        out(f"NO memory limit ({obstacle}): the page cache may hold mapped files")
    arguments.dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments, out, capped=not obstacle)
    device = measure_device(bench.graph("uniform"))
    out(
        f"{bench.num_nodes:,} nodes, {EDGES_PER_NODE * bench.num_nodes:,} edges, {DIM} float32 features: "
        f"{format_bytes(bench.table_bytes('uniform'))}; SAGE's fan-out {','.join(map(str, FANOUTS))}, "
        f"{bench.scale.num_batches} batches of {bench.batch_size}, {bench.scale.num_epochs} epochs, "
        f"{name_trainer(bench.step_seconds, CPU_TRAINER)}, {os.cpu_count()} cores; device ({device.source}): "
        f"{device.overhead_seconds * 1e6:.1f} us + bytes at {device.bytes_per_second / 1e9:.2f} GB/s per read"
    )
    run_experiments("paper_diskgnn", EXPERIMENTS, bench, arguments, name_trainer(bench.step_seconds, CPU_TRAINER))
    if arguments.json:
        runs = [{"graph": kind, **asdict(case), "result": result} for (kind, case), result in bench.results.items()]
        trainer = name_trainer(bench.step_seconds, CPU_TRAINER)
        print_findings("paper_diskgnn", bench.findings, trainer=trainer, device=device.to_dict(), runs=runs)
    # A bound on the disk that is too small is a result.
    return 1 if any(is_broken(result) for (_, case), result in bench.results.items() if not case.disk_bytes) else 0


if __name__ == "__main__":
    sys.exit(main())
