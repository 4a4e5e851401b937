"""The comparisons of the Legend paper at a laptop's scale: its figures next to ours.

    python benchmarks/paper_legend.py [--quick] [--only EXPERIMENT,...] [--trainer stand-in:12ms] [--dir FOLDER]

Nothing is claimed. The paper trains on a GPU, from an NVMe disk with its own driver: only ratios can be compared.
Its graphs are two kinds: TW has many edges for its nodes (35), FM few (3.5), so that moving partitions takes longer
than training. Ours are Kronecker graphs of two densities with Dot, partitions and Adagrad as the paper has them, and
random rows for the parts of a batch. On our cores training takes so long that it hides every disk: with --trainer
stand-in:12ms each edge is a wait in its place, as long as the paper's 12.0 (TW) and 13.8 ms (FM) for 100,000 edges make
it with as many edges per node as the paper's graph has. Where our disk is faster than the paper's, so is that trainer:
both move partitions at the same rate for each edge that is trained. Marius and GE2 are not run: BETA and COVER are
their orders in our system, as in the paper's table 7, and a loop of torch's autograd stands for their gradients in
table 10.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import torch

from diskhop._native import RowUpdater
from diskhop.config.embed import LEAVING, SPARE
from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import Step, Table
from diskhop.generating import GraphConfig
from diskhop.policies.orderings import ORDERS
from diskhop.policies.schedule import Schedule, buckets_of_ranks, prefetchable_share
from diskhop.runs.start import embed
from embeddings import Autograd
from paper_results import Finding, Plot, add_options, draw, print_findings, run_experiments
from papers import CpuClock, find_graph, print_table, sparkline
from stand_in import add_trainer_option, embedded_by_stand_in, name_trainer
from workloads import DEFAULT_FOLDER, evict

DIM = 100
# Table 2: edges per node; section 7.1: partitions.
EDGES_PER_NODE = {"TW": 1.46e9 / 41.6e6, "FM": 304.7e6 / 86.1e6}
PARTITIONS = {"TW": 8, "FM": 12}
# Table 5, Legend: a batch's time over that on TW. Section 7.1: its edges.
BATCH_TIMES, PAPER_BATCH = {"TW": 1.0, "FM": 13.8 / 12.0}, 100_000
# Table 8: I/O times, by partitions. COVER has them only for powers of 4.
TABLE_8 = {
    6: (8, None, 8),
    8: (15, None, 16),
    10: (24, None, 24),
    12: (34, None, 36),
    14: (48, None, 50),
    16: (63, 80, 66),
}
# Table 6: epoch seconds without and with prefetching.
TABLE_6 = {"TW": (235.0, 181.0), "FM": (271.2, 243.8)}
# Seconds of an epoch's batches: Table 2's edges, Table 5's batches. Of TW they are Figure 8's share of Table 6, too.
COMPUTE_SECONDS = {"TW": 1.46e9 / PAPER_BATCH * 12.0e-3, "FM": 304.7e6 / PAPER_BATCH * 13.8e-3}
# Table 6, TW: the rest of the epoch without prefetching moves Table 8's partitions to disk and back. Bytes a second.
PAPER_DISK_RATE = 16 * 2 * (41.6e6 * 8 * DIM / PARTITIONS["TW"]) / (TABLE_6["TW"][0] - COMPUTE_SECONDS["TW"])
# Table 7: epoch seconds.
TABLE_7 = {
    "TW": {"beta": 233.6, "cover": 276.6, "legend, no overlap": 235.0, "legend": 181.0},
    "FM": {"beta": 273.8, "cover": 314.2, "legend, no overlap": 271.2, "legend": 243.8},
}
# Tables 5 and 10, TW: milliseconds per batch, and of its gradients.
TABLE_5 = {"Marius": 315.6, "GE2": 18.5, "Legend": 12.0}
TABLE_10 = {"Marius": 16.0, "GE2": 16.3, "Legend": 10.5}
# Figure 8, TW: mean utilisation of the GPU.
FIGURE_8 = {"Marius": 57.63, "GE2": 59.85, "Legend": 96.79}


class Scale(NamedTuple):
    """Sizes: nodes, edges by the paper's graph that they stand for, negatives, timed batches and their edges.

    num_turns: number of turns of Table 6, which is odd, and larger where the gain is smaller. Each measures the disk
    and trains all kinds, since a disk's rate changes with the minute.
    """

    num_nodes: int
    num_edges: dict[str, int]
    num_negatives: int
    num_batches: int
    num_turns: dict[str, int]
    batch_size: int = 50_000
    chunk_size: int = 1000


WHOLE = Scale(2_000_000, {"TW": 12_000_000, "FM": 3_000_000}, 100, 5, {"TW": 3, "FM": 5})
QUICK = Scale(500_000, {"TW": 3_000_000, "FM": 750_000}, 50, 2, {"TW": 1, "FM": 1})
# Of the graph that is trained without a stand-in, to compare embeddings bit for bit.
SAME_BITS_NODES = 20_000
# The first one also fills the memory.
EPOCHS = 4

CPU_TRAINER = "the model on the CPU"


class Run(NamedTuple):
    """Costs of the fastest epoch after the first. busy: share of the cores' time, by interval, of all of these."""

    seconds: float
    stall_seconds: float
    moved_bytes: int
    busy: list[float]


def _seconds_of(run: Run) -> float:
    return run.seconds


class Bench:
    """Trains epochs, and keeps their results. step_seconds: of a stand-in, for a batch of the paper; 0: it trains."""

    def __init__(self, folder: Path, scale: Scale, step_seconds: float, out: Callable[[str], None]) -> None:
        self.scale = scale
        self.step_seconds = step_seconds
        self.out = out
        self._folder = folder
        self._disk_rates: dict[str, float] = {}
        self._runs: dict[tuple[str, str], Run] = {}
        self.findings: list[Finding] = []
        self.plots: list[Plot] = []

    def run(self, stands_for: str, name: str) -> Run:
        """Train one epoch with an order, once per order. name: of the order, ", no overlap" or ", spare slot"."""
        if (stands_for, name) not in self._runs:
            self._runs[stands_for, name] = self._run_as_paper(stands_for, name)
        return self._runs[stands_for, name]

    def run_in_turns(self, stands_for: str, names: tuple[str, ...]) -> tuple[dict[str, Run], list[float]]:
        """Train with several orders, there and back, several times: a disk may slow down while it works.

        Returns the turn of the median gain of the second one over the first, whose runs and disk are those of run()
        from then on, and the gains of all turns, sorted.
        """
        turns = []
        for _ in range(self.scale.num_turns[stands_for]):
            rate = self._disk_rates[stands_for] = self._measure_disk()
            taken = [(name, self._run_as_paper(stands_for, name)) for name in (*names, *reversed(names))]
            fastest = {name: min((run for each, run in taken if each == name), key=_seconds_of) for name in names}
            turns.append((fastest, rate))
        turns.sort(key=lambda turn: gain_of(turn[0][names[0]], turn[0][names[1]]))
        middle, self._disk_rates[stands_for] = turns[len(turns) // 2]
        self._runs |= {(stands_for, name): run for name, run in middle.items()}
        return middle, [gain_of(turn[names[0]], turn[names[1]]) for turn, _ in turns]

    def _run_as_paper(self, stands_for: str, name: str) -> Run:
        """Train with steps as long for a node's edges as the paper's GPU takes, next to a disk like the paper's."""
        edge_seconds = self.step_seconds * BATCH_TIMES[stands_for] / PAPER_BATCH
        edge_seconds *= EDGES_PER_NODE[stands_for] * self.scale.num_nodes / self.scale.num_edges[stands_for]
        if self.step_seconds:
            if stands_for not in self._disk_rates:
                self._disk_rates[stands_for] = self._measure_disk()
            edge_seconds *= PAPER_DISK_RATE / self._disk_rates[stands_for]
        return self._run(stands_for, name, edge_seconds)

    def _measure_disk(self) -> float:
        """Return the bytes a second that partitions move at while nothing is trained."""
        run = self._run("FM", "legend, no overlap", 1e-12)
        rate = run.moved_bytes / run.stall_seconds
        self.out(f"partitions move at {rate / 1e9:.2f} GB/s; the paper's: {PAPER_DISK_RATE / 1e9:.2f}")
        return rate

    def _run(self, stands_for: str, name: str, edge_seconds: float) -> Run:
        with embedded_by_stand_in(edge_seconds), CpuClock() as clock:
            num_edges = self.scale.num_edges[stands_for]
            result, _ = self._train(self.scale.num_nodes, num_edges, PARTITIONS[stands_for], name)
            ended = time.monotonic()
        epochs = result["epochs"][1:]
        epoch = min(epochs, key=lambda each: each["seconds"])
        busy = clock.between(ended - sum(each["seconds"] for each in epochs), ended)["busy"]
        return Run(epoch["seconds"], epoch["stall_seconds"], epoch["bytes_read"] + epoch["bytes_written"], busy)

    def vectors(self, name: str) -> np.ndarray:
        """Train a small graph, without a stand-in, and return its embeddings."""
        _, vectors = self._train(SAME_BITS_NODES, 6 * SAME_BITS_NODES, PARTITIONS["TW"], name)
        return vectors

    def _train(self, num_nodes: int, num_edges: int, partitions: int, name: str) -> tuple[dict[str, Any], np.ndarray]:
        order, _, way = name.partition(", ")
        if order == "cover":
            partitions, buffer = 16, 4
        else:
            buffer = 3
        config = GraphConfig(kind="kronecker", num_nodes=num_nodes, num_edges=num_edges, dim=0, num_classes=0, seed=3)
        dataset = find_graph(self._folder / f"embedded-{num_nodes}-{num_edges}", config)
        evict(dataset)
        epochs = 1 if num_nodes == SAME_BITS_NODES else EPOCHS
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="diskhop-bench-") as scratch:
            run = embed(
                dataset, out=Path(scratch) / "run", model="dot", dim=DIM, adagrad="element",
                batch_size=self.scale.batch_size, chunk_size=self.scale.chunk_size,
                negatives=self.scale.num_negatives, epochs=epochs, evaluate=False, memory="4GB", partitions=partitions,
                buffer=buffer, partition_order=order, overlap=way != "no overlap",
                prefetch_slot=SPARE if way == "spare slot" else LEAVING, seed=1,
            )  # fmt: skip
            vectors = np.zeros(0)
            if num_nodes == SAME_BITS_NODES:
                vectors = np.load(run.export(Path(scratch) / "vectors.npy"))
        return run.result, vectors


def table_8(bench: Bench) -> None:
    bench.out(
        "\nTable 8: states per epoch, the paper's / ours (COVER: loads); the share of swaps that can be prefetched"
    )
    rows = {}
    for num_partitions, of_paper in TABLE_8.items():
        cells = []
        for name, paper in zip(("beta", "cover", "legend", "searched"), (*of_paper, None), strict=True):
            capacity = 4 if name == "cover" else 3
            if name == "cover" and paper is None:
                cells.append("-")
                continue
            states = ORDERS[name](num_partitions, capacity)
            loads = capacity + sum(len(set(after) - set(before)) for before, after in pairwise(states))
            # The paper counts the states of orders that swap one partition at a time, and the loads of COVER.
            counted = loads if name == "cover" else len(states)
            claim = f"{num_partitions} partitions, {name}: " + ("loads" if name == "cover" else "states")
            bench.findings.append(Finding("Table 8", claim, counted, paper, less_is_better=True))
            cells.append(
                f"{'-' if paper is None else paper} / {counted} ({prefetchable_share(Schedule.of_one(states)):.0%})"
            )
        rows[f"{num_partitions} partitions"] = cells
    print_table(bench.out, ["BETA", "COVER", "Legend's", "searched for (ours)"], rows)


def table_6(bench: Bench) -> None:
    bench.out(
        "\nTable 6: seconds per epoch without and with partitions that move during training, into the slot that is "
        "left\n(three in memory, as in the paper) or into a fourth"
    )
    rows = {}
    drawn: dict[str, dict[str, float]] = {"without prefetching": {}, "with prefetching": {}}
    for graph, (without, with_it) in TABLE_6.items():
        turn, gains = bench.run_in_turns(graph, ("legend, no overlap", "legend", "legend, spare slot"))
        off, on, spare = turn.values()
        spread = f"; {gains[0]:.3f} to {gains[-1]:.3f} in {len(gains)} turns" if len(gains) > 1 else ""
        why = (
            f"{off.stall_seconds:.2f} of {off.seconds:.2f} s wait for {off.moved_bytes / 1e9:.1f} GB without, "
            f"{on.stall_seconds:.2f} of {on.seconds:.2f} s with it, three partitions in memory{spread}"
        )
        hidden, of_paper = off.seconds - on.seconds, without - with_it
        most = hideable_seconds(PARTITIONS[graph], off)
        bench.findings += [
            Finding("Table 6", f"{graph}: gain by prefetching", gain_of(off, on), without / with_it - 1, why=why),
            Finding(
                "Table 6",
                f"{graph}: share of the waiting that prefetching hides",
                hidden / off.stall_seconds,
                of_paper / (without - COMPUTE_SECONDS[graph]),
                why=f"{hidden:.2f} s; the order has training for {most:.2f} s of it, a gain of "
                f"{most / (off.seconds - most):.3f}",
            ),
        ]
        drawn["without prefetching"][graph], drawn["with prefetching"][graph] = off.seconds, on.seconds
        rows[f"{graph}, ours"] = [*cells_of(off.seconds, on.seconds), f"{on.stall_seconds:.1f}"]
        rows[f"{graph}, ours, four slots"] = [*cells_of(off.seconds, spare.seconds), f"{spare.stall_seconds:.1f}"]
        rows[f"{graph}, paper"] = [*cells_of(without, with_it), "-"]
    draw(bench, "Table 6", "", "graph", "seconds per epoch", drawn)
    print_table(bench.out, ["without", "with", "gain", "stalled"], rows)
    is_same = np.array_equal(bench.vectors("legend"), bench.vectors("legend, no overlap"))
    claim = f"{SAME_BITS_NODES:,} nodes, trained on the CPU: the same embeddings with and without, bit for bit (1: yes)"
    bench.findings.append(Finding("Table 6", claim, float(is_same), 1.0))
    bench.out(claim if is_same else "DIFFERENT embeddings with and without prefetching")


def hideable_seconds(num_partitions: int, off: Run) -> float:
    """Return how much of an epoch's waiting the order allows to hide: per swap, the training without what leaves."""
    (by_state,) = buckets_of_ranks(Schedule.of_one(ORDERS["legend"](num_partitions, 3)))
    swap_seconds = off.stall_seconds / (len(by_state) - 1 + 1.5)  # three partitions are written when an epoch ends
    bucket_seconds = (off.seconds - off.stall_seconds) / num_partitions**2
    return sum(min(swap_seconds, bucket_seconds * len(each.staying)) for each in by_state[:-1])


def gain_of(off: Run, on: Run) -> float:
    return off.seconds / on.seconds - 1


def cells_of(without: float, with_it: float) -> list[str]:
    return [f"{without:.1f}", f"{with_it:.1f}", f"{without / with_it - 1:.1%}"]


def table_7(bench: Bench) -> None:
    bench.out("\nTable 7: seconds per epoch by order, and of the fastest of the paper's, the paper's / ours")
    names = ("beta", "cover", "legend, no overlap", "legend", "searched")
    rows = {}
    for graph, paper in TABLE_7.items():
        ours = {name: bench.run(graph, name) for name in names}
        rows[f"{graph}, ours"] = [f"{ours[name].seconds:.1f}" for name in names]
        rows[f"{graph}, paper"] = [f"{paper[name]:.1f}" if name in paper else "-" for name in names]
        rows[f"{graph}, of Legend's"] = [
            f"{paper[name] / paper['legend']:.2f} / {ours[name].seconds / ours['legend'].seconds:.2f}"
            if name in paper
            else f"{ours[name].seconds / ours['legend'].seconds:.2f}"
            for name in names
        ]
        bench.findings += [
            Finding(
                "Table 7",
                f"{graph}: {name} over Legend's order, time",
                ours[name].seconds / ours["legend"].seconds,
                paper[name] / paper["legend"] if name in paper else None,
                is_trait=name in paper,
                why=f"{ours[name].seconds:.1f} s, {ours[name].moved_bytes / 1e9:.1f} GB moved; Legend's "
                f"{ours['legend'].seconds:.1f} s, {ours['legend'].moved_bytes / 1e9:.1f} GB",
            )
            for name in names
            if name != "legend"
        ]
        rows[f"{graph}, GB moved"] = [f"{ours[name].moved_bytes / 1e9:.2f}" for name in names]
    seconds = {name: {graph: bench.run(graph, name).seconds for graph in TABLE_7} for name in names}
    draw(bench, "Table 7", "", "graph", "seconds per epoch", seconds)
    print_table(bench.out, list(names), rows)


def tables_5_and_10(bench: Bench) -> None:
    scale, out = bench.scale, bench.out
    batch_size, chunk_size, num_rows = scale.batch_size, scale.chunk_size, scale.num_nodes * 3 // 8
    out(
        f"\nTables 5 and 10: milliseconds of a batch of {batch_size:,} edges with Dot, by part, and of torch's autograd"
    )
    draws = np.random.default_rng(0)
    layout = PartitionLayout(scale.num_nodes, 8, DIM, 1)
    options = StepOptions(
        model="dot", loss="softmax", margin=0.0, lr=0.1, batch_size=batch_size, chunk_size=chunk_size,
        num_negatives=scale.num_negatives, reciprocal=False, n3=0.0, l2=0.0, dropout=0.0,
    )  # fmt: skip
    values = draws.normal(0, 0.01, (num_rows, DIM)).astype(np.float32)
    nodes = Table(values.copy(), np.zeros((num_rows, 1), np.float32))
    step, updater = Step(options, nodes, None), RowUpdater(torch.get_num_threads())
    plain = Autograd(values, np.zeros((1, DIM), np.float32))
    sampler = NegativeSampler(layout, (0, 1, 2), 0.0, 0)
    ends = draws.integers(0, num_rows, (2, 10 * batch_size))
    edges = EdgeRows(ends[0], None, ends[1])
    shape = 2, batch_size // chunk_size, scale.num_negatives
    grads = torch.zeros(options.most_rows, DIM)
    times: dict[str, list[float]] = {}

    def clock(name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        done = work()
        times.setdefault(name, []).append(time.perf_counter() - begin)
        return done

    for number in range(scale.num_batches + 1):
        batch = clock("edges", partial(edges.take, draws.integers(0, len(edges), batch_size)))
        negatives = clock("negatives", partial(sampler.draw, shape, batch, (0, number), layout.start))
        clock("step", partial(step.run, batch, negatives, torch.Generator().manual_seed))
        rows = np.concatenate([batch.sources, batch.destinations, negatives.reshape(-1)])
        # Gradients of 0: the same rows are sorted, summed and read, and none changes.
        clock("update", partial(updater.update, nodes.values, nodes.squares, rows, grads, 0.1, 1e-10))
        with_relations = EdgeRows(batch.sources, np.zeros(batch_size, np.int32), batch.destinations)
        clock("autograd", partial(plain.run, with_relations, negatives, chunk_size, "dot"))
    found = {name: 1e3 * median(each[1:]) for name, each in times.items()}
    whole = found["edges"] + found["negatives"] + found["step"]
    print_table(
        out,
        ["edges", "negatives", "gradients", "update", "batch"],
        {
            "ours": [
                f"{each:.1f}"
                for each in (
                    found["edges"], found["negatives"], found["step"] - found["update"], found["update"], whole,
                )
            ],
            "autograd": ["-", "-", "-", "-", f"{found['autograd']:.1f}"],
        },
    )  # fmt: skip
    paper_ratio = TABLE_10["Marius"] / TABLE_10["Legend"]
    gradients = found["autograd"] / found["step"]
    bench.findings += [
        Finding(
            "Table 5",
            f"milliseconds of a batch of {batch_size:,} edges on the CPU",
            whole,
            less_is_better=True,
            why=f"paper, a GPU, 100,000 edges: {TABLE_5['Legend']} ms",
        ),
        Finding("Table 10", "gradients by autograd (for Marius) over ours, time", gradients, paper_ratio),
    ]
    out("the paper, TW, per batch: " + ", ".join(f"{name} {each} ms" for name, each in TABLE_5.items()))
    out("the paper, TW, its gradients: " + ", ".join(f"{name} {each} ms" for name, each in TABLE_10.items()))


def figure_8(bench: Bench) -> None:
    bench.out("\nFigure 8: how busy the processor is over an epoch (in the paper the GPU, on TW)")
    computing = "the stand-in computes" if bench.step_seconds else "the cores are busy"
    drawn: dict[str, dict[str, float]] = {}
    for graph in TABLE_6:
        for name in ("beta, no overlap", "beta", "cover", "legend, no overlap", "legend", "searched"):
            run = bench.run(graph, name)
            # A stand-in holds no core: its utilisation is all but the time that waits for partitions.
            shares = [1 - run.stall_seconds / run.seconds] if bench.step_seconds else run.busy
            share = fmean(shares) if shares else float("nan")
            paper = {"legend": FIGURE_8["Legend"] / 100}.get(name) if graph == "TW" else None
            claim = f"{graph}, {name}: share of the epoch in which {computing}"
            bench.findings.append(Finding("Figure 8", claim, share, paper))
            drawn.setdefault(name, {})[graph] = share
            bench.out(f"{graph} {name:20} {share:6.1%} {sparkline(run.busy) if run.busy else ''}")
    draw(bench, "Figure 8", "", "graph", f"share of the epoch in which {computing}", drawn)
    bench.out("the paper: " + ", ".join(f"{name} {share} %" for name, share in FIGURE_8.items()))


EXPERIMENTS = {
    "table8": table_8,
    "table6": table_6,
    "table7": table_7,
    "table5": tables_5_and_10,
    "figure8": figure_8,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="smaller graphs: minutes")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where graphs and runs are kept: 6 GB")
    add_trainer_option(parser, CPU_TRAINER)
    add_options(parser, EXPERIMENTS)
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    arguments.dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments.dir, QUICK if arguments.quick else WHOLE, arguments.step_seconds, out)
    trainer = name_trainer(arguments.step_seconds, CPU_TRAINER)
    run_experiments("paper_legend", EXPERIMENTS, bench, arguments, trainer)
    if arguments.json:
        print_findings("paper_legend", bench.findings, trainer=trainer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
