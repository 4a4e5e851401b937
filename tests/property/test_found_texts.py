"""Texts of edges as people have them, imported without options: the edges that they have, or a refusal.

Where the evidence is for both, the table of decisions names the option that mends it, and with it the edges are right.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.examples import examples
from tests.graphs import edges_of, memory_folder, threads_engine

Edge = tuple[str, str]
PACK = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

WHOLE = st.one_of(st.integers(0, 9), st.integers(0, 3000), st.sampled_from([2**32, 2**53 + 1, 2**63 - 1])).map(str)
WORDS = st.one_of(
    st.sampled_from(["ana", "ben", "cem", "dan", "eva", "1984", "2001", "a,b", "c;d", "e\tf", "#love", "%20x"]),
    st.sampled_from(["source", "to", "label", "-5", "1.5", "x.y", "\u00e9"]),
    st.text("abc-é", min_size=1, max_size=4),
)
HEADERS = [
    ("source", "target"),
    ("Source", "Target"),
    ("~from", "~to"),
    ("src_id", "dst_id"),
    ("FromNodeId", "ToNodeId"),
    ("follower", "followee"),
    (":START_ID", ":END_ID"),
    ("node1", "node2"),
    ("u", "v"),
]
# Names of columns that no program writes above names, and that no node has here: then nothing could tell.
UNKNOWN = [("person", "friend"), ("p1", "p2"), ("x y", "z")]


@dataclass(frozen=True)
class Text:
    """Edges as they are written.

    header: names of source and destination; None: no header. in_all: whether every part has it.
    others: columns next to the ends, by name, with values. order: of all columns.
    """

    edges: list[Edge]
    are_numbers: bool
    as_floats: bool
    header: Edge | None
    in_all: bool
    others: dict[str, list[str]]
    order: list[int]
    delimiter: str
    pad: int
    trailing: str
    end: str
    blanks: list[str]
    head: list[str]
    has_bom: bool
    packing: str
    suffix: str
    num_parts: int
    beside: list[str] = field(default_factory=list)

    def columns(self) -> list[str]:
        assert self.header is not None
        names = [*self.header, *self.others]
        return [names[place] for place in self.order]

    def quoted(self, value: str) -> str:
        must = any(mark in value for mark in (self.delimiter, '"', "\n", "\t", " ")) or value.startswith(("#", "%"))
        must = must or (self.delimiter == " " and not value)
        return '"' + value.replace('"', '""') + '"' if must else value

    def line(self, fields: list[str], number: int) -> str:
        between = self.delimiter
        if self.delimiter == " ":
            between = " " * (1 + (number % (self.pad + 1)))
        tail = self.delimiter if self.trailing == "all" or (self.trailing == "some" and number % 2) else ""
        return between.join(map(self.quoted, fields)) + (tail if self.delimiter != " " else " " * (self.pad > 1))

    def write(self, folder: Path) -> Path:
        source = folder / "edges-of"
        source.mkdir()
        for part in range(self.num_parts):
            lines = list(self.head)
            if self.header is not None and (self.in_all or part == 0):
                lines.append(self.line(self.columns(), 0))
            for number in range(part, len(self.edges), self.num_parts):
                ends = [f"{end}.0" if self.as_floats else end for end in self.edges[number]]
                fields = [*ends, *(values[number] for values in self.others.values())]
                lines += [each for each in (self.blanks[number % len(self.blanks)],) if each != "-"]
                lines.append(self.line([fields[place] for place in self.order], number))
            data = "".join(line + self.end for line in lines).encode("utf-8-sig" if self.has_bom else "utf-8")
            name = f"part-{part}{self.suffix}{self.packing}"
            (source / name).write_bytes(PACK[self.packing](data))
        for name in self.beside:
            (source / name).write_text("friends of friends\n")
        return source / f"part-0{self.suffix}{self.packing}" if self.num_parts == 1 and not self.beside else source

    def truth(self) -> ImportOptions:
        """The options that say all of it."""
        ends = [str(1 + self.order.index(place)) for place in (0, 1)]
        return ImportOptions(
            header=self.header is not None,
            columns=tuple(ends),
            delimiter=self.delimiter,
            ids="integer" if self.are_numbers else "string",
            comments="#%" if any(line.startswith("%") for line in self.head) else "#",
        )


@st.composite
def texts(draw: st.DrawFn) -> Text:
    are_numbers = draw(st.booleans())
    pool = draw(st.lists(WHOLE if are_numbers else WORDS, min_size=2, max_size=6, unique=True))
    ends = st.sampled_from(pool)
    edges = draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=12))
    as_floats = are_numbers and draw(st.integers(0, 5)) == 0 and all(int(end) < 2**53 for end in pool)
    count = len(edges)
    values = {
        "weight": st.sampled_from(["1", "0.5", "2.25", "-3", "7"]),
        "time": st.sampled_from(["2024-05-01", "2024-06-01 10:00:00"]),
        "type": st.sampled_from(["knows", "likes"]),
        "id": st.integers(0, 99).map(str),
        "": None,
    }
    chosen = draw(st.lists(st.sampled_from(sorted(values)), max_size=2, unique=True)) if draw(st.booleans()) else []
    others = {}
    for name in chosen:
        kind = values[name]
        others[name] = (
            [str(n) for n in range(count)] if kind is None else draw(st.lists(kind, min_size=count, max_size=count))
        )
    header = draw(st.sampled_from([None, None, *HEADERS, *UNKNOWN]))
    delimiter = draw(st.sampled_from([",", "\t", ";", " ", "|"]))
    places = list(range(2 + len(others)))
    comments = draw(st.sampled_from([[], [], ["# a note"], ["% a note", "% another"], ["", "# from, to"]]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    return Text(
        edges=edges,
        are_numbers=are_numbers,
        as_floats=as_floats,
        header=header,
        in_all=draw(st.booleans()),
        others=others,
        order=draw(st.permutations(places)) if header in HEADERS else places,
        delimiter=delimiter,
        pad=draw(st.sampled_from([0, 0, 2])),
        trailing=draw(st.sampled_from(["", "", "all", "some"])),
        end=end,
        blanks=draw(st.sampled_from([["-"], ["-"], ["-", ""], ["-", "# note", "-"]])),
        head=comments,
        has_bom=draw(st.booleans()),
        packing="" if end == "\r" else draw(st.sampled_from(["", "", "", *PACK])),
        suffix=draw(st.sampled_from([".txt", ".csv", ".tsv", ".el"])),
        num_parts=draw(st.sampled_from([1, 1, 2, 3])),
        beside=draw(st.sampled_from([[], [], ["README.txt", "_SUCCESS"], [".part-0.csv.crc"]])),
    )


def imported(source: Path, folder: Path, options: ImportOptions) -> tuple[Dataset, list[Decision], dict[str, Any]]:
    decisions: list[Decision] = []
    facts: dict[str, Any] = {}
    dataset = import_graph(
        source,
        folder,
        engine=threads_engine(),
        budget=Budget(1 << 29),
        threads=1,
        options=options,
        on_decisions=decisions.extend,
        on_facts=facts.update,
    )
    return dataset, decisions, facts


def edges_by_name(dataset: Dataset) -> list[Edge]:
    names, original = dataset.names("nodes"), dataset.original_ids()
    called = names if names is not None else None if original is None else [str(each) for each in original]
    return sorted(
        (str(source), str(destination)) if called is None else (called[source], called[destination])
        for source, destination in edges_of(dataset)
    )


@examples(140, [HealthCheck.too_slow])
@given(text=texts())
def test_a_text_has_its_edges_or_is_refused(text: Text) -> None:
    check_text(text)


@pytest.mark.slow
@examples(3000, [HealthCheck.too_slow])
@given(text=texts())
def test_many_texts_have_their_edges_or_are_refused(text: Text) -> None:
    check_text(text)


def check_text(text: Text) -> None:
    with memory_folder(Path.cwd()) as folder:
        source = text.write(folder)
        try:
            dataset, decisions, facts = imported(source, folder / "graph", ImportOptions())
        except (SourceError, ConfigError) as error:
            event("refused")
            check_refused(text, source, folder, str(error))
            return
        balance = facts["balance"]
        assert balance["lines"] == sum(balance[name] for name in balance if name != "lines")
        event("equal")
        assert edges_by_name(dataset) == sorted(text.edges), (text, decisions)


def check_refused(text: Text, source: Path, folder: Path, line: str) -> None:
    """A refusal names an option or an action, and with the truth as options the edges are right."""
    assert re.search(r"--[a-z]|fix|remove|import|save", line), line
    assert_right_with_truth(text, source, folder, line)


def assert_right_with_truth(text: Text, source: Path, folder: Path, shown: Any) -> None:
    has_partial_header = text.header is not None and not text.in_all and text.num_parts > 1
    if has_partial_header:
        return  # no option says that
    dataset, _, _ = imported(source, folder / "graph-as-told", text.truth())
    assert edges_by_name(dataset) == sorted(text.edges), (text, shown)
