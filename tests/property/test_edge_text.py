"""An import of edges in text equals what was written, in any of the ways in which people write it."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.examples import examples
from tests.graphs import folder_bytes, memory_folder, threads_engine

Edge = tuple[str, str]

INTEGERS = st.one_of(
    st.integers(0, 8), st.integers(0, 5000), st.sampled_from([2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1])
).map(str)
NAMES = st.one_of(
    st.text("ab é\U0001f600,;'\"#|\t%.-0", min_size=1, max_size=5),
    st.sampled_from(["NULL", "null", "nan", "007", "x" * 40, "\ufeffx"]),
)


@dataclass
class Text:
    """Edges as people write them."""

    edges: list[Edge]
    delimiter: str
    header: bool
    quoting: int
    ends: list[str]
    blanks: list[str]
    has_bom: bool
    is_gzip: bool
    num_parts: int

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        for part in range(self.num_parts):
            content = io.StringIO()
            if self.header:
                content.write(self.delimiter.join(("src", "dst")) + self.ends[0])
            for number, edge in enumerate(self.edges[part :: self.num_parts]):
                content.write(self.blanks[number % len(self.blanks)])
                row = io.StringIO()
                # A name that starts with the mark of a comment must be quoted, as one with the delimiter in it.
                quoting = csv.QUOTE_ALL if edge[0].startswith(("#", "%")) or not edge[0].strip() else self.quoting
                csv.writer(row, delimiter=self.delimiter, quoting=quoting, lineterminator="").writerow(edge)  # type: ignore[arg-type]
                content.write(row.getvalue() + self.ends[number % len(self.ends)])
            # A name that starts with one, in the first row, needs another before it.
            has_bom = self.has_bom or content.getvalue().startswith("\ufeff")
            data = content.getvalue().encode("utf-8-sig" if has_bom else "utf-8")
            if part == 0 and data.endswith(b"\n"):
                data = data.rstrip(b"\r\n")
            path = folder / f"part-{part}.txt"
            if self.is_gzip:
                path.with_suffix(".txt.gz").write_bytes(gzip.compress(data, 1))
            else:
                path.write_bytes(data)
        return folder


@st.composite
def texts(draw: st.DrawFn, ids: st.SearchStrategy[str]) -> Text:
    pool = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    ends = st.sampled_from(pool)
    return Text(
        edges=draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=25)),
        delimiter=draw(st.sampled_from([",", "\t", " ", ";"])),
        header=draw(st.booleans()),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        ends=draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])),
        blanks=draw(st.sampled_from([[""], ["", "\n"], ["", '# a comment, "with this\n', "  \t\n"]])),
        has_bom=draw(st.booleans()),
        is_gzip=draw(st.booleans()),
        num_parts=draw(st.integers(1, 3)),
    )


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    kinds: dict[str, list[Any]] = {
        "undirected": [None, True, False],
        "self_loops": [None, "keep", "drop"],
        "duplicates": [None, "keep", "drop"],
        "order": [None, "input", "hot"],
    }
    return {name: draw(st.sampled_from(values)) for name, values in kinds.items()}


def expected_edges(edges: list[Edge], wishes: dict[str, Any]) -> tuple[Counter[Edge], int, int]:
    """Count by brute force: the edges that are stored, how many rows are loops, and how many duplicates."""
    num_loops = sum(source == destination for source, destination in edges)
    kept = [edge for edge in edges if edge[0] != edge[1] or wishes["self_loops"] != "drop"]
    if wishes["undirected"]:
        num_duplicates = len(kept) - len({frozenset(edge) for edge in kept})
        kept += [(destination, source) for source, destination in kept if source != destination]
    else:
        num_duplicates = len(kept) - len(set(kept))
    stored = Counter(set(kept)) if wishes["duplicates"] == "drop" else Counter(kept)
    return stored, num_loops, num_duplicates


def stored_edges(dataset: Dataset) -> list[tuple[int, int]]:
    """Source and destination of every edge, by the ids that the dataset uses."""
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    lists = [indices[start:stop].tolist() for start, stop in pairwise(indptr)]
    assert all(neighbors == sorted(neighbors) for neighbors in lists), "lists are sorted"
    return [(source, destination) for destination, neighbors in enumerate(lists) for source in neighbors]


def called(dataset: Dataset) -> list[str]:
    """Return the name or id of each node in the source."""
    original = dataset.original_ids()
    numbers = range(dataset.num_nodes) if original is None else original.tolist()
    names = dataset.names("nodes")
    return [str(number) if names is None else names[number] for number in numbers]


# A text has many slices, and every place in it is the end of one.
TINY_SLICES = ImportLimits(pairs_slice_bytes=37, rows_slice_bytes=101)


def check(text: Text, ids: str, wishes: dict[str, Any]) -> None:
    facts: dict[str, Any] = {}
    with memory_folder(Path.cwd()) as folder:
        source = text.write(folder / "edges")
        options = ImportOptions(delimiter=text.delimiter, header=text.header, ids=ids, **wishes)  # type: ignore[arg-type]
        made = [
            import_graph(
                source,
                folder / f"{threads}",
                engine=threads_engine(),
                budget=Budget(memory_bytes),
                threads=threads,
                options=options,
                limits=TINY_SLICES,
                on_facts=facts.update,
            )
            for threads, memory_bytes in ((1, 1 << 30), (2, 90 << 20))
        ]
        assert folder_bytes(made[0].path) == folder_bytes(made[1].path), "neither threads nor budget change a byte"
        stored, num_loops, num_duplicates = expected_edges(text.edges, wishes)
        labels = called(made[0])
        found = Counter((labels[source], labels[destination]) for source, destination in stored_edges(made[0]))
        assert found == stored
        assert (facts["rows"], facts["self_loops"], facts["duplicates"]) == (len(text.edges), num_loops, num_duplicates)

        nodes = {end for edge in text.edges for end in edge}
        in_order = sorted(nodes, key=int) if ids == "integer" else sorted(nodes, key=str.encode)
        if wishes["order"] == "hot":
            out_degrees = Counter(source for source, _ in stored.elements())
            # The rank counts duplicates that are dropped later: nothing is sorted yet.
            if wishes["duplicates"] != "drop":
                in_order.sort(key=lambda node: -out_degrees[node])
            else:
                in_order = labels
        assert labels == in_order
        assert sorted(labels) == sorted(nodes)
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [], "nothing is left behind"


SLOW = examples(25, [HealthCheck.too_slow])


@SLOW
@given(text=texts(INTEGERS), wishes=wishes())
def test_whole_numbers(text: Text, wishes: dict[str, Any]) -> None:
    check(text, "integer", wishes)


@SLOW
@given(text=texts(NAMES), wishes=wishes())
def test_names(text: Text, wishes: dict[str, Any]) -> None:
    # A column of blanks alone is empty, and refused: see the next test.
    assume(all(any(name.strip() for name in ends) for ends in zip(*text.edges, strict=True)))
    check(text, "string", wishes)


@pytest.mark.parametrize("row", [" ,ana", "ana, "])
def test_a_column_of_blanks_alone_is_refused(tmp_path: Path, row: str) -> None:
    source = tmp_path / "edges.csv"
    source.write_text(f"{row}\n{row}\n")
    with pytest.raises(SourceError, match="a row must have two columns, source and destination, got 1"):
        import_graph(
            source,
            tmp_path / "graph",
            engine=threads_engine(),
            budget=Budget(1 << 28),
            threads=1,
            options=ImportOptions(ids="string"),
        )
