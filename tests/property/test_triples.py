"""An import of triples equals a dictionary of names, in any of the ways in which knowledge graphs are published."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.examples import examples
from tests.graphs import folder_bytes, memory_folder, threads_engine

Triple = tuple[str, str, str]

NAMES = st.one_of(
    st.text("ab é\U0001f600,;'\"#|\\%.-0\x00\x0b\u2028", min_size=1, max_size=5),
    st.sampled_from(["NULL", "nan", "007", "7", '"', "x" * 60, "/m/07n", "\ufeffx"]),
)
STYLES = ("names", "dictionaries", "described")


@dataclass
class Graph:
    """A knowledge graph as people publish it."""

    parts: dict[str, list[Triple]]
    style: str
    order: int
    end: str
    has_empty_lines: bool
    has_last_end: bool
    has_bom: bool
    is_gzip: bool

    def names(self) -> tuple[list[str], list[str]]:
        """Entities and relations, by the ids that they are to have."""
        every = [triple for part in self.parts.values() for triple in part]
        entities = sorted({name for head, _, tail in every for name in (head, tail)}, key=str.encode)
        relations = sorted({relation for _, relation, _ in every}, key=str.encode)
        if self.style != "names":  # in any order of the dictionary's own, and with some that do not occur
            entities = [*entities[self.order :], "of no triple\u00e9", *entities[: self.order]]
            relations = [*relations[self.order :], *relations[: self.order], "of no triple"]
        return entities, relations

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        entities, relations = self.names()
        are_ids = self.style == "described"
        for part, listed in self.parts.items():
            rows = [
                (str(entities.index(head)), str(relations.index(relation)), str(entities.index(tail)))
                if are_ids
                else (head, relation, tail)
                for head, relation, tail in listed
            ]
            self._write(folder / f"{part}.{'del' if are_ids else 'txt'}", rows)
        dictionaries = {
            "names": {},
            "dictionaries": {"entities.dict": entities, "relations.dict": relations},
            "described": {"entity_ids.del": entities, "relation_ids.del": relations},
        }[self.style]
        for name, names in dictionaries.items():
            numbered = [(str(number), value) for number, value in enumerate(names)]
            self._write(folder / name, numbered[::-1])  # what counts is the id, not the line
        if are_ids:
            (folder / "dataset.yaml").write_text(f"dataset:\n  name: kg\n  num_entities: {len(entities)}\n")
        return folder

    def _write(self, path: Path, rows: Sequence[tuple[str, ...]]) -> None:
        lines = ["\t".join(row) + self.end for row in rows]
        text = (self.end if self.has_empty_lines else "").join(lines)
        text = text if self.has_last_end else text.removesuffix(self.end)
        # A name that starts with one, in the first row, needs another before it.
        data = text.encode("utf-8-sig" if self.has_bom or text.startswith("\ufeff") else "utf-8")
        if self.is_gzip:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data, 1))
        else:
            path.write_bytes(data)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    entities = st.sampled_from(draw(st.lists(NAMES, min_size=1, max_size=6, unique=True)))
    relations = st.sampled_from(draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)))
    rows = st.lists(st.tuples(entities, relations, entities), min_size=1, max_size=20)
    parts = draw(st.sampled_from([["train"], ["train", "valid"], ["train", "valid", "test"], ["test"]]))
    return Graph(
        parts={part: draw(rows) for part in parts},
        style=draw(st.sampled_from(STYLES)),
        order=draw(st.integers(0, 3)),
        end=draw(st.sampled_from(["\n", "\r\n"])),
        has_empty_lines=draw(st.booleans()),
        has_last_end=draw(st.booleans()),
        has_bom=draw(st.booleans()),
        is_gzip=draw(st.booleans()),
    )


# A text has many slices, and every place in it is the end of one.
TINY_SLICES = ImportLimits(triples_slice_bytes=43)


@examples(25, [HealthCheck.too_slow])
@given(graph=graphs(), in_one_group=st.booleans())
def test_triples_equal_a_dictionary_of_names(graph: Graph, in_one_group: bool) -> None:
    entities, relations = graph.names()
    entity_ids = {name: number for number, name in enumerate(entities)}
    relation_ids = {name: number for number, name in enumerate(relations)}
    with memory_folder(Path.cwd()) as folder:
        source = graph.write(folder / "kg")
        made = []
        for threads, memory_bytes in ((1, 1 << 30), (2, 90 << 20)):
            limits = TINY_SLICES if in_one_group else replace(TINY_SLICES, triples_group_share=(1 << 30) // 150)
            destination = folder / str(threads)
            budget = Budget(memory_bytes)
            made.append(
                import_graph(
                    source,
                    destination,
                    format_name="triples",
                    engine=threads_engine(),
                    budget=budget,
                    threads=threads,
                    limits=limits,
                )
            )
        assert folder_bytes(made[0].path) == folder_bytes(made[1].path), "neither threads nor budget change a byte"
        dataset = made[0]
        assert (dataset.name, dataset.num_nodes, dataset.num_relations) == ("kg", len(entities), len(relations))
        assert (dataset.names("entities"), dataset.names("relations")) == (entities, relations)
        for part in ("train", "valid", "test", "all"):
            found = dataset.triples(part)
            expected = [
                [entity_ids[head], relation_ids[relation], entity_ids[tail]]
                for head, relation, tail in graph.parts.get(part, [])
            ]
            assert ([] if found is None else found.tolist()) == expected
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [], "nothing is left behind"
