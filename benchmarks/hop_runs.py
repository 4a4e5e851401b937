"""Runs that benchmarks/prepropagation.py measures, each in its own process (see turns.take_turn).

Tables have random values: the costs of reads and products do not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop._native import BufferPool, File
from diskhop.derived.clean import TABLES_FILE
from diskhop.hops.read.order import Shuffle
from diskhop.hops.read.placement import Place
from diskhop.hops.read.strips import REQUEST_BYTES
from diskhop.hops.tables import (
    HopTables,
    TableFile,
    TableOperator,
    TableShape,
    TableSum,
    encode_hop_tables,
    open_hop_tables,
    table_names,
)
from diskhop.io.engine import open_engine
from diskhop.loaders.hops import HopLoader
from diskhop.nn.matmul.products import Products
from diskhop.nn.models import Hoga, Sgc, Sign, fastest_products
from diskhop.system.transfers import transfers

DIM, HOPS, NUM_CLASSES, HIDDEN, BATCH_SIZE = 128, 3, 47, 256, 8000
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Way:
    """A loader, and the model trained with it ('' for none). which: tables, None for all. threads: of the model."""

    place: Place
    shuffle: Shuffle
    memory_bytes: int
    which: tuple[int, ...] | None = None
    num_buffers: int = 2
    model: str = ""
    epochs: int = 1
    threads: int = 1


def make_tables(folder: Path, num_rows: int) -> HopTables:
    """Write tables of labelled rows, or open existing ones."""
    operators = (TableOperator(name="sign", parameters={}),)
    shape = TableShape(num_rows=num_rows, dim=DIM, dtype="float32", tile_columns=DIM)
    if (folder / TABLES_FILE).exists():
        return open_hop_tables(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, name in enumerate(table_names(operators, HOPS)):
        draws, sums = np.random.default_rng(number), TableSum()
        with (folder / name).open("wb") as file:
            for start in range(0, num_rows, _ROWS_AT_ONCE):
                values = draws.standard_normal((min(_ROWS_AT_ONCE, num_rows - start), DIM), np.float32)
                is_last = start + _ROWS_AT_ONCE >= num_rows
                padding = bytes(shape.num_bytes - file.tell() - values.nbytes if is_last else 0)
                content = values.tobytes() + padding
                sums.add(file.tell(), np.frombuffer(content, np.uint8))
                file.write(content)
        files.append(TableFile(name=name, num_bytes=shape.num_bytes, checksum=sums.checksum))
    tables = HopTables(
        path=folder,
        dataset_hash="0123456789abcdef",
        operators=operators,
        hops=HOPS,
        shape=shape,
        files=tuple(files),
        num_nodes=num_rows,
        rows=None,
    )
    (folder / TABLES_FILE).write_bytes(encode_hop_tables(tables))
    return open_hop_tables(folder)


def read_files(paths: list[Path], depth: int, stages: dict[str, float]) -> None:
    """Read files from front to back with requests like the loader's, `depth` of them in flight: the disk alone."""
    engine, pool = open_engine("auto").engine, BufferPool(0)
    buffer = pool.take(depth * REQUEST_BYTES)
    buffer[:] = 0
    tickets: list[int] = []
    begin = time.perf_counter()
    for path in paths:
        file = File(str(path), "read")
        for offset in range(0, file.num_bytes, REQUEST_BYTES):
            if len(tickets) == depth:
                engine.wait(tickets.pop(0))
            place = offset // REQUEST_BYTES % depth * REQUEST_BYTES
            num_bytes = min(REQUEST_BYTES, file.num_bytes - offset)
            arrays = (np.array([value], np.uint64) for value in (offset, num_bytes, place))
            offsets, sizes, places = arrays
            tickets.append(engine.submit_read(file, offsets, sizes, buffer, places))
        while tickets:
            engine.wait(tickets.pop(0))
    stages["seconds"] = time.perf_counter() - begin
    stages["bytes"] = sum(path.stat().st_size for path in paths)


def run_loader(folder: Path, way: Way, stages: dict[str, float]) -> None:
    """Run epochs over all rows, with a model to train if there is one, and measure the median seconds per epoch."""
    tables = open_hop_tables(folder)
    torch.set_num_threads(way.threads)
    loader = HopLoader(
        tables,
        batch_size=BATCH_SIZE,
        which=way.which,
        place=way.place,
        shuffle=way.shuffle,
        memory=way.memory_bytes,
        num_buffers=way.num_buffers,
    )
    step = _make_step(way.model, len(loader.which), tables.num_rows) if way.model else None
    seconds, stalled, computing = [], [], []
    with loader:
        if step is not None:
            _warm_up(loader, step)
        before = transfers().bytes_read
        for _ in range(way.epochs):
            begin = time.perf_counter()
            stall_seconds = step_seconds = 0.0
            for batch in loader:
                stall_seconds += batch.stall_seconds
                if step is not None:
                    begun = time.perf_counter()
                    step(batch.x, batch.rows)
                    step_seconds += time.perf_counter() - begun
            seconds.append(time.perf_counter() - begin)
            stalled.append(stall_seconds / seconds[-1])
            computing.append(step_seconds / seconds[-1])
        stages["bytes_read"] = (transfers().bytes_read - before) / way.epochs
        stages["held_bytes"] = loader.budget.peak_bytes
    middle = sorted(range(way.epochs), key=seconds.__getitem__)[way.epochs // 2]
    stages["seconds"] = seconds[middle]
    stages["stalled"], stages["computing"] = stalled[middle], computing[middle]


class _Items(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Rows of tables one by one, in the simplest way."""

    def __init__(self, paths: list[Path], num_rows: int) -> None:
        self._tables = [np.memmap(path, np.float32, "r", shape=(num_rows, DIM)) for path in paths]

    def __len__(self) -> int:
        return len(self._tables[0])

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.stack([torch.from_numpy(np.array(table[row])) for table in self._tables]), row


def run_items(
    paths: list[Path], num_rows: int, workers: int, num_batches: int, way: Way, stages: dict[str, float]
) -> None:
    """Run a few batches of PyTorch's DataLoader, which reads item by item in random order, with a model."""
    torch.set_num_threads(way.threads)
    items = _Items(paths, num_rows)
    loader = torch.utils.data.DataLoader(items, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)
    step = _make_step(way.model, len(paths), num_rows) if way.model else None
    batches: Iterator[Any] = iter(loader)
    begin = time.perf_counter()
    for _ in range(num_batches):
        x, rows = next(batches)
        if step is not None:
            step(x.transpose(0, 1).contiguous(), rows.numpy())
    stages["seconds"] = (time.perf_counter() - begin) / num_batches
    stages["bytes_read"] = transfers().bytes_read


def _make_step(model_name: str, num_tables: int, num_rows: int) -> Any:
    """Return one step of training: (x, rows) -> None."""
    torch.manual_seed(0)
    products = fastest_products()
    model = make_model(model_name, num_tables, products)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    labels = torch.from_numpy(np.random.default_rng(9).integers(0, NUM_CLASSES, num_rows))

    def step(x: Tensor, rows: np.ndarray) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels[torch.from_numpy(rows)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def make_model(name: str, num_tables: int, products: Products) -> nn.Module:
    """Return a model with random parameters: sgc, sign or hoga."""
    if name == "sgc":
        return Sgc(DIM, NUM_CLASSES, products=products)
    if name == "sign":
        return Sign(DIM, num_tables, HIDDEN, NUM_CLASSES, 2, products=products)
    return Hoga(DIM, num_tables, HIDDEN, NUM_CLASSES, 2, products=products)


def _warm_up(loader: HopLoader, step: Any) -> None:
    """Run the first steps untimed: they load code and allocate memory of the libraries."""
    with loader.run(loader.rows[: 3 * BATCH_SIZE]) as batches:
        for batch in batches:
            step(batch.x, batch.rows)
