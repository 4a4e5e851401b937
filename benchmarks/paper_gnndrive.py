"""The experiments of the GNNDrive paper (ICPP 2024) at a laptop's scale: its figures next to ours.

Nothing is claimed; results that the paper only plots are marked as plotted only. Every run has its own process, all
files evicted before, in a memory control group of its memory and overhead (the rest of the process without a limit,
model and labels included). The graph is R-MAT with Papers100M's proportions: lists are a fifth of the whole at 128
values per row, memory .48 of it. 25 seeds stand for the paper's 1000: a batch needs about 1 % of the rows.

PyG+: lists and features mapped, indptr in memory, read-ahead disabled. Ginex: four fifths of its caches' memory for
rows, as in the paper, batches sampled ahead. GNNDrive: its CPU variant, one feature buffer that batches share while
they are extracted; lists in memory or cached where the paper maps them; the planner chooses samplers and extractors,
because two cores have less use for the paper's four and four and its queues of six and four. `--map-lists --samplers 4
--extractors 4` has them as published. MariusGNN (Table 2): the
sampler `marius`, with the rows of its resident partitions in memory (marius_system.py). All train the same 3-layer
SAGE, 256 wide, on the CPU; the paper's train on a GPU, which is quoted. Computing is part of every time: see 'compute'.
With --trainer stand-in:12ms each step is a wait in its place, except in Figure 14, and ratios are compared with the
paper's on a GPU.

The columns are means per batch after a warm-up of 16. ms: of the whole; min..max: of the epochs. sample: in a sampling
thread. wait: of the model for data. hit: share of rows in a cache or the buffer; shared: being read for another batch.
MB: read by the kernel.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baseline_stores import PAGE_BYTES
from cgroups import why_no_limit
from diskhop._native import why_no_uring
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError
from diskhop.generating import GraphConfig
from ginex_systems import FANOUTS, beyond_memory_bytes
from gnndrive_systems import Case, ReadTimes, Work, count_epoch, make_file, partitions_of, plan_case, time_reads
from marius_system import NUM_RESIDENT
from paper_results import Finding, Plot, add_options, draw, print_findings, run_experiments
from papers import (
    CpuClock,
    cache_lists,
    dataset_bytes,
    find_graph,
    is_broken,
    narrow,
    print_table,
    run_planned,
    sparkline,
)
from stand_in import add_trainer_option, name_trainer
from workloads import DEFAULT_FOLDER, measure_device

DIM, NODES_PER_SEED, BLOCK_MODEL_BATCH_SIZE = 128, 80_000, 10
SYSTEMS = ("PyG+", "Ginex", "GNNDrive")
# The sweeps report times of the same number of seeds for any batch size.
EPOCH_BATCHES = 100
# Section 5.2: GNNDrive's rate of sampling while it extracts over PyG+'s, by feature dimension.
SAMPLING_OVER_PYG = {128: 1.9, 512: 3.0}
# Section 5.1: PyG+'s time over GNNDrive's in 8 of the 32 GB.
OVER_IN_LITTLE_MEMORY = 5.8
# Table 2: overall times of others over GNNDrive-GPU's and -CPU's, Papers100M; the share of MariusGNN-32G's that is
# preparation.
OVER_GPU = {"PyG+": 17.1, "Ginex": 2.64, "MariusGNN": 2.67}
OVER_CPU = {"PyG+": 11.1, "Ginex": 1.71, "MariusGNN": 1.73}
PREPARATION_SHARE = 0.46
# Table 2: seconds per epoch with SAGE, Papers100M (128 values) and MAG240M (768); MariusGNN's with preparation.
TABLE_2 = {
    "GNNDrive-GPU": ("241", "167"),
    "GNNDrive-CPU": ("372", "717"),
    "PyG+": ("4116", "5038"),
    "Ginex": ("637", "1272"),
    "MariusGNN, 32 GB": ("643, 296 of them preparation", "out of memory"),
    "MariusGNN, 128 GB": ("292, 115 of them preparation", "out of memory"),
}

CPU_TRAINER = "the model on the CPU"
# Page tables, stacks and rings of a group; and more memory than a run in memory needs beyond the dataset.
_KERNEL_BYTES, _AMPLE_BYTES = 16 << 20, 4 << 30

Result = dict[str, Any]


class Scale(NamedTuple):
    """Sizes of runs and of the graph of Figure 14.

    memory_fraction: memory over the bytes of the dataset with rows of DIM values.
    num_batches: batches per epoch; PyG+ is slow and soon steady, and Ginex must request more rows than it caches.
    num_epochs, converge_epochs: epochs of a run, and of one until it converges.
    dims, swept_dims: widths of rows in Figures 2 and 8.
    memories, batch_sizes, buffers: points of Figures 9, 10 and 12, as multiples of the default.
    depths, read_seconds: reads in flight of appendix B, and seconds per point.
    file_bytes: length of the file of appendix B: much larger than the bytes read, so that the page cache hardly helps.
    block_model: nodes of the graph of Figure 14.
    most_seconds: of a run, after which it is killed.
    """

    memory_fraction: float
    num_batches: dict[str, int]
    num_epochs: int
    converge_epochs: int
    dims: tuple[int, ...]
    swept_dims: tuple[int, ...]
    memories: tuple[float, ...]
    batch_sizes: tuple[float, ...]
    buffers: tuple[int, ...]
    depths: tuple[int, ...]
    read_seconds: float
    file_bytes: int
    block_model: int
    most_seconds: float


WHOLE = Scale(
    memory_fraction=0.48,
    num_batches={
        "PyG+": 16,
        "Ginex": 880,
        "Ginex, a page per row": 880,
        "GNNDrive": 32,
        "MariusGNN": 48,
        "in memory": 6,
    },
    num_epochs=3,
    converge_epochs=5,
    dims=(64, 128, 256, 512),
    swept_dims=(64, 128, 256, 512),
    memories=(0.25, 0.5, 1, 2, 4),
    batch_sizes=(0.5, 1, 2, 4),
    buffers=(1, 2, 4, 8),
    depths=(1, 2, 4, 8, 16, 32, 64, 128),
    read_seconds=0.5,
    file_bytes=2_048_000_000,
    block_model=300_000,
    most_seconds=1800,
)
QUICK = Scale(
    memory_fraction=0.48,
    num_batches={
        "PyG+": 12,
        "Ginex": 336,
        "Ginex, a page per row": 336,
        "GNNDrive": 24,
        "MariusGNN": 32,
        "in memory": 6,
    },
    num_epochs=1,
    converge_epochs=3,
    dims=(DIM,),
    swept_dims=(128, 512),
    memories=(0.5, 1),
    batch_sizes=(1, 2),
    buffers=(1, 2),
    depths=(1, 8, 32, 128),
    read_seconds=0.2,
    file_bytes=2_048_000_000,
    block_model=300_000,
    most_seconds=300,
)


class Bench:
    """Runs cases, each once, and keeps their results."""

    def __init__(self, arguments: argparse.Namespace, out: Callable[[str], None], *, capped: bool) -> None:
        self.out = out
        self.folder: Path = arguments.dir
        self.is_quick: bool = arguments.quick
        self.scale = QUICK if arguments.quick else WHOLE
        self.num_nodes: int = arguments.nodes
        self.graph = find_graph(
            self.folder / f"gnndrive-{self.num_nodes}",
            GraphConfig(
                kind="kronecker",
                num_nodes=self.num_nodes,
                num_edges=32 * self.num_nodes,
                dim=512,
                num_classes=47,
                seed=1,
            ),
        )
        self.device = measure_device(self.graph)
        self.default_bytes = dataset_bytes(narrow(self.graph, DIM))
        self.base = Case(
            system="GNNDrive",
            work="train",
            dim=DIM,
            batch_size=max(1, self.num_nodes // NODES_PER_SEED),
            memory_bytes=int(self.default_bytes * self.scale.memory_fraction),
            num_epochs=self.scale.num_epochs,
            step_seconds=arguments.step_seconds,
            samplers=arguments.samplers,
            extractors=arguments.extractors,
            maps_lists=arguments.map_lists,
        )
        self.results: dict[Case, Result] = {}
        self.findings: list[Finding] = []
        self.plots: list[Plot] = []
        self._capped = capped

    @cached_property
    def block_model(self) -> Dataset:
        """Graph of Figure 14: neighbours say more about a node's class than its own features."""
        config = GraphConfig(
            kind="sbm",
            num_nodes=self.scale.block_model,
            num_edges=20 * self.scale.block_model,
            dim=DIM,
            num_classes=16,
            train_fraction=0.01,
            eval_fraction=0.004,
            homophily=0.5,
            seed=1,
        )
        return find_graph(self.folder / "gnndrive-sbm", config)

    @property
    def paper_ratios(self) -> dict[str, float]:
        """Return the paper's times over GNNDrive's, Papers100M: on its GPU for a stand-in, on its CPU by Table 2."""
        return {"PyG+": 16.9, "Ginex": 2.6} if self.base.step_seconds else {"PyG+": 11.1, "Ginex": 1.7}

    def case(self, system: str, **changes: Any) -> Case:
        """Return a system at a point, with the same number of seeds per epoch for any batch size."""
        case = replace(self.base, **changes, system=system)
        num_batches = self.scale.num_batches[system] * self.base.batch_size // case.batch_size
        return replace(case, num_batches=max(1, num_batches))

    def run(self, case: Case) -> Result:
        """Run a case once and return its result."""
        if case not in self.results:
            self.results[case] = self._run(case)
        return self.results[case]

    def _run(self, case: Case) -> Result:
        whole = self.block_model if case.work == "converge" else self.graph
        dataset = narrow(whole, case.dim)
        cache_lists(dataset)
        try:
            plan = plan_case(dataset, case, self.device)
        except BudgetError as error:
            return {"failed": str(error)}
        beyond_bytes = beyond_memory_bytes(case.system)
        limit_bytes = case.memory_bytes + beyond_bytes + self._overhead_bytes(case) if self._capped else None
        with CpuClock() as clock:
            result = run_planned("gnndrive_systems.py", whole, case, plan, limit_bytes, self.scale.most_seconds)
        if "failed" in result:
            return result
        return {**result, "plan": plan.to_dict(), "cpu": clock.between(result["began"], result["ended"])}

    def _overhead_bytes(self, case: Case) -> int:
        """Measure the overhead of a group beyond its memory; that of the model depends on batches and their width."""
        if case.system == "in memory":
            return _AMPLE_BYTES
        trains = case.work in ("train", "converge")
        in_memory = self.case(
            "in memory",
            work=case.work if trains else "extract",
            dim=case.dim if trains else DIM,
            batch_size=case.batch_size,
            memory_bytes=2 * dataset_bytes(self.graph),
            num_epochs=1,
        )
        result = self.run(in_memory)
        if "failed" in result:
            sys.exit(f"the run in memory, which measures the overhead, failed: {result['failed']}")
        # Kernels that do not report the peak of a group count programs and libraries with it, in the page cache or not.
        peak_bytes: int = result["group_peak_bytes"] or result["peak_rss_bytes"]
        return peak_bytes - int(result["reserved_peak_bytes"]) + _KERNEL_BYTES

    def seconds(self, case: Case) -> float:
        """Return the seconds per batch; of a run that was killed as too slow the fewest; NaN for a failed one."""
        result = self.run(case)
        if "ran_seconds" in result:
            return float(result["ran_seconds"]) / (case.num_batches * case.num_epochs)
        return float(result.get("seconds", np.nan))

    def counts(self, case: Case) -> str:
        """Return what a case read and waited for, in words, for the page."""
        result = self.run(case)
        if "failed" in result:
            return str(result["failed"])
        parts = [f"{result['seconds'] * 1e3:.0f} ms a batch, of which {result['stall_seconds'] * 1e3:.0f} wait"]
        parts += [f"{result['kernel_bytes'] / 1e6:.1f} MB from the disk for {result['bytes_needed'] / 1e6:.1f} of rows"]
        if result["reads"]:
            parts.append(f"{result['reads']:,.0f} reads")
        else:
            num_pages = result["kernel_bytes"] / PAGE_BYTES
            parts.append(f"{num_pages:,.0f} pages, {1e6 * result['stall_seconds'] / max(1, num_pages):.0f} us each")
        return ", ".join(parts)

    def table(self, cases: dict[str, Case]) -> None:
        """Print a line per case."""
        heads = [
            *("ms", "min..max", "sample", "wait", "compute", "hit", "shared", "reads", "MB", "needed", "lists"),
            *("samplers", "extractors", "cached rows", "rss MB", "group MB", "limit MB"),
        ]
        print_table(self.out, heads, {name: self._row(case) for name, case in cases.items()})

    def _row(self, case: Case) -> list[str]:
        result = self.run(case)
        if "failed" in result:
            return [result["failed"]]
        plan, rows = result["plan"], result["rows_requested"] or 1
        epochs = [epoch["seconds"] / epoch["batches"] * 1e3 for epoch in result["epochs"]]
        held_rows = plan["buffer_rows"] or plan["cache_rows"]
        return [
            f"{result['seconds'] * 1e3:.1f}",
            f"{min(epochs):.1f}..{max(epochs):.1f}" if len(epochs) > 1 else "-",
            *(f"{result[f'{name}_seconds'] * 1e3:.1f}" for name in ("sample", "stall", "compute")),
            *(f"{result[name] / rows:.1%}" if held_rows else "-" for name in ("rows_hit", "rows_shared")),
            f"{result['reads']:,.0f}" if result["reads"] else "-",
            *(f"{result[name] / 1e6:.1f}" for name in ("kernel_bytes", "bytes_needed")),
            plan["topology"],
            f"{plan['sampling_threads']}",
            f"{plan['extractors']}..{plan['most_extracting']}" if plan["extractors"] else "-",
            f"{held_rows:,}" if held_rows else "-",
            *(
                "-" if result[name] is None else f"{result[name] / 1e6:,.0f}"
                for name in ("peak_rss_bytes", "group_peak_bytes", "limit_bytes")
            ),
        ]


def figure_2(bench: Bench) -> None:
    bench.out("\nFigure 2: milliseconds of sampling a batch, alone and while rows are extracted, by feature dimension")
    works: tuple[Work, Work] = ("sample", "extract")
    rows, cases = {}, {}
    drawn: dict[str, dict[str, float]] = {f"{system}-{what}": {} for system in SYSTEMS for what in ("only", "all")}
    for dim in bench.scale.dims:
        for system in SYSTEMS:
            pair = [bench.case(system, dim=dim, work=work) for work in works]
            alone, overlapped = (bench.run(case).get("sample_seconds", np.nan) for case in pair)
            rows[f"{system}, {dim}"] = [f"{alone * 1e3:.2f}", f"{overlapped * 1e3:.2f}", f"{overlapped / alone:.2f}"]
            paper = 5.4 if system == "PyG+" and dim == DIM else None
            claim = f"{system}, {dim} values: sampling while extracting over alone"
            why = " and ".join(
                f"{1e3 * of_case:.1f} ms with {bench.run(case).get('kernel_bytes', np.nan) / 1e6:.1f} MB from the disk"
                for of_case, case in zip((alone, overlapped), pair, strict=True)
            )
            bench.findings.append(Finding("Figure 2", claim, overlapped / alone, paper, is_trait=True, why=why))
            drawn[f"{system}-only"][f"{dim}"], drawn[f"{system}-all"][f"{dim}"] = 1e3 * alone, 1e3 * overlapped
            cases.update({f"{system}-{name}, {dim}": case for name, case in zip(("only", "all"), pair, strict=True)})
        if dim in SAMPLING_OVER_PYG:
            ratio = drawn["PyG+-all"][f"{dim}"] / drawn["GNNDrive-all"][f"{dim}"]
            claim = f"GNNDrive over PyG+, {dim} values: sampling while extracting, times as fast"
            bench.findings.append(Finding("Figure 2", claim, ratio, SAMPLING_OVER_PYG[dim]))
    draw(bench, "Figure 2", "", "feature dimension", "milliseconds of sampling a batch", drawn, is_logarithmic=True)
    print_table(bench.out, ["only", "all", "all/only"], rows)
    bench.table(cases)
    bench.out(
        "paper: PyG+-all 5.4 times PyG+-only at 128, and 3.1 times at 512 what it is at 64; Ginex's two are close; "
        "GNNDrive-GPU samples 1.9 and 3.0 times as fast\n       as PyG+ at 128 and 512, GNNDrive-CPU marginally "
        "slower with wider rows; sampling is 1.0 % of the time, extracting 97.3 %\n"
        "what differs here: 'all' has no training, which would take the cores that sample; GNNDrive's lists are not in "
        "the page cache but in\n       its memory, or read directly; samplers that wait for the disk together (see "
        "their number) wait the longer for each batch"
    )


def figures_3_and_11(bench: Bench) -> None:
    bench.out("\nFigures 3 and 11: the machine's cores while epochs are trained")
    rows, drawn = {}, {}
    for system in (*SYSTEMS, "MariusGNN"):
        result = bench.run(bench.case(system))
        if "failed" in result:
            rows[system] = [result["failed"]]
            continue
        busy, io_wait = result["cpu"]["busy"], result["cpu"]["io_wait"]
        if busy:
            why = bench.counts(bench.case(system))
            bench.findings += [
                Finding("Figures 3 and 11", f"{system}: share of the cores busy", float(np.mean(busy)), why=why),
                Finding("Figures 3 and 11", f"{system}: share of I/O wait", float(np.mean(io_wait))),
            ]
            spans = [np.array_split(np.array(shares), min(10, len(busy))) for shares in (busy, io_wait)]
            for name, shares in zip(("busy", "I/O wait"), spans, strict=True):
                drawn[f"{system}, {name}"] = {
                    f"{100 * place // len(shares)}%": float(each.mean()) for place, each in enumerate(shares)
                }
        rows[system] = [
            f"{result['ended'] - result['began']:.1f}",
            *(f"{np.mean(shares):.0%}" if shares else "-" for shares in (busy, io_wait)),
            *(f"|{sparkline(shares)}|" if shares else "-" for shares in (busy, io_wait)),
        ]
    for system in (*SYSTEMS, "MariusGNN"):
        if series := {name: of for name, of in drawn.items() if name.startswith(f"{system}, ")}:
            draw(bench, "Figures 3 and 11", system, "of the epochs", "share of the cores", series, kind="lines")
    print_table(bench.out, ["s", "busy", "I/O wait", "busy over time", "I/O wait over time"], rows)
    bench.out(
        "paper: three epochs, plotted only: where PyG+ and Ginex wait for I/O, their cores and GPU hardly work; "
        "GNNDrive waits far less;\n       MariusGNN prepares data for 46.1 % of an epoch in 32 GB\n"
        "what differs here: the model is on these cores; all that the machine does is counted; kernels before 6.5 do "
        f"not count waiting\n       for io_uring as I/O wait, and this is {os.uname().release}"
    )


def sweep(bench: Bench, figure: str, what: str, points: dict[str, dict[str, Any]], said: str) -> None:
    """Print every system at each point, and the times of the others over GNNDrive's."""
    cases = {(point, system): bench.case(system, **changes) for point, changes in points.items() for system in SYSTEMS}
    bench.table({f"{system}, {point}": case for (point, system), case in cases.items()})
    rows = {}
    drawn: dict[str, dict[str, float]] = {system: {} for system in SYSTEMS}
    for point in points:
        epochs = [
            bench.seconds(case) * EPOCH_BATCHES * bench.base.batch_size / case.batch_size
            for case in (cases[point, system] for system in SYSTEMS)
        ]
        for system, seconds in zip(SYSTEMS[:-1], epochs, strict=False):
            paper = bench.paper_ratios[system] if (figure, point) == ("Figure 8", f"{DIM}") else None
            if (figure, point, system) == ("Figure 9", "x0.25", "PyG+"):
                paper = OVER_IN_LITTLE_MEMORY
            why = f"{system}: {bench.counts(cases[point, system])}; GNNDrive: {bench.counts(cases[point, 'GNNDrive'])}"
            claim = f"{system} over GNNDrive, time, {point}"
            bench.findings.append(Finding(figure, claim, seconds / epochs[-1], paper, why=why))
        for system, seconds in zip(SYSTEMS, epochs, strict=True):
            drawn[system][point] = seconds
        rows[point] = [f"{seconds:.2f}" for seconds in epochs] + [f"{each / epochs[-1]:.2f}" for each in epochs[:-1]]
    seeds = f"seconds for {EPOCH_BATCHES * bench.base.batch_size} seeds"
    draw(bench, figure, "", what, seeds, drawn, is_logarithmic=True)
    bench.out(f"{seeds}:")
    print_table(bench.out, [*SYSTEMS, *(f"{system}/GNNDrive" for system in SYSTEMS[:-1])], rows)
    bench.out(f"paper: {said}")


def _compare_with_ginex_as_it_is(bench: Bench) -> None:
    """Compare with Ginex as its authors have it: a page for each row, and batches sampled before they are trained."""
    case, normal = bench.case("Ginex, a page per row"), bench.case("GNNDrive")
    sampled = bench.run(bench.case("Ginex", work="sample"))
    sample_seconds = sampled.get("seconds", np.nan)
    ratio = (bench.seconds(case) + sample_seconds) / bench.seconds(normal)
    claim = f"Ginex with a page per row, sampling first, over GNNDrive, time, {DIM}"
    why = f"{bench.counts(case)}; sampling alone {sample_seconds * 1e3:.0f} ms, which our Ginex does at the same time"
    bench.findings.append(Finding("Figure 8", claim, ratio, bench.paper_ratios["Ginex"], why=why))


def figure_8(bench: Bench) -> None:
    bench.out("\nFigure 8: feature dimension")
    sweep(
        bench,
        "Figure 8",
        "feature dimension",
        {f"{dim}": {"dim": dim} for dim in bench.scale.swept_dims},
        "PyG+ takes 16.9 and Ginex 2.6 times as long as GNNDrive-GPU (Papers100M, SAGE, 128 values); by Table 2 "
        "11.1 and 1.7 times as long\n       as GNNDrive-CPU; the GPU is 1.5 times as fast as the CPU with SAGE; from "
        "64 to 512 values (MAG240M) GNNDrive-GPU takes 1.1 times\n       as long, PyG+ 7.0 times; Table 2, seconds per "
        "epoch:",
    )
    _compare_with_ginex_as_it_is(bench)
    print_table(bench.out, ["Papers100M", "MAG240M"], {name: list(row) for name, row in TABLE_2.items()})


def table_2(bench: Bench) -> None:
    bench.out("\nTable 2: seconds of a whole epoch, from those of a batch; MariusGNN's with its data preparation")
    dataset = narrow(bench.graph, DIM)
    rows, overall, preparation = {}, {}, {}
    for system in (*SYSTEMS, "MariusGNN"):
        case = bench.case(system)
        result, (num_batches, num_loads) = bench.run(case), count_epoch(dataset, case)
        load_seconds = result.get("load_seconds", 0.0)
        # Loads are taken out of the batches that waited for them: a few batches have more of them than an epoch has.
        loads_per_batch = 0.0
        if num_loads:
            loads_per_batch = (
                result.get("rows_filled", 0.0) * partitions_of(dataset.num_nodes).num_partitions / dataset.num_nodes
            )
        preparation[system] = NUM_RESIDENT * load_seconds
        overall[system] = (
            bench.seconds(case) - loads_per_batch * load_seconds
        ) * num_batches + num_loads * load_seconds
        rows[system] = [
            f"{preparation[system]:.2f}",
            f"{overall[system] - preparation[system]:.2f}",
            f"{overall[system]:.2f}",
            f"{num_batches:,}",
            f"{num_loads}" if num_loads else "-",
        ]
    print_table(bench.out, ["preparation s", "training s", "overall s", "batches", "partitions loaded"], rows)
    for system, paper in (OVER_GPU if bench.base.step_seconds else OVER_CPU).items():
        ratio = overall[system] / overall["GNNDrive"]
        why = f"{system}: {bench.counts(bench.case(system))}, {rows[system][3]} batches; GNNDrive {rows['GNNDrive'][3]}"
        if system == "MariusGNN":
            why += "; its batches request rows of resident partitions alone, which are read from front to back"
        bench.findings.append(Finding("Table 2", f"{system} over GNNDrive, overall time", ratio, paper, why=why))
    share = preparation["MariusGNN"] / overall["MariusGNN"]
    why = "loads the first partitions; the paper's also splits the graph's edges and stores them by pairs of partitions"
    claim = "MariusGNN: share of preparation in the overall time"
    bench.findings.append(Finding("Table 2", claim, share, PREPARATION_SHARE, is_trait=True, why=why))
    bench.out("paper, seconds per epoch:")
    print_table(bench.out, ["Papers100M", "MAG240M"], {name: list(row) for name, row in TABLE_2.items()})
    bench.out(
        "what differs here: preparation orders an epoch, in milliseconds, and loads the first partitions; MariusGNN's "
        "also splits and stores edges\n       by pairs of partitions, which ours reads from the lists of all"
    )


def figure_9(bench: Bench) -> None:
    bench.out(
        f"\nFigure 9: memory, rows of 512 values; x1 is {format_bytes(bench.base.memory_bytes)} for the paper's 32 GB"
    )
    memory_bytes = bench.base.memory_bytes
    sweep(
        bench,
        "Figure 9",
        "memory",
        {f"x{factor:g}": {"dim": 512, "memory_bytes": int(memory_bytes * factor)} for factor in bench.scale.memories},
        "8 to 128 GB, plotted only; at 8 GB PyG+ takes up to 5.8 times as long as GNNDrive-GPU, and Ginex runs out of "
        "memory on Twitter; GNNDrive gains little\nbeyond 32 GB, where all lists are in memory; at 128 GB PyG+ is as "
        "fast or faster on Twitter, all of which it then caches",
    )


def figure_10(bench: Bench) -> None:
    normal = bench.base.batch_size
    bench.out(f"\nFigure 10: batch size; {normal} stand for 1000")
    sizes = [int(factor * normal) for factor in bench.scale.batch_sizes]
    sweep(
        bench,
        "Figure 10",
        "batch size",
        {f"{size}": {"batch_size": size} for size in sizes if size > 0},
        "500 to 4000, plotted only; epochs get shorter with larger batches, but PyG+'s 43.2 % longer from 500 to 1000; "
        "it runs out of memory at 4000 with GAT (Friendster)",
    )


def figure_12(bench: Bench) -> None:
    memory_bytes = 2 * bench.base.memory_bytes
    bench.out(
        "\nFigure 12: GNNDrive's feature buffer, x1 = the model's batch and those of two extractors; memory "
        f"{format_bytes(memory_bytes)} throughout"
    )
    times = bench.scale.buffers
    cases = {f"x{factor}": bench.case("GNNDrive", buffer=factor, memory_bytes=memory_bytes) for factor in times}
    bench.table(cases)
    ratios = [
        f"x{factor} {bench.seconds(cases['x1']) / bench.seconds(cases[f'x{factor}']):.2f}" for factor in times[1:]
    ]
    doubled = bench.seconds(cases["x1"]) / bench.seconds(cases["x2"])
    paper = 1.4 if bench.base.step_seconds else 1.2
    why = f"twice: {bench.counts(cases['x2'])}; once: {bench.counts(cases['x1'])}"
    bench.findings.append(Finding("Figure 12", "speed-up of twice the buffer", doubled, paper, why=why))
    seconds = {name: bench.seconds(case) for name, case in cases.items()}
    draw(bench, "Figure 12", "", "feature buffer", "seconds per batch", {"GNNDrive": seconds})
    bench.out(
        f"speed-up over x1: {', '.join(ratios)}\n"
        "paper: x2 is 1.4 (GPU) and 1.2 (CPU) times as fast as x1 (2.38 GB) with Twitter and SAGE; more does not help\n"
        "what differs here: 'shared' counts also rows that another batch was reading, which any buffer saves"
    )


def figure_14(bench: Bench) -> None:
    bench.out(
        "\nFigure 14: time to accuracy on a stochastic block model, the same seeds; without the time of validation"
    )
    in_order, out_of_order = "GNNDrive, in order", "GNNDrive"
    num_epochs = dict.fromkeys((in_order, out_of_order), bench.scale.converge_epochs)
    if not bench.is_quick:
        # Their batches also arrive in order, so that one epoch gives the time of all.
        num_epochs = {"PyG+": 1, "Ginex": 1, **num_epochs}
    cases = {
        name: replace(
            bench.base,
            system=name,
            work="converge",
            step_seconds=0.0,
            num_epochs=epochs,
            memory_bytes=int(dataset_bytes(bench.block_model) * bench.scale.memory_fraction),
            batch_size=BLOCK_MODEL_BATCH_SIZE,
        )
        for name, epochs in num_epochs.items()
    }
    bench.table(cases)
    done = {name: bench.run(case)["epochs"] for name, case in cases.items() if "failed" not in bench.run(case)}
    if not {in_order, out_of_order} <= set(done):
        return
    best = {name: np.maximum.accumulate([epoch["valid"] for epoch in done[name]]) for name in (in_order, out_of_order)}
    # Accuracy that both reach.
    target = min(accuracies[-1] for accuracies in best.values())
    rows, to_target = {}, {}
    for name, epochs in done.items():
        needed = 1 + int(np.argmax(best.get(name, best[in_order]) >= target))
        seconds = [epoch["seconds"] for epoch in epochs]
        rows[name] = [
            " ".join(f"{epoch['valid']:.1%}" for epoch in epochs),
            " ".join(f"{each:.1f}" for each in seconds),
            f"{needed}",
            f"{np.mean(seconds) * needed:.1f}",
        ]
        to_target[name] = float(np.mean(seconds)) * needed
    for name, paper in (("PyG+", 11.5), ("Ginex", 1.8)):
        if name in to_target:
            ratio = to_target[name] / to_target[out_of_order]
            claim = f"{name} over GNNDrive, time to accuracy, all on the CPU"
            why = f"{name}: {bench.counts(cases[name])}; GNNDrive: {bench.counts(cases[out_of_order])}"
            bench.findings.append(Finding("Figure 14", claim, ratio, paper, why=why))
    in_epochs = to_target[in_order] / to_target[out_of_order]
    bench.findings.append(Finding("Figure 14", "GNNDrive in order over out of order, time to accuracy", in_epochs))
    curves = {name: [epoch["valid"] for epoch in done[name]] for name in best}
    drawn = {name: {f"{number + 1}": each for number, each in enumerate(curve)} for name, curve in curves.items()}
    draw(bench, "Figure 14", "", "epoch", "validation accuracy", drawn, kind="lines")
    print_table(bench.out, ["accuracy by epoch", "s per epoch", "epochs", f"s to {target:.1%}"], rows)
    bench.out(
        "paper: PyG+, Ginex and GNNDrive-CPU take 18.4, 2.9 and 1.6 times as long as GNNDrive-GPU to about 56 % "
        "(Papers100M), in as many epochs as PyG+ or fewer;\n"
        "       MAG240M: GNNDrive-GPU alone gets there (52 %), Ginex has too little memory, PyG+ too little time"
    )


def appendix_b(bench: Bench) -> None:
    bench.out("\nFigure B.1: random reads, n threads with one read each, or one thread with n io_uring reads in flight")
    depths, seconds = bench.scale.depths, bench.scale.read_seconds
    engines = {"threads": "threads", **({} if why_no_uring() else {"uring": "at once"})}
    rows = {}
    with tempfile.TemporaryDirectory(dir=bench.folder, prefix="diskhop-bench-") as folder:
        path = Path(folder) / "file"
        make_file(path, bench.scale.file_bytes)
        for num_bytes in (512, 4096):
            for engine, what in engines.items():
                for depth in depths:
                    rows[f"{num_bytes} bytes, {depth} {what}"] = [
                        text
                        for direct in (True, False)
                        for times in [time_reads(path, engine, depth, num_bytes, direct, seconds)]
                        for text in _read_cells(times, num_bytes, depth)
                    ]
    print_table(bench.out, ["direct MB/s", "us", "CPU us", "buffered MB/s", "us", "CPU us"], rows)
    for name, cells in rows.items():
        if cells[0] != "-":
            bench.findings.append(Finding("Figure B.1", f"direct MB/s, {name}", float(cells[0])))
    for unit, column in (("MB/s", 0), ("microseconds per read", 1)):
        drawn = {
            f"{what}, {way}": {
                f"{depth}": _number(rows[f"512 bytes, {depth} {what}"][first + column]) for depth in depths
            }
            for what in engines.values()
            for way, first in (("direct", 0), ("buffered", 3))
        }
        draw(bench, "Figure B.1", unit, "in flight", f"{unit}, reads of 512 bytes", drawn, kind="lines")
    bench.out(
        "paper: plotted only: threads gain up to about 32, and wait the longer for each read the more they are; one "
        "thread with n reads in flight is as fast;\n"
        "       buffered and direct differ by 41.8 %, at large depth by 5.6 %; reads aligned to 512 bytes of 30 GB\n"
        "us: per read, with n of them in flight all the time; CPU us: of all threads, per read; -: more than "
        "the engine's threads"
    )


def _number(cell: str) -> float:
    return np.nan if cell == "-" else float(cell)


def _read_cells(times: ReadTimes | None, num_bytes: int, depth: int) -> list[str]:
    if times is None:
        return ["-"] * 3
    return [
        f"{num_bytes / times.seconds / 1e6:.1f}",
        f"{times.seconds * depth * 1e6:.0f}",
        f"{times.cpu_seconds * 1e6:.1f}",
    ]


EXPERIMENTS = {
    "figure2": figure_2,
    "figure3": figures_3_and_11,
    "figure8": figure_8,
    "table2": table_2,
    "figure9": figure_9,
    "figure10": figure_10,
    "figure12": figure_12,
    "figure14": figure_14,
    "appendixB": appendix_b,
}


def main() -> int:
    # Ends a running case and its group with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the graphs, generated if missing")
    parser.add_argument(
        "--nodes", type=int, default=2_000_000, help="nodes of the graph; batch and memory scale with it"
    )
    add_trainer_option(parser, CPU_TRAINER)
    parser.add_argument("--samplers", type=int, default=0, help="GNNDrive's; the paper has 4; default: the planner's")
    parser.add_argument("--extractors", type=int, default=0, help="GNNDrive's; the paper has 4; default: the planner's")
    parser.add_argument("--map-lists", action="store_true", help="GNNDrive's as the paper's: indptr in memory")
    parser.add_argument("--quick", action="store_true", help="fewer batches, points and epochs")
    add_options(parser, EXPERIMENTS)
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    obstacle = why_no_limit()
    if obstacle:
        out(f"NO memory limit ({obstacle}): the page cache may hold mapped files")
    bench = Bench(arguments, out, capped=not obstacle)
    base, device, files = bench.base, bench.device, bench.graph.topology
    out(
        f"{files.num_nodes:,} nodes, {files.num_edges:,} edges, {base.dim} float32 features: "
        f"{format_bytes(bench.default_bytes)}; memory {format_bytes(base.memory_bytes)}; SAGE's fan-out "
        f"{','.join(map(str, FANOUTS))}, {base.batch_size} seeds per batch, "
        f"{name_trainer(base.step_seconds, CPU_TRAINER)}, {os.cpu_count()} cores; device ({device.source}): "
        f"{device.overhead_seconds * 1e6:.1f} us + bytes at {device.bytes_per_second / 1e9:.2f} GB/s per read"
    )
    run_experiments("paper_gnndrive", EXPERIMENTS, bench, arguments, name_trainer(base.step_seconds, CPU_TRAINER))
    if arguments.json:
        runs = [{**asdict(case), "result": result} for case, result in bench.results.items()]
        trainer = name_trainer(base.step_seconds, CPU_TRAINER)
        print_findings("paper_gnndrive", bench.findings, trainer=trainer, device=device.to_dict(), runs=runs)
    return 1 if any(is_broken(result) for result in bench.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
