"""Tables as people have them, imported without options: the graph that they have, or a refusal."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.options import ImportOptions
from tests.examples import examples
from tests.graphs import edges_of, memory_folder
from tests.property.test_found_texts import imported

PARTS = ("train", "valid", "test")
MASK_NAMES = [("train_mask", "val_mask", "test_mask"), ("is_train", "is_valid", "is_test")]
EDGE_NAMES = [("source", "target"), ("dst", "src"), ("~from", "~to"), ("head_id", "tail_id"), (":END_ID", ":START_ID")]


@dataclass(frozen=True)
class Tables:
    """A graph in two tables.

    ids: of the nodes, in order. edges: positions of ends. ends: names of the columns of edges, as they are written.
    parts: part of each node, or none. mask_names: of masks; None: a column `split`. style: csv, tsv or parquet.
    """

    ids: list[Any]
    edges: list[tuple[int, int]]
    ends: tuple[str, str]
    has_edge_ids: bool
    weights: list[float] | None
    features: list[float]
    labels: list[int]
    label_name: str
    parts: list[str | None]
    mask_names: tuple[str, str, str] | None
    mask_kind: str
    index: str | None
    node_order: list[int]
    style: str
    names: tuple[str, str]
    num_parts: int

    def node_columns(self) -> dict[str, list[Any]]:
        count = len(self.ids)
        columns: dict[str, list[Any]] = {"id": self.ids, "f": self.features, self.label_name: self.labels}
        if self.mask_names is None:
            columns["split"] = ["none" if part is None else part for part in self.parts]
        else:
            for name, part in zip(self.mask_names, PARTS, strict=True):
                masks = [each == part for each in self.parts]
                columns[name] = masks if self.mask_kind == "bool" else [int(each) for each in masks]
        names = [list(columns)[place % len(columns)] for place in self.node_order]
        ordered = {name: columns[name] for name in dict.fromkeys([*names, *columns])}
        return ordered if self.index is None else {self.index: list(range(0, 2 * count, 2)), **ordered}

    def edge_columns(self) -> dict[str, list[Any]]:
        is_turned = self.ends[0] in ("dst", ":END_ID")
        pairs = [(b, a) if is_turned else (a, b) for a, b in self.edges]
        columns: dict[str, list[Any]] = {"id": list(range(100, 100 + len(pairs)))} if self.has_edge_ids else {}
        for place, name in enumerate(self.ends):
            columns[name] = [self.ids[pair[place]] for pair in pairs]
        return columns if self.weights is None else {**columns, "weight": self.weights}

    def write(self, folder: Path) -> Path:
        source = folder / "tables"
        source.mkdir()
        of_edges = self.edge_columns()
        for part in range(self.num_parts):
            rows = {name: values[part :: self.num_parts] for name, values in of_edges.items()}
            where = source / self.names[0] if self.num_parts > 1 else source
            if part % 2:
                where /= "year=2021"
            where.mkdir(parents=True, exist_ok=True)
            self.save(rows, where / (f"part-{part}" if self.num_parts > 1 else self.names[0]))
        self.save(self.node_columns(), source / self.names[1])
        return source

    def save(self, columns: dict[str, list[Any]], path: Path) -> None:
        if self.style == "parquet":
            pyarrow.parquet.write_table(pa.table(columns), path.with_name(f"{path.name}.parquet"))
            return
        lines = io.StringIO()
        between = "\t" if self.style == "tsv" else ","
        lines.write(between.join("" if name.startswith("Unnamed") else name for name in columns) + "\n")
        for row in zip(*columns.values(), strict=True):
            lines.write(between.join(map(str, row)) + "\n")
        path.with_name(f"{path.name}.{self.style}").write_text(lines.getvalue())


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    kinds = [st.integers(0, 30), st.integers(0, 2**40), st.sampled_from([f"n{number}" for number in range(30)])]
    ids = draw(st.lists(draw(st.sampled_from(kinds)), min_size=3, max_size=8, unique=True))
    count = len(ids)
    place = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(place, place), min_size=2, max_size=12))
    # Every part has a node, and the rest any part or none.
    rest = draw(st.lists(st.sampled_from([*PARTS, None]), min_size=count - 3, max_size=count - 3))
    style = draw(st.sampled_from(["csv", "tsv", "parquet"]))
    has_weights = draw(st.booleans())
    return Tables(
        ids=ids,
        edges=edges,
        ends=draw(st.sampled_from(EDGE_NAMES)),
        has_edge_ids=draw(st.booleans()),
        weights=[0.5 + number for number in range(len(edges))] if has_weights else None,
        features=[number * 0.25 for number in range(count)],
        labels=[number % 3 for number in range(count)],
        label_name=draw(st.sampled_from(["label", "y", "Label", "class"])),
        parts=draw(st.permutations([*PARTS, *rest])),
        mask_names=draw(st.sampled_from([None, *MASK_NAMES])),
        mask_kind=draw(st.sampled_from(["bool", "int"])),
        index=draw(st.sampled_from([None, "__index_level_0__" if style == "parquet" else "Unnamed: 0"])),
        node_order=draw(st.permutations(range(6))),
        style=style,
        names=draw(st.sampled_from([("edges", "nodes"), ("links", "nodes"), ("edges", "labels")])),
        num_parts=draw(st.sampled_from([1, 1, 2])),
    )


@examples(30, [HealthCheck.too_slow])
@given(graph=tables())
def test_tables_have_their_graph_or_are_refused(graph: Tables) -> None:
    check_tables(graph)


@pytest.mark.slow
@examples(600, [HealthCheck.too_slow])
@given(graph=tables())
def test_many_tables_have_their_graph_or_are_refused(graph: Tables) -> None:
    check_tables(graph)


def check_tables(graph: Tables) -> None:
    with memory_folder(Path.cwd()) as folder:
        source = graph.write(folder)
        try:
            dataset, _, facts = imported(
                source, folder / "graph", ImportOptions(weight="weight" if graph.weights else None)
            )
        except (SourceError, ConfigError):
            event("refused")
            return
        event("equal")
        assert facts["balance"]["edges"] == len(graph.edges)
        assert_equal(graph, dataset)


def assert_equal(graph: Tables, dataset: Dataset) -> None:
    names, original = dataset.names("nodes"), dataset.original_ids()
    called: list[Any] = names or (list(range(dataset.num_nodes)) if original is None else original.tolist())
    assert called == graph.ids
    in_parts = [edge for part in range(graph.num_parts) for edge in graph.edges[part :: graph.num_parts]]
    assert sorted(edges_of(dataset)) == sorted(in_parts)
    table, labels = dataset.feature_table(), dataset.label_rows()
    assert table is not None
    features = np.fromfile(table.path, np.float32).reshape(table.num_rows, -1)
    assert features.tolist() == [[value] for value in graph.features]
    assert labels is not None
    assert labels.tolist() == graph.labels
    for part in PARTS:
        rows = dataset.split_rows(part)
        expected = [row for row, each in enumerate(graph.parts) if each == part]
        assert sorted([] if rows is None else rows.tolist()) == expected
    if graph.weights is not None:
        weights = dataset.edge_weights()
        assert weights is not None
        by_edge = sorted(zip(graph.edges, graph.weights, strict=True))
        assert sorted(zip(edges_of(dataset), weights.tolist(), strict=True)) == by_edge
