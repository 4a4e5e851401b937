"""The plan of a propagation, what it refuses, and what the command says."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import read_manifest
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.find import find_hop_tables
from diskhop.hops.make.blocks import first_cold_row
from diskhop.hops.make.cold_edges import SourceCounts
from diskhop.hops.make.plan import PropagationPlan, plan_propagation
from diskhop.hops.make.propagate import propagate
from diskhop.hops.make.task import Task
from diskhop.hops.operators import OPERATORS, parse_operator
from diskhop.hops.spec import PropagationSpec
from diskhop.hops.tables import TableShape, open_hop_tables
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.protocols import Table
from tests.graphs import make_dataset, random_pairs
from tests.propagation import build, propagate_small, table_values
from tests.runs import import_arrays

SHAPE = TableShape(num_rows=4_000_000, dim=128, dtype="float32", tile_columns=4)
LARGE = Task(
    table=Table(path=Path("features.bin"), num_rows=4_000_000, row_bytes=512, row_stride=512),
    feature_dtype="float32",
    shape=SHAPE,
    num_edges=60_000_000,
    index_bytes=4,
    operators=(parse_operator("sign"),),
    hops=3,
    sorted_edges=0,
    num_kept=None,
)
TABLE_BYTES = 4_000_000 * 512


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("graphs") / "small")


def plan_of(task: Task, memory_bytes: int) -> PropagationPlan:
    return plan_propagation(task, memory_bytes=memory_bytes, threads=2, disk=assumed_disk_model())


def test_a_tenth_of_a_large_table_holds_twelve_columns() -> None:
    plan = plan_of(LARGE, TABLE_BYTES // 10)
    assert plan.columns == 12
    assert plan.num_passes == 3 * 11
    assert sum(plan.reserved.values()) <= TABLE_BYTES // 10
    # The features and each hop are written once; hops are read once.
    assert plan.bytes_written == 4 * SHAPE.num_bytes
    lists_bytes = 4 * 60_000_000 + 8 * 4_000_001
    scales_bytes = 4 * 4_000_000
    assert plan.bytes_read == TABLE_BYTES + 3 * (SHAPE.num_bytes + 11 * (lists_bytes + 2 * scales_bytes))
    assert plan.work_bytes < 4 * SHAPE.num_bytes + 100_000_000


def with_sources(memory_bytes: int, *, num_cold: int, most_per_piece: int) -> Task:
    """The large task, in which 3.33 of 4 M nodes have out-edges. num_cold: edges from rows outside a wider block."""
    first_cold = first_cold_row(LARGE, memory_bytes, 2)
    assert first_cold is not None
    sources = SourceCounts(
        num_sources=3_330_000, first_cold=first_cold, num_cold=num_cold, most_per_piece=most_per_piece
    )
    return replace(LARGE, sources=sources)


def test_few_cold_edges_make_a_block_of_whole_lines() -> None:
    memory_bytes = TABLE_BYTES // 10
    task = with_sources(memory_bytes, num_cold=300_000, most_per_piece=120)
    plan = plan_of(task, memory_bytes)
    assert (plan.columns, plan.num_passes) == (16, 3 * 8)
    assert sum(plan.reserved.values()) <= memory_bytes
    assert plan.cold is not None
    # The rows, and two pieces being read, which may begin and end within a page.
    assert 64 * (plan.cold.first_row + 2 * (120 + 128)) <= plan.block_bytes
    assert plan.cold.first_row % 4096 == 0
    lists_bytes = 4 * 60_000_000 + 8 * 4_000_001
    scales_bytes = 4 * 4_000_000
    values_bytes = 300_000 * 64
    hop_bytes = SHAPE.num_bytes + 8 * (lists_bytes + 2 * scales_bytes + values_bytes + 4 * 300_000)
    assert plan.bytes_read == TABLE_BYTES + 4 * 60_000_000 + 3 * hop_bytes
    found_bytes = plan.bytes_written - 4 * SHAPE.num_bytes - 3 * 8 * values_bytes
    assert 4 * 300_000 + 8 * 3663 <= found_bytes <= 4 * 300_000 + 8 * 3663 + 2 * 4096
    assert plan.work_bytes - LARGE.work_bytes >= found_bytes + values_bytes
    assert "24 passes of 16 columns (rows before 2,899,968 in memory)" in str(plan)


def test_every_process_has_a_file_of_the_values_of_cold_edges() -> None:
    memory_bytes = TABLE_BYTES // 10
    task = with_sources(memory_bytes, num_cold=300_000, most_per_piece=120)
    alone, three = (
        plan_propagation(task, memory_bytes=memory_bytes, threads=2, disk=assumed_disk_model(), processes=number)
        for number in (1, 3)
    )
    assert three.work_bytes - alone.work_bytes == 2 * (300_000 * 64 + 4096)
    assert replace(three, work_bytes=alone.work_bytes) == alone


@pytest.mark.parametrize(("num_cold", "most_per_piece"), [(3_000_000, 1000), (300_000, 16_384), (60_000_000, 16_384)])
def test_where_cold_edges_are_many_a_block_holds_all_rows(num_cold: int, most_per_piece: int) -> None:
    task = with_sources(TABLE_BYTES // 10, num_cold=num_cold, most_per_piece=most_per_piece)
    plan = plan_of(task, TABLE_BYTES // 10)
    assert (plan.columns, plan.cold) == (12, None)
    assert plan.bytes_read == plan_of(LARGE, TABLE_BYTES // 10).bytes_read


@pytest.mark.parametrize("share", [40, 30, 20, 13, 10, 7, 5, 4, 3])
def test_a_block_with_cold_edges_keeps_to_its_memory(share: int) -> None:
    memory_bytes = TABLE_BYTES // share
    if first_cold_row(LARGE, memory_bytes, 2) is None:
        return
    task = with_sources(memory_bytes, num_cold=300_000, most_per_piece=120)
    plan = plan_of(task, memory_bytes)
    assert sum(plan.reserved.values()) <= memory_bytes
    if plan.cold is not None:
        assert 4 * plan.columns * (3_330_000 - plan.cold.first_row) <= plan.block_bytes
        assert plan.cold.resident_tiles * 4 < plan.columns <= plan.cold.resident_tiles * 8
        assert plan.num_blocks < plan_of(LARGE, memory_bytes).num_blocks


def test_lists_are_looked_at_only_where_that_may_pay() -> None:
    tenth = TABLE_BYTES // 10
    assert first_cold_row(LARGE, tenth, 2) is not None
    assert first_cold_row(LARGE, 2 * TABLE_BYTES, 2) is None  # all is in memory
    assert first_cold_row(LARGE, 100_000, 2) is None
    # Own rows count; lists that are not there yet cannot be looked at.
    assert first_cold_row(replace(LARGE, operators=(parse_operator("sign"), parse_operator("sgc"))), tenth, 2) is None
    assert first_cold_row(replace(LARGE, sorted_edges=60_000_000), tenth, 2) is None


@pytest.mark.parametrize("share", [20, 10, 5, 2, 1])
def test_more_memory_means_wider_blocks_and_fewer_bytes(share: int) -> None:
    plan = plan_of(LARGE, TABLE_BYTES // share)
    assert sum(plan.reserved.values()) <= TABLE_BYTES // share
    assert plan.columns % 4 == 0
    assert plan.columns >= 0.7 * 128 / share - 4
    wider = plan_of(LARGE, 2 * TABLE_BYTES // share)
    assert wider.columns > plan.columns or plan.columns == 128
    assert wider.bytes_read <= plan.bytes_read


def test_of_few_rows_only_work_takes_the_disk() -> None:
    task = replace(LARGE, num_kept=40_000)
    assert task.result_bytes < LARGE.result_bytes // 50
    assert task.work_bytes < LARGE.work_bytes


def test_too_small_a_budget_is_told_with_one_that_would_do() -> None:
    with pytest.raises(BudgetError, match=r"column block .* the smallest that works is --memory (\d+)MB") as raised:
        plan_of(LARGE, 50_000_000)
    found = re.search(r"--memory (\d+)MB", str(raised.value))
    assert found is not None
    assert plan_of(LARGE, int(found[1]) * 1_000_000).columns == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": 0}, r"hops must be at least 1, got 0; for example hops=1"),
        ({"operators": ("sgn",)}, r"unknown operator 'sgn' \(did you mean 'sign'\?\); the known ones are sgc, sign"),
        ({"operators": ()}, r"operators must be one operator or several, got \[\]"),
        ({"operators": ("ppr", "ppr:alpha=0.1")}, r"--operator ppr:alpha=0.1 is given more than once"),
        ({"operators": ("ppr:alpha=2",)}, r"must be ppr:alpha=NUMBER with NUMBER above 0 and up to 1"),
        ({"operators": ("ppr:beta=1",)}, r"must be ppr:alpha=NUMBER"),
        ({"operators": ("heat:t=x",)}, r"must be heat:t=NUMBER"),
        ({"operators": ("sign:t=1",)}, r"sign takes no parameters; write sign"),
        ({"direction": "up"}, r"direction must be one of in, out, both, got 'up'"),
        ({"dtype": "int8"}, r"dtype must be one of float32, float16, bfloat16, got 'int8'"),
        ({"rows": "train"}, r"--rows 'train' must be all, labelled or a .npy"),
        ({"rows": "missing.npy"}, r"missing.npy: cannot be read as .npy"),
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(
    tmp_path: Path, dataset: Dataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        propagate_small(dataset, tmp_path / "s", **{"hops": 1, **options})
    assert not (tmp_path / "s").exists()


def test_names_of_operators_are_read_back() -> None:
    for text in (*OPERATORS, "ppr:alpha=0.25", "heat:t=5"):
        operator = parse_operator(text)
        assert parse_operator(operator.name) == operator


def test_nodes_with_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = make_dataset(tmp_path / "graph", num_nodes=5000, num_edges=20, dim=6).path
    rows = np.memmap(path / "nodes/node/features.bin", np.float32, "r+", shape=(5000, 6))
    rows[17, 3], rows[4321, 0] = np.nan, np.inf
    rows.flush()
    # Small files are checked whole when a dataset is opened: one that is open is not.
    dataset = Dataset(path, read_manifest(path))
    with pytest.raises(ConfigError, match=r"nodes 17 have values that are not finite \(NaN or infinite\); correct"):
        propagate_small(dataset, tmp_path / "s", hops=1)
    rows[17, 3] = 0
    rows.flush()
    with pytest.raises(ConfigError, match=r"nodes 4321 have values that are not finite"):
        propagate_small(dataset, tmp_path / "s", hops=1)


def test_values_too_large_for_float16_are_told(tmp_path: Path) -> None:
    features = np.ones((40, 2), np.float32)
    features[7] = 1e6
    dataset = build(tmp_path / "graph", random_pairs(40, 100), features)
    with pytest.raises(ConfigError, match=r"nodes 7 have values too large for float16; use --dtype float32 or bfloat"):
        propagate_small(dataset, tmp_path / "s", hops=1, dtype="float16")
    hub = np.stack([np.arange(1, 2000), np.zeros(1999, np.int64)])
    dataset = build(tmp_path / "hub", hub, np.full((2000, 2), 60_000, np.float32))
    backwards = np.concatenate([hub, hub[::-1]], axis=1)
    dataset = build(tmp_path / "both", backwards, np.full((2000, 2), 60_000, np.float32))
    with pytest.raises(ConfigError, match=r"sign exceeds the range of float16 after hop 1, at nodes 0; use"):
        propagate_small(dataset, tmp_path / "s", hops=2, dtype="float16")


def test_a_disk_that_is_too_small_is_told_with_what_would_do(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = (
        r"7 tables \(2 x 3 hops and the features\) of 131 KB need \d+ KB of disk space to build, "
        r"{}; --rows labelled needs \d+ KB; --dtype float16 needs \d+ KB"
    )
    spec = PropagationSpec(operators=("sign", "sgc"), hops=3)
    with pytest.raises(ConfigError, match=expected.format("--disk allows 10 KB")):
        propagate(dataset, spec, memory="50MB", disk="10KB", scratch=tmp_path / "s")
    usage = shutil.disk_usage(tmp_path)._replace(free=30_000)
    monkeypatch.setattr("diskhop.derived.scratch.shutil", SimpleNamespace(disk_usage=lambda _path: usage))
    with pytest.raises(ConfigError, match=expected.format(r"free in .*: 30 KB")):
        propagate(dataset, spec, memory="50MB", scratch=tmp_path / "s")
    assert list((tmp_path / "s").iterdir()) == []


def test_tables_of_another_state_of_the_dataset_are_not_used(tmp_path: Path) -> None:
    path = make_dataset(tmp_path / "graph").path
    spec = PropagationSpec(hops=2)
    first = propagate(path, spec, memory="50MB").tables
    dataset = open_dataset(path)
    assert find_hop_tables(dataset, spec) is not None
    dataset.hash = "0000000000000000"  # as after an import of another graph in its place
    assert find_hop_tables(dataset, spec) is None
    with pytest.raises(ConfigError, match=r"was built from another version of the dataset .* run 'diskhop propagate'"):
        open_hop_tables(first.path, dataset.hash)
    told: list[str] = []
    again = propagate(dataset, spec, memory="50MB", log=told.append).tables
    assert again.path != first.path
    assert told == [
        f"{first.path} is not used: it was built from another version of the dataset; 'diskhop clean' removes it"
    ]


def test_rows_are_asked_for_by_the_ids_of_the_source(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {"edge_index": generator.integers(0, 200, (2, 900)), "x": generator.normal(size=(200, 4))}
    plain = import_arrays(tmp_path, **arrays)
    hot = import_graph(
        tmp_path / "source",
        tmp_path / "hot",
        engine=open_engine("threads").engine,
        options=ImportOptions(order="hot"),
    )
    np.save(tmp_path / "ids.npy", np.array([150, 3, 77, 3]))
    options: dict[str, Any] = {"hops": 1, "rows": str(tmp_path / "ids.npy")}
    original = hot.original_ids()
    assert original is not None
    tables = propagate_small(hot, tmp_path / "s", **options).tables
    assert tables.rows is not None
    ids = original[tables.rows]
    assert sorted(ids) == [3, 77, 150]
    every = table_values(propagate_small(plain, tmp_path / "s", hops=1).tables, 1)
    np.testing.assert_allclose(table_values(tables, 1), every[ids], rtol=1e-5, atol=1e-6)
    np.save(tmp_path / "ids.npy", np.array([3, 200]))
    with pytest.raises(ConfigError, match=r"ids.npy has id 200, which no node of"):
        propagate_small(hot, tmp_path / "s", **options)


def test_the_command_prints_its_plan_and_one_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(make_dataset(tmp_path / "graph").path)
    command = ["propagate", path, "--hops", "2", "--operator", "sign", "--operator", "ppr:alpha=0.2", "--memory", "9MB"]
    assert run([*command, "--json"]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert document["tables"] == [
        "hop-0.bin",
        "sign-hop-1.bin",
        "sign-hop-2.bin",
        "ppr-alpha=0.2-hop-1.bin",
        "ppr-alpha=0.2-hop-2.bin",
    ]
    assert document["columns"] == 8
    assert {step["step"] for step in document["preparation"]} >= {"cut features", "sign hop 1"}
    assert document["predicted_seconds"] > 0
    assert "5 tables" in err
    assert "passes" in err
    assert run(command) == 0
    out, _ = capfd.readouterr()
    assert "propagated before" in out
    shutil.rmtree(tmp_path / "graph" / "derived")
    assert run(command) == 0
    out, _ = capfd.readouterr()
    assert re.search(r"took +[\d.]+ s, [\d.]+ s predicted", out)
    assert run(["clean", path, "--json"]) == 0
    out, _ = capfd.readouterr()
    assert [entry["what"] for entry in json.loads(out)["entries"]] == ["hop tables"]
    assert list((tmp_path / "graph" / "derived").iterdir()) == []


def test_the_command_ends_with_one_line_for_bad_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(make_dataset(tmp_path / "graph", dim=6).path)
    assert run(["propagate", path, "--hops", "1", "--operator", "hoat"]) == 2
    _, err = capfd.readouterr()
    assert (
        err == "diskhop: unknown operator 'hoat' (did you mean 'heat'?); the known ones are sgc, sign, row, ppr, heat\n"
    )
    assert not (tmp_path / "graph" / "derived").exists()
