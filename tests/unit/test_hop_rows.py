"""Hop models on all nodes: the same bits in any processes and threads, within the memory that was required first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.predict import PredictConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.errors import BudgetError
from diskhop.hops.make.prepare import plan_tables
from diskhop.hops.spec import PropagationSpec
from diskhop.hops.tables import HopTables, TableShape
from diskhop.nn.hop.hoga import Hoga
from diskhop.nn.hop.layers import HopNetwork
from diskhop.nn.hop.sign import Sign
from diskhop.nn.matmul.products import Products
from diskhop.predicting import hop_rows
from diskhop.predicting.disk import ALL_FREE
from diskhop.predicting.hop_rows import HopRows
from diskhop.predicting.hop_work import HopWork
from diskhop.predicting.row_files import RowFile
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.runs.nodes.opened import MODELS, open_classifier
from diskhop.runs.predict import tables as output_tables
from diskhop.runs.predict.tables import OutputRun
from diskhop.runs.predict.wanted import Wanted, outputs_of, sizes_of, wanted_of
from diskhop.runs.start import train
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.executing import Copies
from tests.graphs import make_dataset, threads_engine
from tests.hop_tables import write_hop_tables
from tests.runs import small_graph

PARTS = ("weight", "bias")
NUM_NODES, DIM, HIDDEN, OUTPUTS, NUM_TABLES = 9000, 33, 17, 2, 4


def build(model: str, matmul: str) -> HopNetwork:
    kind = {"sign": Sign, "hoga": Hoga}[model]
    return HopNetwork(kind(DIM, NUM_TABLES, HIDDEN, OUTPUTS, 2, products=Products(matmul)))


@pytest.fixture(scope="module")
def tables(module_folder: Path) -> tuple[Dataset, HopTables]:
    """Tables with a row for each of more nodes than the dataset has, which is not read."""
    dataset = make_dataset(module_folder / "graph")
    arrays = [np.random.default_rng(hop).random((NUM_NODES, DIM), np.float32) for hop in range(NUM_TABLES)]
    return dataset, write_hop_tables(module_folder / "tables", arrays, tile_columns=4, dataset_hash=dataset.hash)


@pytest.fixture
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranges, as few rows as four processes compute."""
    monkeypatch.setattr(RowFile, "range_rows", property(lambda file: 4096))


def rows_of(
    tables: tuple[Dataset, HopTables],
    folder: Path,
    model: str,
    matmul: str,
    *,
    threads: int,
    executor: Copies | None = None,
) -> bytes:
    """All outputs of a model with the same weights, and its hidden layer."""
    dataset, opened = tables
    torch.manual_seed(0)
    make = partial(build, model, matmul)
    tools = TaskTools(threads_engine(), executor=executor)
    dim = OUTPUTS + HIDDEN
    work = HopWork(
        shape=opened.shape,
        num_tables=NUM_TABLES,
        dim=dim,
        threads=threads,
        most_processes=tools.processes_per_machine,
    )
    rows = HopRows(
        dataset=dataset,
        tables=opened,
        which=(0, NUM_TABLES),
        network=SharedNetwork(make().eval(), make),
        num_outputs=OUTPUTS,
        hidden_dim=HIDDEN,
        work=work,
    )
    (folder / "done").mkdir(parents=True)
    budget = Budget(1 << 30)
    rows.compute(folder, folder / "done", budget, tools, silent)
    assert budget.table() == work.held_by_all
    content = (folder / "rows.bin").read_bytes()
    assert len(content) == 4 * dim * NUM_NODES
    return content


# torch's own products of matrices of few columns, and exponentials along the first axis, round by their threads.
@pytest.mark.parametrize(("model", "matmul"), [("hoga", "mkl"), ("sign", "blas")])
def test_bits_depend_on_no_threads_and_no_processes(
    tables: tuple[Dataset, HopTables], tmp_path: Path, short_ranges: None, model: str, matmul: str
) -> None:
    alone = rows_of(tables, tmp_path / "alone", model, matmul, threads=1)
    for threads in (2, 3, 4):
        assert rows_of(tables, tmp_path / f"threads {threads}", model, matmul, threads=threads) == alone
    for count, threads in ((2, 3), (3, 3), (2, 8)):
        folder, executor = tmp_path / f"{count} with {threads}", Copies(count)
        assert rows_of(tables, folder, model, matmul, threads=threads, executor=executor) == alone
        assert len(executor.parts) == count


def test_each_process_takes_just_the_memory_that_was_reserved_for_it(
    tables: tuple[Dataset, HopTables], tmp_path: Path, short_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rows_of() compares the reservations of the command with those of all processes."""
    own = list[Budget]()

    def recorded(num_bytes: int) -> Budget:
        own.append(Budget(num_bytes))
        return own[-1]

    monkeypatch.setattr(hop_rows, "Budget", recorded)
    rows_of(tables, tmp_path / "rows", "sign", "mkl", threads=3, executor=Copies(3))
    assert len(own) == 6  # each part runs twice
    assert {each.peak_bytes for each in own} == {own[0].total_bytes}


def work_of(num_rows: int, **changes: Any) -> HopWork:
    options: dict[str, Any] = {"num_tables": 4, "dim": 64, "threads": 8, "most_processes": 4, **changes}
    return HopWork(shape=TableShape(num_rows=num_rows, dim=128, dtype="float32", tile_columns=4), **options)


@pytest.mark.parametrize(
    ("num_rows", "changes", "processes", "threads"),
    [
        (4_000_000, {}, 4, 2),
        (4_000_000, {"threads": 2}, 4, 1),
        (4_000_000, {"threads": 7, "most_processes": 2}, 2, 3),
        (100_000, {}, 1, 8),  # a single range of rows: no other process could help
        (400_000, {}, 2, 4),
    ],
)
def test_processes_with_rows_to_compute_divide_the_threads(
    num_rows: int, changes: dict[str, Any], processes: int, threads: int
) -> None:
    work = work_of(num_rows, **changes)
    assert (work.processes, work.threads_per_process) == (processes, threads)
    assert work.held_by_all == {name: processes * num_bytes for name, num_bytes in work.held.items()}


def test_blocks_depend_on_the_widths_alone() -> None:
    rows = {
        work_of(1 << 20, threads=threads, most_processes=count).block_rows for threads in (1, 9) for count in (1, 3)
    }
    assert rows == {512}
    assert work_of(1 << 20, num_tables=1000).block_rows == 64
    assert work_of(1 << 20, num_tables=1).block_rows == 2048


class PlainRows:
    """Makes rows with their own numbers, a thousand at a time, up to one that it stops at."""

    def __init__(self, stop: int | None = None) -> None:
        self._stop = stop

    def open(self, engine: Engine) -> PlainRows:
        return self

    def __enter__(self) -> Callable[..., None]:
        return self._make

    def __exit__(self, *_error: object) -> None:
        pass

    def _make(self, first: int, end: int, append: Callable[[Any], None]) -> None:
        for start in range(first, end, 1000):
            if self._stop is not None and start >= self._stop:
                raise ValueError("stop")
            append(np.arange(start, min(start + 1000, end), dtype=np.float32)[:, None].repeat(2, axis=1))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_progress_counts_each_row_once(tmp_path: Path, short_ranges: None, count: int) -> None:
    """Also where a run resumes, and where parts run twice."""
    (tmp_path / "done").mkdir()
    file, executor = RowFile("rows", tmp_path, tmp_path / "done", NUM_NODES, 2), Copies(count)
    tools = TaskTools(threads_engine(), executor=executor if count > 1 else None)
    shown = list[tuple[int, int]]()

    def show(stage: str, done: int, total: int) -> None:
        shown.append((done, total))

    with pytest.raises(ValueError, match="stop"):
        file.write(PlainRows(8192), TaskTools(threads_engine()), show, "rows")
    assert shown[0] == (0, NUM_NODES)
    assert shown[-1][0] == 8192
    del shown[:]
    (tmp_path / "done" / "rows.rows-0-4096").unlink()
    file.write(PlainRows(), tools, show, "rows", processes=count)
    done = [each for each, _ in shown]
    assert shown[0] == (4096, NUM_NODES)
    assert shown[-1] == (NUM_NODES, NUM_NODES)
    assert done == sorted(done)
    assert len(set(done)) > 4 or count > 1  # within ranges, too
    assert np.array_equal(np.fromfile(file.path, np.float32).reshape(-1, 2)[:, 1], np.arange(NUM_NODES))


@pytest.fixture(scope="module")
def run(module_folder: Path) -> Path:
    """A run of sign with one layer, whose last hidden layer is that of all hops."""
    graph = small_graph(module_folder / "sbm", num_nodes=5000, num_edges=10_000)
    options: dict[str, Any] = {"epochs": 1, "memory": "100MB", "threads": 1, "engine": "threads", "evaluate": False}
    train(graph, out=module_folder / "run", model="sign", hidden=12, layers=1, hops=2, **options)
    return module_folder / "run"


def output_run(run: Path, memory_bytes: int, scratch: Path, processes: int = 1) -> OutputRun:
    classifier = open_classifier(run, MODELS)
    return OutputRun(
        classifier=classifier,
        dataset=classifier.open_dataset(),
        budget=Budget(memory_bytes),
        space=ALL_FREE,
        threads=2,
        tools=TaskTools(threads_engine(), executor=Copies(processes)),
        scratch=str(scratch),
    )


def test_the_embedding_is_what_the_last_linear_layer_reads(run: Path, tmp_path: Path, short_ranges: None) -> None:
    opened = output_run(run, 100_000_000, tmp_path)
    with WorkFolder(tmp_path / "work") as work, opened.compute(Wanted(layer=1), work) as found:
        logits, embedding = (np.concatenate([*each.blocks(999)]) for each in (found.logits, found.embedding) if each)
    weights = opened.classifier.parameters
    weight, bias = (next(value for key, value in weights.items() if key.endswith(f"mlp.0.{name}")) for name in PARTS)
    assert embedding.shape == (5000, 3 * 12)
    np.testing.assert_allclose(embedding @ weight.numpy().T + bias.numpy(), logits, rtol=1e-4, atol=1e-5)
    config = PredictConfig(what=("embedding",))
    outputs = outputs_of(opened.classifier, config)
    sizes = sizes_of(opened.classifier, opened.dataset, outputs, wanted_of(opened.classifier, config, outputs), None)
    assert [column.width for column in sizes.columns] == [3 * 12]


@pytest.mark.parametrize("processes", [1, 2])
def test_memory_is_required_before_tables_are_made(
    run: Path, tmp_path: Path, short_ranges: None, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    wanted = Wanted(layer=1)

    def refused(memory_bytes: int, ask: Callable[[OutputRun], Any]) -> int:
        with pytest.raises(BudgetError, match=r"the smallest that works is --memory \d+MB") as caught:
            ask(output_run(run, memory_bytes, tmp_path, processes))
        return caught.value.smallest_bytes or 0

    def compute(opened: OutputRun) -> None:
        with WorkFolder(tmp_path / "work") as work, opened.compute(wanted, work):
            pass

    with monkeypatch.context() as patched:
        patched.setattr(output_tables, "propagate", lambda *_, **__: pytest.fail("tables are made"))
        smallest = refused(1_000_000, lambda each: each.plan(wanted))
        assert refused(smallest - 1, lambda each: each.require_memory(wanted)) == smallest
        assert refused(smallest - 1, compute) == smallest
    opened = output_run(run, smallest, tmp_path, processes)
    opened.require_memory(wanted)
    compute(opened)
    # Now that there are tables, the model alone is planned.
    planned = output_run(run, smallest, tmp_path, processes).plan(wanted)
    assert [step.name for step in planned.steps] == ["model"]
    assert planned.num_processes * sum(planned.reserved.values()) == opened.budget.peak_bytes == smallest
    assert refused(smallest - 1, lambda each: each.plan(wanted)) == smallest


def test_the_smallest_memory_of_several_processes_makes_the_tables(run: Path) -> None:
    dataset = open_classifier(run, MODELS).open_dataset()

    def plan(memory_bytes: int) -> None:
        disk = remembered_model(dataset.path, "threads")
        plan_tables(dataset, PropagationSpec(hops=2), Budget(memory_bytes), threads=3, disk=disk, processes=3)

    with pytest.raises(BudgetError, match="propagating features") as caught:
        plan(100_000)
    smallest = caught.value.smallest_bytes or 0
    plan(smallest)
    with pytest.raises(BudgetError):
        plan(smallest - 3)
