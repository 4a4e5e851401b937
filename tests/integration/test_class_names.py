"""Classes that a table names by text, from the import to predictions, evaluation and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tables import class_names
from tests.graphs import folder_bytes, random_pairs, threads_engine

COLORS = ["rot", "Grün", 'a "b"', "blau, hell", "it's", "tab\tin it", "two\nlines, and \\n"]


def write_tables(folder: Path, names: list[str | None], style: str = "parquet", column: str = "class") -> Path:
    """Tables of nodes 7, 17, 27 ... with a text each, two features and a split."""
    folder.mkdir(exist_ok=True)
    count = len(names)
    pairs = 10 * random_pairs(count, 6 * count) + 7
    generator = np.random.default_rng(0)
    nodes = {"id": 10 * np.arange(count) + 7, "a": generator.random(count), "b": generator.random(count), column: names}
    nodes["split"] = [("train", "valid", "test")[number % 3] for number in range(count)]
    for name, table in (("edges", {"src": pairs[0], "dst": pairs[1]}), ("nodes", nodes)):
        if style == "csv":
            pyarrow.csv.write_csv(pa.table(table), folder / f"{name}.csv")
        else:
            pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return folder


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    return import_graph(source, destination, options=ImportOptions(**options), engine=threads_engine())


@pytest.mark.parametrize("style", ["parquet", "csv"])
@pytest.mark.parametrize("order", ["input", "hot"])
def test_texts_become_classes_in_the_order_of_their_names(tmp_path: Path, style: str, order: str) -> None:
    texts: list[str | None] = [COLORS[(5 * number) % len(COLORS)] for number in range(40)]
    texts[3], texts[9] = None, ""
    dataset = imported(write_tables(tmp_path / "source", texts, style), tmp_path / "graph", order=order)
    names = dataset.names("classes")
    assert names == sorted(COLORS)
    assert (dataset.label_kind, dataset.num_classes) == ("classes", len(COLORS))
    labels = dataset.labels
    assert labels is not None
    assert [names[each] if each >= 0 else None for each in labels] == [text or None for text in texts]
    verify(dataset.path)


def test_numbers_do_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    texts: list[str | None] = [f"class {number * 7919 % 300}" for number in range(3000)]
    one = imported(write_tables(tmp_path / "one", texts), tmp_path / "graph")
    turned = imported(write_tables(tmp_path / "turned", texts[::-1]), tmp_path / "other")
    assert folder_bytes(one.path / "names") == folder_bytes(turned.path / "names")
    first, last = one.labels, turned.labels
    assert first is not None
    assert last is not None
    np.testing.assert_array_equal(first, last[::-1])


def test_a_text_by_a_name_of_nodes_is_taken_only_if_it_is_named(tmp_path: Path, capsys: Any) -> None:
    source = write_tables(tmp_path / "source", ["a", "b"] * 10, column="label")
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    assert "--label label makes its texts classes" in " ".join(capsys.readouterr().err.split())
    assert imported(source, tmp_path / "named", label=("label",)).names("classes") == ["a", "b"]


def test_texts_that_name_no_classes_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tables(tmp_path / "source", ["a", "b"] * 10)
    refused: dict[str, dict[str, Any]] = {
        "tasks": {"label_kind": "tasks"},
        "values": {"label_kind": "values"},
        "two": {"label": ("class", "a"), "features": ("b",)},
    }
    for options in refused.values():
        advice = "(use --label class|remove --label-kind)"
        with pytest.raises(SourceError, match=f"column 'class' is text, which names classes, .*; {advice}"):
            imported(source, tmp_path / "graph", **options)
    write_tables(source, ["a", "x" * 300] * 10)
    with pytest.raises(SourceError, match="column 'class': a class name must have at most 256 bytes, got 'x"):
        imported(source, tmp_path / "graph")
    write_tables(source, [f"name {number}" for number in range(20)])
    monkeypatch.setattr(class_names, "MOST_NAMES", 19)
    with pytest.raises(SourceError, match=r"must have at most 19 names, .*--label, or give the classes"):
        imported(source, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_predictions_and_evaluations_have_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts: list[str | None] = [COLORS[(5 * number) % len(COLORS)] for number in range(90)]
    write_tables(tmp_path / "source", texts)
    assert run(["import", "source", "graph"]) == 0
    assert run(["train", "graph", "--out", "run", "--epochs", "2", "--hidden", "8", "--memory", "200MB"]) == 0
    for style in ("parquet", "tsv"):
        assert run(["predict", "run", "--out", style, "--format", style, "--memory", "200MB"]) == 0
    table = pq.read_table("parquet")
    assert table.column("id").to_pylist() == [10 * number + 7 for number in range(90)]
    assert pa.types.is_large_string(table.schema.field("class").type) or pa.types.is_string(
        table.schema.field("class").type
    )
    assert set(table.column("class").to_pylist()) <= set(COLORS)
    (part,) = Path("parquet").glob("*.parquet")
    chunk = pq.ParquetFile(part).metadata.row_group(0).column(1)
    assert chunk.has_dictionary_page
    (text,) = Path("tsv").glob("*.tsv")
    options = pyarrow.csv.ParseOptions(delimiter="\t")
    assert pyarrow.csv.read_csv(text, parse_options=options).column("class").to_pylist() == [
        str(each) for each in table.column("class").to_pylist()
    ]
    capsys.readouterr()
    assert run(["evaluate", "run", "--part", "test", "--json", "--memory", "200MB"]) == 0
    found = json.loads(capsys.readouterr().out)["parts"]["test"]
    assert {each["name"] for each in found["classes"]} <= set(COLORS)
    assert run(["report", "run", "--out", "report.html"]) == 0
    assert "blau, hell" in Path("report.html").read_text()
