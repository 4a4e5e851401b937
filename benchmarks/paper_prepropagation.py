"""The comparisons of the PP-GNN paper at a laptop's scale: its figures next to ours.

    python benchmarks/paper_prepropagation.py [--quick] [--only EXPERIMENT,...] [--source ../shared/data] [--dir FOLDER]

Nothing is claimed; results that the paper only plots are marked as plotted only. Accuracy is measured on Open English
WordNet (107,525 nodes, 45 classes, 256 features), where the paper has ogbn-products, pokec and wiki: one seed of the
presets, with the same number of epochs for every model. SAGE and GAT sample neighbours with the paper's counts
(appendix A), PP models take `sign` tables of edges both ways; all have the same number of hops or layers. All train on
the CPU, the paper's on a GPU.

Loading is measured on tables of random values in batches of 8000: the ladder of figure 9, with the tables in memory,
and the places of appendix H, without the device's memory. A DataLoader reads its items from the page cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np

from diskhop.dataset.dataset import Dataset
from diskhop.hops.read.placement import loader_bytes
from diskhop.hops.tables import HopTables
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.start import train
from diskhop.system.memory import default_threads
from hop_runs import BATCH_SIZE, Way, make_tables, run_items, run_loader
from paper_results import Finding, Plot, add_options, draw, leave_out, print_findings, run_experiments
from papers import print_table
from turns import take_turn
from workloads import DEFAULT_FOLDER

GRAPH, NODES_FILE, WHOLE_PRESET_EPOCHS = "oewn", "data.npz", 20
PP_MODELS, MP_MODELS = ("sgc", "sign", "hoga"), ("sage", "gat")
# Appendix A: neighbours drawn per layer.
FANOUTS = {"sage": (15, 10, 5, 3, 3, 3), "gat": (10, 10, 10, 5, 5, 5)}
# Share of the peak validation accuracy at which a model counts as converged (section 3.3).
CONVERGED = 0.99
ITEM_WORKERS, ITEM_BATCHES = 2, 3
# Section 6.1, wiki: SIGN's epochs per second over SAGE's, by hops. Table 7, wiki: seconds of preparing 6 hops over
# those of a run of 400 epochs with HOGA.
SIGN_OVER_SAGE, PREPARING_SHARE, EPOCHS_OF_A_RUN = {2: 9, 6: 28}, 0.11, 400
# Appendix I, graphs that fit in the GPU's memory: the fewest times as many bytes as PP models read, of 8 to 26.
LEAST_OVER_PP_BYTES = 8
FIGURE_3_HOPS = 4
# Table 3, papers100M, one GPU: test accuracy and epochs per second, by layers or hops.
TABLE_3 = {
    "SAGE (DGL)": {2: (64.43, 0.12), 3: (65.79, 0.04), 4: (66.44, 0.02)},
    "SIGN": {2: (65.70, 2.94), 3: (66.29, 2.92), 4: (66.36, 2.86)},
    "HOGA": {2: (66.19, 0.53), 3: (66.65, 0.41), 4: (66.86, 0.36)},
}
# Table 6, pokec, 4 hops: test accuracy by rows per chunk.
TABLE_6 = {
    "hoga": {1: 81.79, 1000: 81.35, 2000: 81.85, 4000: 81.67, 8000: 81.43},
    "sign": {1: 80.80, 1000: 80.88, 2000: 80.90, 4000: 80.83, 8000: 80.82},
}
# Table 7: seconds before training, and their share of a run's.
TABLE_7 = {
    "ogbn-products": (51.8, "53 %"),
    "pokec": (27.59, "3 %"),
    "wiki": (122.79, "11 %"),
    "igb-medium": (386.63, "11 %"),
    "ogbn-papers100M": (507.8, "90 %"),
    "igb-large": (4521.5, "28 %"),
}
# Section 6.3: gain of each step of figure 9, over the three graphs and models.
FIGURE_9 = {"one index operation": 3.3, "and a second buffer": 1.9, "and chunks": 2.4}
FIGURE_9_TOTAL = 15
# Appendix H: rate of storage over that of the host's memory, by chunks and by rows.
STORAGE_OF_CHUNKS, STORAGE_OF_ROWS = 0.41, 1.02


class Scale(NamedTuple):
    """Sizes of runs. chunks: rows per chunk; 1 shuffles single rows."""

    hops: tuple[int, ...]
    epochs: int
    chunks: tuple[int, ...]
    table_rows: int
    load_epochs: int


WHOLE = Scale((2, 3, 4, 5, 6), WHOLE_PRESET_EPOCHS, (1, 8, 64, 512, 1000, 8000), 400_000, 3)
QUICK = Scale((2, 4), 4, (1, 64, 8000), 50_000, 1)


class Trained(NamedTuple):
    """Result of a run.

    test, valid: accuracy in percent, at its peak for validation.
    stalled: share of an epoch that waited for data.
    epoch_bytes: of an epoch's batches.
    prepared_seconds: before the first run on its tables.
    """

    test: float
    valid: float
    stalled: float
    epoch_seconds: float
    converged_epoch: int
    epoch_bytes: float
    prepared_seconds: float
    run_seconds: float


class Bench:
    """Measures loading and trains on one graph, both made when they are first needed, and keeps the results.

    source: folder of the graph. folder: of tables. scratch: of what is removed with it.
    """

    def __init__(self, source: Path, folder: Path, scratch: Path, scale: Scale, out: Callable[[str], None]) -> None:
        self.scale = scale
        self.out = out
        self.findings: list[Finding] = []
        self.plots: list[Plot] = []
        self._source = source
        self._folder = folder
        self._scratch = scratch
        self._prepared_seconds: dict[int, float] = {}

    @cached_property
    def loading(self) -> Loading:
        """Tables of random values."""
        num_rows = self.scale.table_rows
        return Loading(make_tables(self._folder / f"tables-{num_rows}", num_rows), self.scale)

    @cached_property
    def _dataset(self) -> Dataset:
        return import_graph(self._source, self._scratch / GRAPH, engine=open_engine("auto").engine)

    @cached_property
    def _shuffled(self) -> Dataset:
        """The graph with its nodes in random order: the source has them by class, of which a chunk would hold few."""
        source = self._scratch / "source"
        source.mkdir()
        shuffle_nodes(self._source / NODES_FILE, source / NODES_FILE)
        return import_graph(source, self._scratch / f"{GRAPH}-shuffled", engine=open_engine("auto").engine)

    def train(self, model: str, hops: int, *, is_shuffled: bool = False, **options: Any) -> Trained:
        """Train once; the first run with a number of hops makes its tables. is_shuffled: with nodes in random order."""
        if model in PP_MODELS:
            options |= {"hops": hops, "direction": "both"}
        else:
            fanout = FANOUTS[model][:hops]
            heads = {"hidden": 128, "heads": 4} if model == "gat" else {}
            options |= {"layers": hops, "fanout": fanout, "eval_fanout": fanout, **heads}
        dataset = self._shuffled if is_shuffled else self._dataset
        result = train(dataset, preset=GRAPH, model=model, epochs=self.scale.epochs, **options).result
        if model in PP_MODELS:
            seconds = sum(step["seconds"] for step in result.get("preparation", []))
            self._prepared_seconds[hops] = max(seconds, self._prepared_seconds.get(hops, 0.0))
        epochs = result["epochs"]
        peak = max(epoch["valid"] for epoch in epochs)
        return Trained(
            test=100 * result["test"][result["metric"]],
            valid=100 * peak,
            stalled=median(epoch["stall_seconds"] / epoch["seconds"] for epoch in epochs),
            epoch_seconds=median(epoch["seconds"] for epoch in epochs),
            converged_epoch=1 + next(n for n, epoch in enumerate(epochs) if epoch["valid"] >= CONVERGED * peak),
            epoch_bytes=median(epoch["bytes_needed"] for epoch in epochs),
            prepared_seconds=self._prepared_seconds.get(hops, 0.0) if model in PP_MODELS else 0.0,
            run_seconds=sum(epoch["seconds"] for epoch in epochs),
        )


def shuffle_nodes(source: Path, shuffled: Path) -> None:
    """Copy a graph's arrays with its nodes in random order."""
    arrays = np.load(source)
    order = np.random.default_rng(0).permutation(len(arrays["y"]))
    place = np.argsort(order)
    ids = {name: place[arrays[name]] for name in ("edge_index", "train_idx", "val_idx", "test_idx")}
    np.savez(shuffled, x=arrays["x"][order], y=arrays["y"][order], **ids)


def compare_models(bench: Bench) -> None:
    """Print figures 2 to 5, 7, 10 and 11, tables 2 and 7 and appendix I: views of the same runs."""
    bench.out(f"\nFigures 2 to 5, 7, 10, 11, tables 2, 7, appendix I: {GRAPH}, {bench.scale.epochs} epochs, one seed")
    heads = ["test %", "epochs/s", "99 % of peak", "MB per epoch", "s before", "of the run"]
    rows: dict[str, list[str]] = {}
    runs: dict[tuple[str, int], Trained] = {}
    for model in (*PP_MODELS, *MP_MODELS):
        for hops in bench.scale.hops:
            run = runs[model, hops] = bench.train(model, hops)
            name = f"{model}, {hops}"
            bench.findings += [
                Finding("Figure 2", f"{name}: test accuracy, %", run.test),
                Finding("Figure 4", f"{name}: epochs per second", 1 / run.epoch_seconds),
                Finding("Figure 5", f"{name}: share of the epoch that waits for data", run.stalled),
                Finding(
                    "Figure 3" if hops == FIGURE_3_HOPS else "Figure 10",
                    f"{name}: epochs to 99% of the peak",
                    run.converged_epoch,
                    less_is_better=True,
                ),
            ]
            if model in PP_MODELS:
                share = run.prepared_seconds / (EPOCHS_OF_A_RUN * run.epoch_seconds)
                of_paper = PREPARING_SHARE if (model, hops) == ("hoga", bench.scale.hops[-1]) else None
                claim = f"{name}: preparing over {EPOCHS_OF_A_RUN} epochs of training, time"
                why = f"{run.prepared_seconds:.1f} s, an epoch {run.epoch_seconds:.2f}"
                bench.findings.append(Finding("Tables 2 and 7", claim, share, of_paper, less_is_better=True, why=why))
            before = [f"{run.prepared_seconds:.1f}", f"{run.prepared_seconds / run.run_seconds:.0%}"]
            rows[f"{model}, {hops} {'hops' if model in PP_MODELS else 'layers'}"] = [
                f"{run.test:.2f}",
                f"{1 / run.epoch_seconds:.2f}",
                f"epoch {run.converged_epoch}",
                f"{run.epoch_bytes / 1e6:,.0f}",
                *(before if model in PP_MODELS else ["", ""]),
            ]
            print(f"  {model}, {hops}: {run}", file=sys.stderr, flush=True)
    print_table(bench.out, heads, rows)
    _draw_models(bench, runs)
    for hops in bench.scale.hops:
        sign, sage = runs["sign", hops], runs["sage", hops]
        rate, gain = sage.epoch_seconds / sign.epoch_seconds, sign.test - sage.test
        bench.findings += [
            Finding(
                "Figures 7 and 11",
                f"SIGN over SAGE, epochs per second, {hops} hops",
                rate,
                SIGN_OVER_SAGE.get(hops),
                why=f"{sign.epoch_seconds:.2f} s, {sign.stalled:.0%} of it waiting for data, and "
                f"{sage.epoch_seconds:.2f} s, {sage.stalled:.0%}: in memory both compute, and SIGN's rows have "
                f"{hops + 1} times the columns",
            ),
            Finding("Figures 7 and 11", f"SIGN minus SAGE, test accuracy, points, {hops} hops", gain),
            Finding(
                "Appendix I",
                f"SAGE over SIGN, bytes of an epoch, {hops} hops (paper: 8 to 26)",
                sage.epoch_bytes / sign.epoch_bytes,
                LEAST_OVER_PP_BYTES,
                why=f"{sage.epoch_bytes / 1e6:,.0f} and {sign.epoch_bytes / 1e6:,.0f} MB; a batch of SAGE requests "
                "a node once, however many of its seeds reach it, and the graph has 107,525",
            ),
        ]
    bench.out("The paper, table 3 (papers100M, one GPU): test accuracy, epochs per second")
    paper = {name: [f"{test:.2f}, {rate:.2f}" for test, rate in of.values()] for name, of in TABLE_3.items()}
    print_table(bench.out, [f"{hops} hops" for hops in (2, 3, 4)], paper)
    bench.out("The paper: on wiki SIGN is 9 times as fast as SAGE with 2 layers, 28 times with 6; 1 to 2 orders of")
    bench.out("magnitude less is moved; accuracies and convergence of the three middle graphs are plotted only.")
    shares = ", ".join(f"{name} {seconds:g} s ({share})" for name, (seconds, share) in TABLE_7.items())
    bench.out(f"The paper, table 7, before training and of a run of HOGA: {shares}")


def _draw_models(bench: Bench, runs: Mapping[tuple[str, int], Trained]) -> None:
    """Draw the models by hops: accuracy, epoch time, waiting, convergence, and what they are together."""
    for figure, part, y, value in (
        ("Figure 2", "", "test accuracy, %", lambda run: run.test),
        ("Figure 4", "", "seconds per epoch", lambda run: run.epoch_seconds),
        ("Figure 5", "", "share of the epoch that waits for data", lambda run: run.stalled),
        ("Figure 10", "", "epochs to 99% of the peak", lambda run: float(run.converged_epoch)),
        ("Figures 7 and 11", "efficiency", "epochs per second", lambda run: 1 / run.epoch_seconds),
        ("Figures 7 and 11", "accuracy", "test accuracy, %", lambda run: run.test),
        ("Appendix I", "", "MB of an epoch", lambda run: run.epoch_bytes / 1e6),
    ):
        series: dict[str, dict[str, float]] = {}
        for (model, hops), run in runs.items():
            series.setdefault(model, {})[f"{hops}"] = value(run)
        kind = "lines" if figure in ("Figure 2", "Figure 10", "Figures 7 and 11") else "bars"
        is_logarithmic = y in ("MB of an epoch", "seconds per epoch", "epochs per second")
        draw(bench, figure, part, "hops or layers", y, series, kind=kind, is_logarithmic=is_logarithmic)


def compare_chunks(bench: Bench) -> None:
    """Print table 6 and figure 12: accuracy by rows per chunk."""
    bench.out(f"\nTable 6, figure 12: test accuracy by rows of a chunk ({GRAPH}, its nodes in random order)")
    rows = {}
    peaks: dict[str, dict[str, float]] = {}
    for model in ("sign", "hoga"):
        for hops in bench.scale.hops:
            tests = []
            for chunk in bench.scale.chunks:
                options = {"shuffle": "rows"} if chunk == 1 else {"shuffle": "chunks", "chunk_rows": chunk}
                run = bench.train(model, hops, is_shuffled=True, **options)
                name = f"{model}, {hops} hops, chunks of {chunk}"
                bench.findings += [
                    Finding("Table 6", f"{name}: test accuracy, %", run.test),
                    Finding("Figure 12", f"{name}: peak of validation accuracy, %", run.valid),
                ]
                tests.append(run.test)
                peaks.setdefault(f"chunks of {chunk}", {})[f"{model}, {hops}"] = run.valid
            rows[f"{model}, {hops} hops"] = [f"{test:.2f}" for test in tests]
            claim = f"{model}, {hops} hops: accuracy by rows less that by chunks, most points (paper: below .5)"
            most = max(tests[0] - test for test in tests)
            bench.findings.append(Finding("Table 6", claim, most, 0.5, less_is_better=True))
    draw(bench, "Figure 12", "", "model, hops", "peak of validation accuracy, %", peaks)
    print_table(bench.out, [str(chunk) for chunk in bench.scale.chunks], rows)
    for model, of_chunk in TABLE_6.items():
        bench.out(
            f"The paper, pokec, {model}: " + ", ".join(f"{chunk}: {test:.2f}" for chunk, test in of_chunk.items())
        )


class Loading:
    """Measures epochs of models on tables in memory or on disk."""

    def __init__(self, tables: HopTables, scale: Scale) -> None:
        self.tables = tables
        self._scale = scale

    def seconds(self, model: str, place: Any, shuffle: Any, num_buffers: int = 2) -> float:
        """Return the seconds per epoch."""
        which = (self.tables.num_tables - 1,) if model == "sgc" else None
        num_tables = len(which) if which else self.tables.num_tables
        reserved = loader_bytes(self.tables.shape, num_tables, BATCH_SIZE, place)
        way = Way(
            place=place,
            shuffle=shuffle,
            memory_bytes=sum(reserved.values()) + 32 * self.tables.num_rows,
            which=which,
            num_buffers=num_buffers,
            model=model,
            epochs=self._scale.load_epochs,
            threads=default_threads(),
        )
        return take_turn(run_loader, self.tables.path, way).stages["seconds"]

    def item_seconds(self, model: str) -> float:
        """Return the seconds per epoch of PyTorch's DataLoader, estimated from a few batches."""
        last = self.tables.num_tables - 1
        paths = [self.tables.table_path(table) for table in ([last] if model == "sgc" else range(last + 1))]
        way = Way(place="memory", shuffle="rows", memory_bytes=0, model=model, threads=default_threads())
        for path in paths:
            path.read_bytes()
        turn = take_turn(run_items, paths, self.tables.num_rows, ITEM_WORKERS, ITEM_BATCHES, way)
        return turn.stages["seconds"] * self.tables.num_rows / BATCH_SIZE


def _by_model(ratios: Sequence[float]) -> str:
    return ", ".join(f"{model} {ratio:.1f}" for model, ratio in zip(PP_MODELS, ratios, strict=True))


def climb(bench: Bench) -> None:
    """Print figures 9 and 14, and appendix H."""
    loading, out = bench.loading, bench.out
    num_rows = loading.tables.num_rows
    out(f"\nFigure 9: seconds per epoch of {num_rows:,} rows, {loading.tables.num_tables} tables in memory")
    heads = ["item by item", *FIGURE_9, "all in all"]
    rows, steps, from_disk = {}, [], {}
    drawn: dict[str, dict[str, float]] = {name: {} for name in ("item by item", *FIGURE_9)}
    for model in PP_MODELS:
        seconds = [
            loading.item_seconds(model),
            loading.seconds(model, "memory", "rows", num_buffers=1),
            loading.seconds(model, "memory", "rows"),
            loading.seconds(model, "memory", "chunks"),
        ]
        from_disk[model] = (seconds[2], seconds[3], loading.seconds(model, "disk", "chunks"))
        steps.append([before / after for before, after in pairwise(seconds)])
        rows[model] = [*(f"{each:.2f}" for each in seconds), f"{seconds[0] / seconds[-1]:.1f} times"]
        for name, each in zip(drawn, seconds, strict=True):
            drawn[name][model] = each / seconds[0]
    draw(bench, "Figure 9", "", "model", "epoch time, item by item = 1", drawn)
    mean = [geometric_mean(of_step) for of_step in zip(*steps, strict=True)]
    total = mean[0] * mean[1] * mean[2]
    totals = _by_model([of_step[0] * of_step[1] * of_step[2] for of_step in steps])
    said = f"{totals}: on our cores computing takes the most of SIGN's and HOGA's epochs, and no step shortens it"
    rows["each step, mean"] = ["", *(f"{each:.1f} times" for each in mean), f"{total:.1f} times"]
    rows["the paper's"] = ["", *(f"{each:.1f} times" for each in FIGURE_9.values()), f"{FIGURE_9_TOTAL} times"]
    print_table(out, heads, rows)

    out("\nFigure 14, appendix H: rate of an epoch from disk in chunks, over that from memory")
    rows = {
        model: [f"{chunks / disk:.2f}", f"{by_rows / disk:.2f}"] for model, (by_rows, chunks, disk) in from_disk.items()
    }
    ratios = [[chunks / disk, by_rows / disk] for by_rows, chunks, disk in from_disk.values()]
    rows["mean"] = [f"{geometric_mean(of):.2f}" for of in zip(*ratios, strict=True)]
    rows["the paper's"] = [f"{STORAGE_OF_CHUNKS:.2f}", f"{STORAGE_OF_ROWS:.2f}"]
    print_table(out, ["in chunks", "row by row"], rows)
    in_chunks, row_by_row = (geometric_mean(of) for of in zip(*ratios, strict=True))
    places = ("memory, row by row", "memory, chunks", "disk, chunks")
    placed = {
        place: {model: times[number] / times[1] for model, times in from_disk.items()}
        for number, place in enumerate(places)
    }
    draw(bench, "Figure 14, appendix H", "", "model", "epoch time, memory in chunks = 1", placed)
    bench.findings += [
        *(
            Finding("Figure 9", f"{name}: times as fast, geometric mean", each, FIGURE_9[name], why=_by_model(of_step))
            for name, each, of_step in zip(FIGURE_9, mean, zip(*steps, strict=True), strict=True)
        ),
        Finding("Figure 9", "all steps: times as fast, geometric mean", total, FIGURE_9_TOTAL, why=said),
        *(
            Finding("Figure 14, appendix H", f"{model}: epoch {place} over that from memory in chunks", each / chunks)
            for model, (by_rows, chunks, disk) in from_disk.items()
            for place, each in (("from memory row by row", by_rows), ("from disk in chunks", disk))
        ),
        Finding(
            "Figure 14, appendix H", "rate from disk over that from memory, in chunks", in_chunks, STORAGE_OF_CHUNKS
        ),
        Finding(
            "Figure 14, appendix H", "rate from disk over that from memory, row by row", row_by_row, STORAGE_OF_ROWS
        ),
    ]


EXPERIMENTS = {"loading": climb, "models": compare_models, "chunks": compare_chunks}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two depths, few epochs, small tables: minutes")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of tables, generated if missing")
    add_options(parser, EXPERIMENTS)
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    source = arguments.source / GRAPH
    leave_out(arguments, ("models", "chunks"), source, out)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(source, arguments.dir, Path(scratch), QUICK if arguments.quick else WHOLE, out)
        run_experiments("paper_prepropagation", EXPERIMENTS, bench, arguments)
    if arguments.json:
        print_findings("paper_prepropagation", bench.findings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
