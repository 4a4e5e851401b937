"""Predictions on disk: columns, files, and what is refused in one line."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from diskhop.config.parse import parse_words
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import read_names
from diskhop.errors import BudgetError, ConfigError, DestinationError, DiskhopError, FormatError, PredictionError
from diskhop.predicting.columns import Outputs, default_words
from diskhop.predicting.rows import ArrayRows
from diskhop.predicting.scaling import Scaling
from diskhop.predicting.sizes import FORMATS, OutputLimits, output_sizes
from diskhop.protocols import NodeRows
from tests.graphs import folder_bytes, make_dataset
from tests.predictions import ALL, TINY, check_manifest, node_dataset, rows_of, values_of, write

NAMES = ["ana\tb\nn", 'c"em', "d\re\\", "élise", " x ", "NA", "7"]
HOT = np.array([3, 0, 6, 1, 5, 2, 4])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "graph")


@pytest.fixture
def named(tmp_path: Path) -> Dataset:
    """Nodes with names, in hot order."""
    return node_dataset(tmp_path / "graph", NAMES, rows=HOT)


def data_bytes(folder: Path) -> dict[str, bytes]:
    """The files with predictions."""
    return {name: content for name, content in folder_bytes(folder).items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("class", "colour"), {}, "--what 'colour' is unknown; use one or more of class, probability, probabilities"),
        ((), {}, "--what is empty; use one or more of class"),
        (("class",), {"task": "multilabel"}, "--what class needs classes.*use --what probabilities"),
        (("probability",), {"task": "multilabel"}, "--what probability needs classes.*use --what probabilities"),
        (("value",), {}, "--what value needs numbers, and the model predicts classes; use --what class,probability"),
        (
            ("logits",),
            {"task": "regression"},
            "--what logits needs classes or tasks.*use --what value",
        ),
        (("embedding",), {"embedding_dtype": "int8"}, "embeddings 'int8' is unknown; use float32 or float16"),
    ],
)
def test_invalid_outputs_are_refused(words: tuple[str, ...], given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Outputs(words=words, **given)


def test_words_are_split_at_commas() -> None:
    assert parse_words("class, probability,") == ("class", "probability")
    assert Outputs(words=default_words("classification")).words == ("class", "probability")
    assert Outputs(words=default_words("multilabel"), task="multilabel").words == ("probabilities",)
    assert Outputs(words=default_words("regression"), task="regression").words == ("value",)


def test_columns_have_the_order_of_the_words_once() -> None:
    columns = Outputs(words=("embedding", "class", "class"), embedding_dtype="float16").columns({"embedding": 4})
    assert [(each.name, each.dtype, each.width) for each in columns] == [
        ("class", "int64", 0),
        ("embedding", "float16", 4),
    ]


def test_missing_tables_and_formats_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    tables = rows_of(dataset)
    with pytest.raises(ConfigError, match="--what embedding needs the embedding of the nodes"):
        write(tmp_path / "out", dataset, {"logits": tables["logits"]})
    with pytest.raises(ConfigError, match="--format 'csv' is unknown; use one of parquet, npy, tsv"):
        write(tmp_path / "out", dataset, tables, format_name="csv")
    with pytest.raises(ConfigError, match="--nodes has no nodes"):
        write(tmp_path / "out", dataset, tables, nodes=NodeRows(np.zeros(0, np.int64)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph"]


def test_tasks_get_a_sigmoid_each(dataset: Dataset, tmp_path: Path) -> None:
    logits = np.linspace(-120, 120, 150, dtype=np.float32).reshape(50, 3)
    outputs = Outputs(words=("probabilities",), task="multilabel")
    write(tmp_path / "out", dataset, {"logits": ArrayRows(logits)}, outputs)
    found = np.stack(pd.read_parquet(tmp_path / "out")["probabilities"])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits.astype(np.float64))), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("num_columns", [1, 3])
def test_values_are_in_the_units_of_the_labels(dataset: Dataset, tmp_path: Path, num_columns: int) -> None:
    logits = np.linspace(-2, 2, 50 * num_columns, dtype=np.float32).reshape(50, num_columns)
    scaling = Scaling(tuple(range(10, 10 + num_columns)), (0.5,) * num_columns)
    outputs = Outputs(words=("value",), task="regression", scaling=scaling)
    write(tmp_path / "out", dataset, {"logits": ArrayRows(logits)}, outputs)
    found = pd.read_parquet(tmp_path / "out")["value"]
    expected = logits * 0.5 + np.arange(10, 10 + num_columns)
    # One value per node is a number, several are a list.
    np.testing.assert_allclose(found if num_columns == 1 else np.stack(found), expected.squeeze(), rtol=1e-6)


def test_probabilities_survive_logits_of_any_size(dataset: Dataset, tmp_path: Path) -> None:
    logits = np.tile(np.array([3e38, -3e38, 3e38], np.float32), (50, 1))
    write(
        tmp_path / "out",
        dataset,
        {"logits": ArrayRows(logits)},
        Outputs(words=("class", "probability", "probabilities")),
    )
    found = pd.read_parquet(tmp_path / "out")
    assert (found["class"] == 0).all()  # of equal logits the lowest class
    assert (found["probability"] == 0.5).all()
    assert found["probabilities"][7].tolist() == [0.5, 0, 0.5]


def test_the_probability_is_that_of_the_class(dataset: Dataset, tmp_path: Path) -> None:
    write(tmp_path / "out", dataset, rows_of(dataset))
    found = pd.read_parquet(tmp_path / "out")
    every = np.stack(found["probabilities"])
    assert (every[np.arange(len(every)), found["class"]] == found["probability"]).all()


@pytest.mark.parametrize("format_name", FORMATS)
def test_bytes_depend_on_neither_memory_nor_threads_nor_facts(named: Dataset, tmp_path: Path, format_name: str) -> None:
    tables = rows_of(named)
    ways: list[dict[str, Any]] = [
        {"threads": 1, "facts": {"seconds": 1.5}},
        {"threads": 2, "memory_bytes": 24 << 20},
        {"threads": 5, "limits": OutputLimits(read_bytes=1 << 10)},
    ]
    found = []
    for number, way in enumerate(ways):
        write(tmp_path / f"{number}", named, tables, format_name=format_name, **way)
        found.append(data_bytes(tmp_path / f"{number}"))
    assert check_manifest(tmp_path / "0")["facts"] == {"seconds": 1.5}
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("format_name", FORMATS)
def test_reads_of_any_length_give_the_same_bytes(named: Dataset, tmp_path: Path, format_name: str) -> None:
    tables = rows_of(named)
    found = []
    for read_bytes, threads in ((1, 1), (1, 3), (40, 2), (1 << 20, 1)):
        limits = replace(TINY, read_bytes=read_bytes)
        out = tmp_path / f"{read_bytes}-{threads}"
        write(out, named, tables, format_name=format_name, limits=limits, threads=threads)
        found.append(data_bytes(out))
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]) == {"parquet": 2, "tsv": 2, "npy": 6}[format_name]


def test_arrays_move_through_the_disk_where_memory_is_small(tmp_path: Path) -> None:
    count = 60_000
    rows = np.random.default_rng(1).permutation(count)
    dataset = node_dataset(tmp_path / "graph", list(range(count)), rows=rows)
    tables = rows_of(dataset, dim=256)
    outputs = Outputs(words=("class", "embedding"))
    write(tmp_path / "much", dataset, tables, outputs, format_name="npy")
    write(tmp_path / "little", dataset, tables, outputs, format_name="npy", memory_bytes=64 << 20)
    assert data_bytes(tmp_path / "much") == data_bytes(tmp_path / "little")
    np.testing.assert_array_equal(np.load(tmp_path / "little" / "embedding.npy")[rows], values_of(tables)["embedding"])
    np.testing.assert_array_equal(np.load(tmp_path / "little" / "ids.npy"), np.arange(count))


def test_row_groups_and_parts_are_in_the_dataset_s_order(named: Dataset, tmp_path: Path) -> None:
    write(tmp_path / "out", named, rows_of(named), limits=TINY)
    manifest = check_manifest(tmp_path / "out")
    assert [entry["rows"] for entry in manifest["files"].values()] == [6, 1]
    parts = [pq.ParquetFile(tmp_path / "out" / name) for name in sorted(manifest["files"])]
    assert [part.metadata.row_group(0).num_rows for part in parts] == [3, 1]
    assert [name for part in parts for name in part.read()["id"].to_pylist()] == [NAMES[row] for row in HOT]


def test_a_split_is_written_alone(dataset: Dataset, tmp_path: Path) -> None:
    rows = dataset.split_rows("test")
    assert rows is not None
    tables = rows_of(dataset)
    write(tmp_path / "out", dataset, tables, nodes=rows)
    found = pd.read_parquet(tmp_path / "out")
    assert found["id"].tolist() == sorted(rows)
    np.testing.assert_array_equal(np.stack(found["logits"]), values_of(tables)["logits"][np.sort(rows)])


@pytest.mark.parametrize("format_name", FORMATS)
def test_classes_have_the_names_of_the_source(tmp_path: Path, format_name: str) -> None:
    classes = ["cat", "d\tog\n\\n", '"', "unused"]
    dataset = node_dataset(tmp_path / "graph", NAMES, rows=HOT, classes=classes)
    tables = rows_of(dataset)
    out = tmp_path / "out"
    write(out, dataset, tables, Outputs(words=("class",)), format_name=format_name)
    expected = {NAMES[row]: classes[number] for row, number in zip(HOT, values_of(tables)["class"], strict=True)}
    if format_name == "npy":
        names, found = (list(read_names(out / f"{name}.txt")) for name in ("ids", "class"))
        assert names == NAMES
        assert dict(zip(names, found, strict=True)) == expected
    elif format_name == "parquet":
        table = pq.read_table(out / "part-00000.parquet")
        assert dict(zip(table["id"].to_pylist(), table["class"].to_pylist(), strict=True)) == expected
    else:
        assert _csv_rows(out / "part-00000.tsv") == [["id", "class"], *map(list, expected.items())]
    assert [each["dtype"] for each in check_manifest(out)["columns"]] == ["string", "string"]


def _csv_rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t"))


def _by_pandas(out: Path) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    found = pd.read_parquet(out)
    return found["id"].tolist(), found["class"].to_numpy(), np.stack(found["embedding"])


def _by_pandas_text(out: Path) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    parts = [
        pd.read_csv(path, sep="\t", dtype={"id": str}, keep_default_na=False, lineterminator="\n")
        for path in sorted(out.glob("*.tsv"))
    ]
    found = pd.concat(parts)
    return found["id"].tolist(), found["class"].to_numpy(), found[[f"embedding_{i}" for i in range(5)]].to_numpy()


def _by_duckdb(out: Path) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT id, class, embedding FROM '{out}/*.parquet'").fetchall()
    ids, classes, embeddings = zip(*found, strict=True)
    return list(ids), np.array(classes), np.array(embeddings)


def _by_polars(out: Path) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    found = polars.read_parquet(out / "*.parquet")
    return found["id"].to_list(), found["class"].to_numpy(), found["embedding"].to_numpy()


def _by_polars_text(out: Path) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    found = polars.read_csv(out / "*.tsv", separator="\t", schema_overrides={"id": polars.String})
    return found["id"].to_list(), found["class"].to_numpy(), found.select(f"embedding_{i}" for i in range(5)).to_numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("read", [_by_pandas, _by_pandas_text, _by_duckdb, _by_polars, _by_polars_text])
def test_other_tools_read_them(named: Dataset, tmp_path: Path, read: Callable[[Path], Any], dtype: str) -> None:
    tables = rows_of(named)
    outputs = Outputs(words=ALL.words, embedding_dtype=dtype)
    format_name = "tsv" if "text" in read.__name__ else "parquet"
    write(tmp_path / "out", named, tables, outputs, format_name=format_name, limits=TINY)
    ids, classes, embeddings = read(tmp_path / "out")
    assert ids == [NAMES[row] for row in HOT]
    expected = values_of(tables)
    np.testing.assert_array_equal(classes, expected["class"])
    np.testing.assert_array_equal(np.asarray(embeddings, np.float32), expected["embedding"].astype(dtype))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("format_name", "threads"), [("parquet", 3), ("npy", 1), ("tsv", 2)])
@pytest.mark.parametrize("table", ["logits", "embedding"])
def test_the_first_value_that_is_not_finite_is_named(
    named: Dataset, tmp_path: Path, table: str, format_name: str, threads: int, bad: float
) -> None:
    tables = rows_of(named)
    rows = next(tables[table].blocks(100))
    rows[3, 2] = rows[6, 0] = bad
    with pytest.raises(PredictionError) as caught:
        write(tmp_path / "out", named, tables, format_name=format_name, threads=threads, limits=TINY)
    name = NAMES[HOT[3]].replace("\t", "\\t")
    assert str(caught.value).startswith(f"the {table} of node '{name}': value 2 is {bad}, must be finite; ")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_large_values_are_finite(dataset: Dataset, tmp_path: Path) -> None:
    rows = np.full((50, 4), 3e38, np.float32)  # the sum is infinite
    write(tmp_path / "out", dataset, {"embedding": ArrayRows(rows)}, Outputs(words=("embedding",)))
    assert np.stack(pd.read_parquet(tmp_path / "out")["embedding"])[9].tolist() == rows[0].tolist()


def test_values_beyond_float16_are_named(dataset: Dataset, tmp_path: Path) -> None:
    tables = rows_of(dataset)
    next(tables["embedding"].blocks(100))[7, 1] = 70_000
    outputs = Outputs(words=("embedding",), embedding_dtype="float16")
    with pytest.raises(PredictionError, match="embedding of node 7 has the value 70000, which float16 cannot hold"):
        write(tmp_path / "out", dataset, tables, outputs)


def test_what_is_at_the_destination_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    tables = rows_of(dataset)
    out = tmp_path / "out"
    write(out, dataset, tables)
    with pytest.raises(DestinationError, match="out: already exists; replace it with --overwrite"):
        write(out, dataset, tables)
    write(out, dataset, tables, format_name="npy", overwrite=True)
    assert (out / "class.npy").exists()
    (out / "notes").touch()
    with pytest.raises(DestinationError, match="holds notes, which is no part of predictions"):
        write(out, dataset, tables, overwrite=True)
    with pytest.raises(DestinationError, match="graph: already exists and is not predictions"):
        write(dataset.path, dataset, tables, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "out"]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that is writing to 'out'."""
    code = (
        "import sys; from pathlib import Path; from diskhop.predicting.output import predictions_folder\n"
        "with predictions_folder(Path(sys.argv[1]), overwrite=False): print('here', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    yield process
    process.communicate()  # ends it


@pytest.mark.slow
def test_a_second_writer_is_refused_by_its_process(
    dataset: Dataset, tmp_path: Path, writer: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(DestinationError, match=f"out: process {writer.pid} is writing to it"):
        write(tmp_path / "out", dataset, rows_of(dataset))


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_small_disk_says_how_much(tmp_path: Path, small_disk: Path, format_name: str) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=20_000)
    with pytest.raises(DestinationError, match=r"the folder of predictions takes .* MB, only .* are free"):
        write(small_disk / "out", dataset, rows_of(dataset, dim=32), format_name=format_name)
    assert list(small_disk.iterdir()) == []


def test_a_small_budget_says_how_much(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(BudgetError) as caught:
        write(tmp_path / "out", dataset, rows_of(dataset), memory_bytes=1_000_000)
    assert "writing predictions" in str(caught.value)
    least = caught.value.smallest_bytes
    assert least is not None
    write(tmp_path / "out", dataset, rows_of(dataset), memory_bytes=least)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("nodes", [None, NodeRows(np.array([1, 2, 5]))])
def test_the_least_memory_is_known_before(
    named: Dataset, tmp_path: Path, format_name: str, nodes: NodeRows | None
) -> None:
    sizes = output_sizes(named, ALL, {"logits": 3, "embedding": 5}, count=None if nodes is None else len(nodes))
    least = sum(sizes.least_memory(format_name).values())
    write(tmp_path / "out", named, rows_of(named), format_name=format_name, nodes=nodes, memory_bytes=least)
    with pytest.raises(BudgetError):
        write(tmp_path / "less", named, rows_of(named), format_name=format_name, nodes=nodes, memory_bytes=least // 2)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_bytes_on_disk_are_known_before(tmp_path: Path, format_name: str) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=20_000)
    tables = rows_of(dataset, dim=32)
    written = write(tmp_path / "out", dataset, tables, format_name=format_name)
    expected = output_sizes(dataset, ALL, {"logits": 3, "embedding": 32}).disk_bytes(format_name)
    assert 0.6 * expected <= sum(written.files.values()) <= 1.02 * expected


def test_damaged_names_are_refused(named: Dataset, tmp_path: Path) -> None:
    path = named.path / "names/nodes.txt"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"NA", b"\xff\xff"))
    with pytest.raises(FormatError, match=r"nodes\.txt: is damaged"):
        write(tmp_path / "out", named, rows_of(named))
    path.write_bytes(content.replace(b"\\n", b"\\x"))
    with pytest.raises(FormatError, match=r"nodes\.txt: is damaged"):
        write(tmp_path / "another", named, rows_of(named))
    path.write_bytes(content.replace(b"\n", b" ", 1))
    with pytest.raises(FormatError, match=r"nodes\.txt: has 6 lines for 7 nodes"):
        write(tmp_path / "other", named, rows_of(named))


def test_finished_parts_are_not_written_again(dataset: Dataset, tmp_path: Path) -> None:
    """After an error in the last part the same command writes only that."""
    tables = rows_of(dataset)
    out = tmp_path / "out"
    write(tmp_path / "whole", dataset, tables, limits=TINY)
    rows = next(tables["embedding"].blocks(100))
    good = float(rows[49, 0])
    rows[49, 0] = np.nan
    with pytest.raises(DiskhopError) as caught:
        write(out, dataset, tables, limits=TINY, threads=1)
    assert any("reused after the correction" in note for note in caught.value.__notes__)
    parts = sorted((tmp_path / ".out.work" / "predictions").glob(".part*"))
    rows[49, 0] = good
    written = {path.name[1:]: path.stat().st_ino for path in parts[:-1]}
    assert len(written) == 8
    write(out, dataset, tables, limits=TINY)
    assert data_bytes(out) == data_bytes(tmp_path / "whole")
    assert {name: (out / name).stat().st_ino for name in written} == written
