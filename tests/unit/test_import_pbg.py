"""PyTorch-BigGraph's folders: what comes out is what PBG numbers, and what is broken is refused with one line."""

from __future__ import annotations

import json
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.name_lines import name_of
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DiskhopError, SourceError
from diskhop.importing.pbg.json_names import json_lines
from diskhop.importing.run import import_graph
from tests.examples import examples
from tests.graphs import folder_bytes, threads_engine

# Two types, of which users have two partitions; (lhs, rel, rhs) of each bucket, by ids within partitions.
COUNTS = {"user": [3, 2], "item": [4]}
RELATIONS = [("follows", "user", "user"), ("bought", "user", "item")]
BUCKETS = {
    (0, 0): [(0, 0, 2), (1, 1, 3)],
    (0, 1): [(2, 0, 1)],
    (1, 0): [(1, 0, 0), (0, 1, 0)],
    (1, 1): [],
}
# Types in their order, item first; partitions one after the other.
TRIPLES = [[4, 0, 6], [5, 1, 3], [6, 0, 8], [8, 0, 4], [7, 1, 0]]
NAMES = ["i0", "i1", "i2", "i3", "u0", "u1", "u2", "u3", "u4"]

Rows = Sequence[tuple[int, int, int]]
Change = Callable[[Path], object]


def write_edges(path: Path, rows: Rows | NDArray[np.int64], **options: Any) -> None:
    """Write edges as PBG's importer does."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    options = {"chunks": (1 << 20,), "maxshape": (None,), **options}
    with h5py.File(path, "w") as file:
        file.attrs["format_version"] = 1
        for name, column in zip(("lhs", "rel", "rhs"), columns, strict=True):
            file.create_dataset(name, data=column, **options)


def write_entities(folder: Path, counts: Mapping[str, Sequence[int]]) -> None:
    for name, of_partitions in counts.items():
        first = 0
        for partition, count in enumerate(of_partitions):
            (folder / f"entity_count_{name}_{partition}.txt").write_text(f"{count}\n")
            names = [f"{name[0]}{number}" for number in range(first, first + count)]
            (folder / f"entity_names_{name}_{partition}.json").write_text(json.dumps(names, indent=4))
            first += count


def write_folder(folder: Path, *, edges: str = ".") -> Path:
    """All of the above; edges: in which folder of it."""
    source = folder / "shop"
    source.mkdir()
    write_entities(source, COUNTS)
    relations = [{"name": name, "lhs": left, "rhs": right, "operator": "none"} for name, left, right in RELATIONS]
    entities = {name: {"num_partitions": len(counts)} for name, counts in COUNTS.items()}
    (source / "config.json").write_text(json.dumps({"entities": entities, "relations": relations}))
    (source / edges).mkdir(exist_ok=True)
    for (left, right), rows in BUCKETS.items():
        write_edges(source / edges / f"edges_{left}_{right}.h5", rows)
    return source


def write_freebase(folder: Path) -> Path:
    """One type in one partition, with relations of its own list, and three parts, called as PBG's example does."""
    source = folder / "FB15k"
    source.mkdir()
    write_entities(source, {"all": [5]})
    (source / "dynamic_rel_count.txt").write_text("2\n")
    (source / "dynamic_rel_names.json").write_text('["likes", "is"]')
    for number, part in enumerate(("train", "valid", "test")):
        edges = source / f"freebase_mtr100_mte100-{part}_partitioned"
        edges.mkdir()
        write_edges(edges / "edges_0_0.h5", [(number, 1, 4), (4, 0, number)])
    return source


def imported(source: Path, **options: Any) -> Dataset:
    options = {"engine": threads_engine(), "budget": Budget(1 << 30), "threads": 2, **options}
    return import_graph(source, source.parent / "graph", **options)


def triples_of(dataset: Dataset, part: str) -> list[list[int]]:
    triples = dataset.triples(part)
    assert triples is not None
    return [[int(number) for number in triple] for triple in triples]


@pytest.mark.parametrize("edges", [".", "edges", "edges_partitioned"])
def test_ids_are_numbered_over_types_and_partitions(tmp_path: Path, edges: str) -> None:
    facts: dict[str, Any] = {}
    dataset = imported(write_folder(tmp_path, edges=edges), on_facts=facts.update)
    assert triples_of(dataset, "all") == TRIPLES
    assert dataset.names("entities") == NAMES
    assert dataset.names("relations") == ["follows", "bought"]
    assert (dataset.name, dataset.num_nodes, dataset.num_relations) == ("shop", 9, 2)
    assert facts == {"entity_types": {"item": [0, 4], "user": [4, 5]}}
    assert verify(dataset.path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "shop"]


def test_parts_are_the_folders_as_pbg_names_them(tmp_path: Path) -> None:
    source = write_freebase(tmp_path)
    dataset = imported(source)
    found = [triples_of(dataset, part) for part in ("train", "valid", "test")]
    assert found == [[[number, 1, 4], [4, 0, number]] for number in range(3)]
    assert (dataset.names("relations"), dataset.num_nodes) == (["likes", "is"], 5)
    assert dataset.names("entities") == ["a0", "a1", "a2", "a3", "a4"]


def test_without_names_and_configuration_there_are_numbers(tmp_path: Path) -> None:
    source = write_freebase(tmp_path)
    for name in ("dynamic_rel_count.txt", "dynamic_rel_names.json", "entity_names_all_0.json"):
        (source / name).unlink()
    dataset = imported(source)
    assert (dataset.names("relations"), dataset.names("entities"), dataset.num_relations) == (None, None, 2)


def test_dynamic_relations_are_between_the_types_of_the_only_one(tmp_path: Path) -> None:
    source = write_folder(tmp_path)
    for path in source.glob("*.h5"):
        path.unlink()
    write_edges(source / "edges_0_0.h5", [(2, 6, 3)])
    write_edges(source / "edges_1_0.h5", [(1, 0, 0)])
    relation = {"name": "any", "lhs": "user", "rhs": "item"}
    (source / "config.json").write_text(json.dumps({"relations": [relation], "dynamic_relations": True}))
    (source / "dynamic_rel_count.txt").write_text("7")
    dataset = imported(source)
    assert triples_of(dataset, "all") == [[6, 6, 3], [8, 0, 0]]
    assert (dataset.num_relations, dataset.names("relations")) == (7, None)


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": None, "maxshape": None},
        {"compression": "gzip", "chunks": (3,)},
        {"compression": "gzip", "shuffle": True, "chunks": (4096,)},
        {"compression": "lzf", "chunks": (2,)},
    ],
    ids=["contiguous", "gzip", "shuffle", "lzf"],
)
def test_however_edges_are_stored_they_are_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write_folder(tmp_path)
    for (left, right), rows in BUCKETS.items():
        write_edges(source / f"edges_{left}_{right}.h5", rows, **options)
    assert triples_of(imported(source), "all") == TRIPLES


@pytest.mark.parametrize("dtype", ["<u1", ">i4", "<u8"])
def test_whole_numbers_of_any_kind_are_taken(tmp_path: Path, dtype: str) -> None:
    source = write_folder(tmp_path)
    for path in source.glob("*.h5"):
        with h5py.File(path, "r+") as file:
            for name in ("lhs", "rel", "rhs"):
                values = file[name][:]
                del file[name]
                file.create_dataset(name, data=values.astype(dtype))
    assert triples_of(imported(source), "all") == TRIPLES


def dataset_of(name: str, values: Any, **options: Any) -> Change:
    def change(source: Path) -> None:
        with h5py.File(source / "edges_0_0.h5", "r+") as file:
            del file[name]
            file.create_dataset(name, data=values, **options)

    return change


def version(value: Any) -> Change:
    def change(source: Path) -> None:
        with h5py.File(source / "edges_0_0.h5", "r+") as file:
            del file.attrs["format_version"]
            if value is not None:
                file.attrs["format_version"] = value

    return change


def linked(source: Path) -> None:
    shutil.copy(source / "edges_0_0.h5", source / "elsewhere.h5")
    with h5py.File(source / "edges_0_0.h5", "r+") as file:
        del file["lhs"]
        file["lhs"] = h5py.ExternalLink("elsewhere.h5", "/lhs")


def virtual(source: Path) -> None:
    layout = h5py.VirtualLayout((2,), "i8")
    layout[:] = h5py.VirtualSource("edges_1_0.h5", "lhs", (2,))
    with h5py.File(source / "edges_0_0.h5", "r+") as file:
        del file["lhs"]
        file.create_virtual_dataset("lhs", layout)


def external(source: Path) -> None:
    (source / "raw").write_bytes(bytes(16))
    with h5py.File(source / "edges_0_0.h5", "r+") as file:
        del file["lhs"]
        file.create_dataset("lhs", (2,), "i8", external=str(source / "raw"))


def grouped(source: Path) -> None:
    with h5py.File(source / "edges_0_0.h5", "r+") as file:
        del file["lhs"]
        file.create_group("lhs")


def truncated(source: Path) -> None:
    path = source / "edges_0_0.h5"
    path.write_bytes(path.read_bytes()[:-100])


def text(name: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda source: (source / name).write_bytes(data)


def without(name: str) -> Change:
    return lambda source: (source / name).unlink()


def relations(*given: Any, **more: Any) -> Change:
    return text("config.json", json.dumps({"relations": given, **more}))


BROKEN: dict[str, tuple[Change, str]] = {
    "truncated": (truncated, r"edges_0_0\.h5: cannot be read: .*truncated"),
    "no hdf5": (text("edges_0_0.h5", "lhs,rhs\n"), r"edges_0_0\.h5: cannot be read: .*signature not found"),
    "no version": (version(None), r"edges_0_0\.h5: its attribute format_version must be 1, got none"),
    "version 2": (version(2), r"format_version must be 1, got 2"),
    "a version of text": (version("1"), r"format_version must be 1, got no whole number"),
    "versions": (version([1, 1]), r"format_version must be 1, got no whole number"),
    "missing dataset": (
        lambda source: h5py.File(source / "edges_0_0.h5", "r+").__delitem__("rel"),
        r"edges_0_0\.h5: rel is missing",
    ),
    "lengths": (dataset_of("rel", [0]), r"its datasets must have one length, got lhs 2, rel 1, rhs 2"),
    "floats": (dataset_of("rel", [0.0, 1.0]), r"rel must be whole numbers in one dimension, got .*float64"),
    "booleans": (dataset_of("rel", [True, False]), r"rel must be whole numbers"),
    "texts": (dataset_of("rel", ["a", "b"]), r"rel must be whole numbers"),
    "square": (dataset_of("rel", [[0], [1]]), r"rel must be whole numbers in one dimension, got shape \(2, 1\)"),
    "scalar": (dataset_of("rel", 1), r"rel must be whole numbers in one dimension, got shape \(\)"),
    "filter": (dataset_of("rel", [0, 1], fletcher32=True), r"rel must be stored plain, .* got HDF5's filters \[3\]"),
    "link": (linked, r"lhs must be a dataset in the file itself"),
    "virtual": (virtual, r"lhs must be a dataset in the file itself"),
    "external": (external, r"lhs must be a dataset in the file itself"),
    "group": (grouped, r"lhs must be a dataset in the file itself"),
    "lhs": (dataset_of("lhs", [0, 3]), r"edges_0_0\.h5: lhs of edge 1 is 3, and there are 3, numbered from 0"),
    "negative": (dataset_of("lhs", [-1, 0]), r"lhs of edge 0 is -1, and there are 3"),
    "rhs": (dataset_of("rhs", [2, 4]), r"rhs of edge 1 is 4, and there are 4"),
    "rhs of another type": (dataset_of("rhs", [3, 3]), r"rhs of edge 0 is 3, and there are 3"),
    "large": (dataset_of("rhs", np.array([0, 2**64 - 1], np.uint64)), r"rhs of edge 1 is 18446744073709551615"),
    "rel": (dataset_of("rel", [0, 2]), r"rel of edge 1 is 2, and there are 2"),
    "missing bucket": (without("edges_1_1.h5"), r"edges_1_1\.h5: is missing, .* 2 x 2 buckets"),
    "another bucket": (text("edges_0_2.h5", ""), r"edges_0_2\.h5: is not among the 2 x 2 buckets"),
    "no bucket": (text("edges_0_x_.h5", ""), r"edges_0_x_\.h5: is not among"),
    "two parts": (
        lambda source: shutil.copytree(source, source / "train"),
        r"shop: has edges, like .*train, and the names .* give each folder the name of a different part",
    ),
    "missing count": (without("entity_count_user_0.txt"), r"entity_count_user_0\.txt: is missing"),
    "count": (text("entity_count_item_0.txt", "-4"), r"entity_count_item_0\.txt: must be one whole number"),
    "long count": (text("entity_count_item_0.txt", "4" * 101), r"must be at most 100 bytes"),
    "no names": (
        text("entity_count_item_1.txt", "1"),
        r"entity_names_item_1\.json: is missing, and other partitions have",
    ),
    "more partitions": (
        lambda source: [text(f"entity_count_item_{number}.txt", "1")(source) for number in (1, 2)],
        r"types must have equal numbers of partitions, or one; 'item' has 3 and 'user' 2",
    ),
    "missing names": (
        without("entity_names_user_1.json"),
        r"entity_names_user_1\.json: is missing, and other partitions have",
    ),
    "fewer names": (text("entity_names_item_0.json", '["a", "b"]'), r"item_0\.json: has 2 names for 4 ids"),
    "types without configuration": (without("config.json"), r"entities of 2 types \(item, user\), and only .*config"),
    "configuration": (text("config.json", "{"), r"config\.json: cannot be read: "),
    "nested": (text("config.json", "[" * 100_000), r"config\.json: cannot be read: maximum recursion"),
    "no relations": (text("config.json", "{}"), r"config\.json: must have a list of relations"),
    "relation": (relations({"name": "a", "lhs": "user"}), r"each relation must have name, lhs and rhs"),
    "type": (
        relations({"name": "a", "lhs": "user", "rhs": "shop"}),
        r"relation 'a' has entities 'shop', and there is no entity_count_shop_0.txt",
    ),
    "dynamic": (relations({}, {}, dynamic_relations=True), r"has 2 relations, and dynamic_relations requires one"),
    "dynamic count": (
        relations({"name": "a", "lhs": "user", "rhs": "item"}, dynamic_relations=True),
        r"dynamic_rel_count\.txt: is missing",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_one_line(tmp_path: Path, kind: str) -> None:
    change, message = BROKEN[kind]
    source = write_folder(tmp_path)
    change(source)
    with pytest.raises(SourceError, match=message) as caught:
        imported(source)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


def test_a_folder_without_edges_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "shop"
    source.mkdir()
    write_entities(source, {"all": [2]})
    with pytest.raises(SourceError, match=r"shop: has no edges_LHS_RHS\.h5"):
        imported(source)


def test_what_is_no_folder_of_pbg_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with pytest.raises(SourceError, match=r"shop: has no entity_count_TYPE_PARTITION\.txt"):
        imported(tmp_path / "shop", format_name="pbg")


def test_a_bucket_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source = write_folder(tmp_path)

    def change(stage: str, done: int, total: int) -> None:
        write_edges(source / "edges_1_0.h5", [(0, 0, 0)])

    with pytest.raises(SourceError, match=r"edges_1_0\.h5: changed while it was read"):
        imported(source, progress=change)


def test_options_of_edges_do_not_apply(tmp_path: Path) -> None:
    source = write_folder(tmp_path)
    assert run(["import", str(source), str(tmp_path / "graph"), "--undirected"]) == 2
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0


def test_without_h5py_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"requires h5py; install it with: pip install diskhop\[pbg\]"):
        imported(source)


def test_what_unpacking_takes_is_asked_for_before(tmp_path: Path) -> None:
    source = write_freebase(tmp_path)
    for path in source.glob("*/*.h5"):
        write_edges(path, [(0, 0, 0)], compression="gzip", chunks=(1 << 20,))
    with pytest.raises(BudgetError, match=r"unpacking HDF5 50\.3 MB"):
        imported(source, budget=Budget(40 << 20))
    budget = Budget(80 << 20)
    assert triples_of(imported(source, budget=budget), "test") == [[0, 0, 0]]
    assert budget.table()["unpacking HDF5"] == 6 * 8 << 20


def test_edges_and_names_are_streamed_not_loaded(tmp_path: Path) -> None:
    num_edges, num_names = 3_000_000, 500_000  # more than what is read whole when a dataset is opened
    source = write_freebase(tmp_path)
    write_edges(next(source.glob("*train*/*.h5")), np.zeros((num_edges, 3), np.int64))
    (source / "entity_count_all_0.txt").write_text(str(num_names))
    names = [f"entity number {number}" for number in range(num_names)]
    (source / "entity_names_all_0.json").write_text(json.dumps(names, indent=4))
    tracemalloc.start()
    dataset = imported(source)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dataset.names("entities") == names
    assert peak_bytes < 24 * num_edges / 3


@examples(60)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8),
    indent=st.none() | st.integers(0, 4),
    is_ascii=st.booleans(),
    block_bytes=st.integers(1, 40),
)
def test_names_of_any_characters_come_out_as_lines(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], indent: int | None, is_ascii: bool, block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("names") / "names.json"
    path.write_text(json.dumps(names, indent=indent, ensure_ascii=is_ascii), newline="")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("diskhop.importing.pbg.json_names._BLOCK_BYTES", block_bytes)
        content = b"".join(block.tobytes() for block in json_lines(path, len(names)))
    assert list(map(name_of, content.decode().split("\n")[:-1])) == names


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 18])
@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "{}",
        '"a"',
        "[",
        '["a"',
        '["a",',
        '["a",]',
        "[,]",
        '["a" "b"]',
        '["a", 1]',
        '[["a"]]',
        '["a"]]',
        '["a"], "b"]',
        '["a\\x"]',
        '["a\nb"]',
        '["\\ud800"]',
        '["\udc80"]',
        "[" * 100_000,
        "[" + " " * 300_000,
        '["' + "a" * 600_000 + '"]',
    ],
    ids=range(21),
)
def test_what_is_no_list_of_names_is_one_line(tmp_path: Path, content: str, block_bytes: int) -> None:
    path = tmp_path / "names.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(SourceError, match=r"names\.json: ") as caught:
        list(json_lines(path, 1, block_bytes=max(block_bytes, len(content) // 20)))
    assert "\n" not in str(caught.value)


def test_damaged_bytes_give_one_line_or_a_graph(tmp_path: Path) -> None:
    source = write_freebase(tmp_path)
    path = next(source.glob("*train*/*.h5"))
    write_edges(path, [(0, 1, 4), (4, 0, 0)], chunks=(16,), compression="gzip")
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    num_refused = 0
    for _ in range(50):
        damaged = np.frombuffer(content, np.uint8).copy()
        damaged[generator.integers(0, len(content), 4)] = generator.integers(0, 256, 4)
        path.write_bytes(damaged.tobytes())
        refused = ""
        try:
            imported(source)
        except DiskhopError as error:
            refused = str(error)
        assert "\n" not in refused
        assert (tmp_path / "graph").exists() == (not refused)
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        num_refused += bool(refused)
    assert 5 < num_refused < 50


def test_a_second_import_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_folder(tmp_path)
    first = folder_bytes(imported(source).path)
    shutil.rmtree(tmp_path / "graph")
    assert folder_bytes(imported(source, threads=1, budget=Budget(20 << 20)).path) == first
