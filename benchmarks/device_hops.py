"""HopLoader on a GPU: rows per second from tables on the device, in memory and on disk, and training of SIGN and HOGA.

    python benchmarks/device_hops.py [--dir DIR] [--rows 1000000] [--models sign,hoga]

Tables of 4 hops x 128 float32 columns with random values are made in DIR. Lines are of the loader alone, and with a
model. Beside them: index_select of the same random batches from the tables on the device, without a
loader. The GPU waits between the end of a step and the begin of the next one, by events of CUDA on the stream that
computes. --device cpu runs the code without a GPU, for memory and disk, and measures nothing of interest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from device_runs import LEAST_BATCHES, LR, WARM_UP_BATCHES, Step, measure, require_batches
from devices import NO_GPU, add_device_options, is_there, moment, name_of, take_turn_on
from diskhop.hops.read.placement import Place
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.loaders.hops import HopLoader
from diskhop.nn.models import fastest_products
from diskhop.system.transfers import transfers
from hop_runs import BATCH_SIZE, NUM_CLASSES, make_model, make_tables
from turns import Turn, drop_from_page_cache
from workloads import DEFAULT_FOLDER

# The tables on the device, without a loader.
INDEX_SELECT = "index_select"
MODELS = "sign,hoga"
_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A line of the table. place: of the tables, or INDEX_SELECT. model: '' for the loader alone."""

    place: Place | str
    model: str
    device: str
    batch_size: int
    epochs: int


def run(folder: Path, way: Way, stages: dict[str, float]) -> None:
    """Run epochs over all rows; records seconds of the median epoch, steps, and bytes read per epoch."""
    tables, device = open_hop_tables(folder), torch.device(way.device)
    for table in tables.files:
        drop_from_page_cache(folder / table.name)
    seconds: list[float] = []
    steps: list[Step] = []
    with ExitStack() as opened:
        epoch = _open(tables, way, device, opened)
        step = _step(tables, way, device) if way.model else None
        before = transfers().bytes_read
        for _ in range(way.epochs):
            begun = time.perf_counter()
            for x, rows in epoch():
                if step is not None:
                    begin = moment(device)
                    step(x, rows)
                    steps.append(Step(begin, moment(device)))
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - begun)
        stages["bytes read"] = (transfers().bytes_read - before) / way.epochs
    # Kernels are compiled, and libraries loaded, in the first epoch.
    stages["epoch seconds"] = statistics.median(seconds[1:] or seconds)
    stages["rows"], stages["row bytes"] = tables.num_rows, len(tables.files) * tables.shape.row_bytes
    if steps:
        measure(steps, stages, len(steps) // way.epochs if way.epochs > 1 else WARM_UP_BATCHES)


def _open(tables: HopTables, way: Way, device: torch.device, opened: ExitStack) -> Callable[[], Iterator[Any]]:
    """Return what yields the batches of an epoch: (tables, batch, dim) on the device, and rows of the tables."""
    if way.place == INDEX_SELECT:
        shape = tables.shape
        x = torch.empty(len(tables.files), shape.num_rows, shape.dim, device=device).normal_()

        def select() -> Iterator[tuple[Tensor, Tensor]]:
            order = torch.randperm(shape.num_rows, device=device)
            for start in range(0, len(order), way.batch_size):
                rows = order[start : start + way.batch_size]
                yield x.index_select(1, rows), rows

        return select
    table_bytes = len(tables.files) * tables.shape.num_bytes
    is_device = device.type == "cuda"
    loader = opened.enter_context(
        HopLoader(
            tables,
            batch_size=way.batch_size,
            place=way.place,  # type: ignore[arg-type]
            memory=_MEMORY_BYTES + (0 if way.place == "disk" else table_bytes),
            device=device if is_device else None,
            device_memory=2 * table_bytes + _MEMORY_BYTES if is_device else None,
        )
    )

    def load() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in loader:
            yield batch.x, torch.from_numpy(batch.rows)

    return load


def _step(tables: HopTables, way: Way, device: torch.device) -> Callable[[Tensor, Tensor], None]:
    """Return one step of training."""
    torch.manual_seed(0)
    model = make_model(way.model, len(tables.files), fastest_products()).to(device)
    optimizer = torch.optim.Adam(model.parameters(), LR, fused=True)
    labels = torch.randint(0, NUM_CLASSES, (tables.num_rows,), device=device)

    def step(x: Tensor, rows: Tensor) -> None:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), labels[rows.to(device)])
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def shown(way: Way, turn: Turn, best_rate: float | None) -> str:
    """Return a line of the table. best_rate: bytes per second of index_select alone; None: not measured."""
    stages = turn.stages
    rows_per_second = stages["rows"] / stages["epoch seconds"]
    rate = rows_per_second * stages["row bytes"]
    of_best = f"{rate / best_rate:.0%}" if best_rate and not way.model else ""
    seconds, waits = "", ""
    if way.model:
        seconds = f"{1000 * stages['seconds']:.2f} ({1000 * stages['least']:.2f}..{1000 * stages['most']:.2f})"
        waits = f"{stages['waiting']:.1%}"
    return (
        f"{way.place:14}{way.model or 'loader alone':14}{stages['epoch seconds']:>9.3f}{rows_per_second / 1e6:>9.2f}"
        f"{rate / 1e9:>9.2f}{of_best:>9}{seconds:>22}{waits:>11}{stages['bytes read'] / 1e6:>10,.0f}"
        f"{turn.peak_rss_bytes / 1e6:>10,.0f}{stages['device bytes'] / 1e6:>12,.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_options(parser)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the tables are, or are made")
    parser.add_argument("--rows", type=int, help="of the tables; default: 1000000; quick: 100000")
    parser.add_argument("--models", help=f"by commas; default: {MODELS}; quick: sign")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--epochs", type=int, default=3, help="the first one is not timed")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if not is_there(device):
        print(NO_GPU)
        return 0
    num_rows = options.rows or (100_000 if options.quick else 1_000_000)
    smaller = f"--batch-size {num_rows // LEAST_BATCHES} or less"
    require_batches(parser, -(-num_rows // options.batch_size), smaller)
    models = (options.models or ("sign" if options.quick else MODELS)).split(",")
    folder = options.dir / f"hops-{num_rows}"
    tables = make_tables(folder, num_rows)

    def out(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    out(
        f"{len(tables.files)} tables of {num_rows:,} rows x {tables.shape.dim} float32, batch {options.batch_size}; "
        f"on {name_of(device)}"
    )
    out(
        f"{'':28}{'s/epoch':>9}{'M rows/s':>9}{'GB/s':>9}{'of best':>9}{'ms/batch (min..max)':>22}{'GPU waits':>11}"
        f"{'read MB':>10}{'peak MB':>10}{'on GPU MB':>12}"
    )
    places = (INDEX_SELECT, *(("device",) if device.type == "cuda" else ()), "memory", "disk")
    best_rate = None
    found: list[dict[str, Any]] = []
    for model in ("", *models):
        for place in places:
            way = Way(
                place=place, model=model, device=options.device, batch_size=options.batch_size, epochs=options.epochs
            )
            turn = take_turn_on(device, run, folder, way)
            if place == INDEX_SELECT and not model:
                best_rate = turn.stages["rows"] * turn.stages["row bytes"] / turn.stages["epoch seconds"]
            out(shown(way, turn, best_rate))
            found.append({"place": place, "model": model, **asdict(turn)})
    if options.json:
        print(json.dumps({"benchmark": "device_hops", "card": name_of(device), "rows": num_rows, "ways": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
