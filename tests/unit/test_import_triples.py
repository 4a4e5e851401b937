"""Triples in texts: which folders are taken for which, and what is refused with which line."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DestinationError, SourceError
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.graphs import SHARED_DATA, edges_of, folder_bytes, threads_engine

Files = dict[str, str | bytes]

NAMES: Files = {
    "train.txt": "b\tlikes\ta\nc\tis\tb\n",
    "valid.txt": "a\tlikes\tc\n",
    "test.txt": "c\tlikes\ta\n",
}
DICTIONARIES: Files = {"entities.dict": "0\ta\n1\tb\n2\tc\n", "relations.dict": "0\tis\n1\tlikes\n"}
IDS: Files = {"train.del": "1\t1\t0\n2\t0\t1\n", "valid.del": "0\t1\t2\n", "test.del": "2\t1\t0\n"}
DESCRIBED: Files = {
    **IDS,
    "dataset.yaml": "dataset:\n  name: kg\n  num_entities: 3\n  num_relations: 2\n",
    "entity_ids.del": DICTIONARIES["entities.dict"],
    "relation_ids.del": DICTIONARIES["relations.dict"],
}
TRIPLES = {"train": [[1, 1, 0], [2, 0, 1]], "valid": [[0, 1, 2]], "test": [[2, 1, 0]]}


def write(folder: Path, files: Files) -> Path:
    source = folder / "kg"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return source


def imported(source: Path, **options: Any) -> Dataset:
    options = {"engine": threads_engine(), "budget": Budget(1 << 30), "threads": 2, **options}
    return import_graph(source, source.parent / "graph", **options)


def renamed(files: Files, **names: str) -> Files:
    return {names.get(name.replace(".", "_"), name): content for name, content in files.items()}


@pytest.mark.parametrize(
    "files",
    [
        NAMES,
        {**NAMES, "README.md": "what it is"},
        renamed(NAMES, train_txt="train.tsv"),
        {**DICTIONARIES, **NAMES},
        {**DICTIONARIES, **IDS},
        DESCRIBED,
        {**DESCRIBED, **NAMES},
        {
            **renamed(DESCRIBED, train_del="learn.del", entity_ids_del="things.del"),
            "dataset.yaml": (
                "# LibKGE\ndataset:\n  name: 'kg'\n  files.train.filename: learn.del # so\n  files.train.size: 2\n"
                '  files.entity_ids.filename: "things.del"\n  num_entities: 3\n  other:\n  - 1\n'
            ),
            "train.del": "9\t9\t9\n",
        },
    ],
    ids=["names", "and more", "tsv", "dictionaries", "ids", "libkge", "libkge and names", "described"],
)
def test_every_layout_gives_the_same_dataset(tmp_path: Path, files: Files) -> None:
    dataset = imported(write(tmp_path, files))
    found = {part: triples.tolist() for part in TRIPLES if (triples := dataset.triples(part)) is not None}
    assert found == TRIPLES
    assert (dataset.names("entities"), dataset.names("relations")) == (["a", "b", "c"], ["is", "likes"])
    assert (dataset.name, dataset.num_nodes, dataset.num_relations, dataset.num_edges) == ("kg", 3, 2, 0)
    assert verify(dataset.path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "kg"]


@pytest.mark.parametrize(
    "text",
    [
        "b\tlikes\ta\nc\tis\tb",
        "b\tlikes\ta\r\nc\tis\tb\r\n",
        "\ufeffb\tlikes\ta\nc\tis\tb\n",
        "\n\nb\tlikes\ta\n\r\nc\tis\tb\n\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_harmless_differences_in_the_text_make_none_in_the_triples(tmp_path: Path, text: str, packed: bool) -> None:
    data = gzip.compress(text.encode()) if packed else text.encode()
    source = write(tmp_path, {**NAMES, "train.txt": data})
    if packed:
        (source / "train.txt").rename(source / "train.txt.gz")
    dataset = imported(source)
    train = dataset.triples("train")
    assert train is not None
    assert train.tolist() == TRIPLES["train"]


def test_names_are_whatever_is_between_tabs(tmp_path: Path) -> None:
    names = ['"quoted', "#no comment", " a blank ", "NULL", "a,b", "\\t", "\u00e9", "\U0001f600", "7"]
    text = "".join(f"{name}\tis\t{name}\n" for name in names)
    dataset = imported(write(tmp_path, {**NAMES, "train.txt": text}))
    found = dataset.names("entities")
    assert found == sorted([*names, "a", "c"], key=str.encode)


def test_one_text_is_all_of_them_and_must_be_named(tmp_path: Path) -> None:
    source = tmp_path / "kinship.tsv"
    source.write_text("b\tlikes\ta\nc\tis\tb\n")
    with pytest.raises(SourceError, match="two columns"):
        imported(source)
    dataset = imported(source, format_name="triples")
    every = dataset.triples("all")
    assert every is not None
    assert (every.tolist(), dataset.name, dataset.triples("train")) == (TRIPLES["train"], "kinship", None)


def test_folders_of_edges_stay_edges(tmp_path: Path) -> None:
    source = write(tmp_path, {"train.txt": "0\t1\n", "valid.txt": "1\t2\n", "test.txt": "2\t0\n"})
    assert sorted(edges_of(imported(source))) == [(0, 1), (1, 2), (2, 0)]


MALFORMED: list[tuple[Files, str, str]] = [
    ({"train.txt": "a\tis\tb\na\tis\n"}, "train.txt, line 2", "3 columns between tabs, head, relation, tail, got 2"),
    ({"train.txt": "a\tis\tb\n\na\tis\tb\tc\n"}, "train.txt, line 3", "got 4; fix the line"),
    ({"train.txt": "a\tis\tb\na is b\n"}, "train.txt, line 2", "got 1; fix"),
    ({"train.txt": "a\tis\tb\r\n \r\n"}, "train.txt, line 2", "got 1; fix"),
    ({"train.txt": "a\tis\tb\n\tis\tb\n"}, "train.txt, line 2", "the head is missing"),
    ({"train.txt": "a\tis\tb\na\t\tb\n"}, "train.txt, line 2", "the relation is missing"),
    ({"train.txt": "a\tis\tb\na\tis\t\r\n"}, "train.txt, line 2", "the tail is missing"),
    ({"valid.txt": b"a\tis\tb\n\xe9\tis\tb\n"}, "valid.txt, line 2", "UTF-8, got byte 0xe9"),
    ({"valid.txt": b"a\tis\t\xe2\x82"}, "valid.txt, line 1", "UTF-8, got byte 0xe2"),
    ({"train.txt": "a\tis\tb\n".encode("utf-16")}, "train.txt, line 1", "UTF-8"),
    ({"train.txt": "a\tis\tb\rc\tis\td\n"}, "train.txt, line 1", "CR"),
    ({"train.txt": "a\tis\t" + "b" * (1 << 19) + "\n"}, "train.txt, line 1", "the tail must be at most 262144 bytes"),
    ({"train.txt": "a\tis\tb\n" + "b" * (1 << 21) + "\n"}, "train.txt, line 2", "bytes long"),
    ({"test.txt": ""}, "test.txt", "has no triples; add some, or remove the file"),
    ({"test.txt": "\n\n"}, "test.txt", "has no triples"),
    ({"train.txt": ""}, "train.txt", "has no triples; add some, or remove the file"),
    ({"test.txt": "\ufeff"}, "test.txt", "has no triples"),
]
MALFORMED_DICTIONARIES: list[tuple[Files, str, str]] = [
    (
        {"entities.dict": "0\ta\n1\tb\n1\tc\n"},
        "entities.dict, line 3",
        "the id '1' occurs before; remove one of the lines",
    ),
    ({"entities.dict": "0\ta\n1\tb\n2\ta\n3\tc\n"}, "entities.dict, line 3", "the name 'a' occurs before"),
    ({"entities.dict": "0\ta\n3\tb\n2\tc\n"}, "entities.dict, line 2", "the id 3 must be less than 3"),
    ({"entities.dict": "0\ta\n1\n2\tc\n"}, "entities.dict, line 2", "2 columns between tabs, id, name, got 1"),
    ({"entities.dict": "0\ta\n1\tb\n2\t\n"}, "entities.dict, line 3", "the name is missing"),
    ({"entities.dict": "a\t0\n1\tb\n2\tc\n"}, "entities.dict, line 1", "the id must be a whole number, got 'a'"),
    ({"entities.dict": "0\ta\n-1\tb\n2\tc\n"}, "entities.dict, line 2", "whole number, got '-1'"),
    ({"entities.dict": "0\ta\n\u0662\tb\n2\tc\n"}, "entities.dict, line 2", "whole number, got '\u0662'"),
    ({"entities.dict": "0\ta\n" + "9" * 30 + "\tb\n"}, "entities.dict, line 2", "at most 14 digits, got '999"),
    ({"entities.dict": b"0\ta\n1\t\xff\n2\tc\n"}, "entities.dict, line 2", "UTF-8, got byte 0xff"),
    ({"relations.dict": ""}, "relations.dict", "has no names; add one line per id"),
]
FOR_NAMES: list[tuple[Files, str, str]] = [
    ({"entities.dict": "0\ta\n1\tb\n"}, "train.txt, line 2", "the head 'c' is not among the entities; add it there"),
    ({"relations.dict": "0\tis\n"}, "train.txt, line 1", "the relation 'likes' is not among the relations"),
    ({"valid.txt": "a\tis\tb\n\na\tis\td\n"}, "valid.txt, line 3", "the tail 'd' is not among the entities"),
]
FOR_IDS: list[tuple[Files, str, str]] = [
    ({"train.del": "0\t0\t0\n\n3\t0\t1\n"}, "train.del, line 3", "the head 3 must be less than 3, the number of entit"),
    ({"train.del": "0\t0\t0\n1\t2\t1\n"}, "train.del, line 2", "the relation 2 must be less than 2"),
    ({"test.del": "0\t0\t3\n"}, "test.del, line 1", "the tail 3 must be less than 3"),
    ({"train.del": "0\t0\t0\n1\tx\t1\n"}, "train.del, line 2", "the relation must be a whole number, got 'x'"),
    ({"train.del": "0\t0\t0\n1\t1.0\t1\n"}, "train.del, line 2", "whole number, got '1.0'"),
    ({"train.del": "0\t0\t0\n1\t1\t" + "0" * 40 + "\n"}, "train.del, line 2", "at most 14 digits"),
    ({"train.del": "0\t0\t0\n1\t1\t1 \n"}, "train.del, line 2", "whole number, got '1 '"),
    ({"train.del": "\n"}, "train.del", "has no triples"),
]
CASES = [
    *((NAMES, *case) for case in MALFORMED),
    *(({**NAMES, **DICTIONARIES}, *case) for case in MALFORMED_DICTIONARIES + FOR_NAMES),
    *(({**IDS, **DICTIONARIES}, *case) for case in MALFORMED_DICTIONARIES + FOR_IDS),
]


@pytest.mark.fast(49)
@pytest.mark.parametrize("slice_bytes", [7, ImportLimits().triples_slice_bytes], ids=["slices", "whole"])
@pytest.mark.parametrize(("files", "changes", "place", "told"), CASES)
def test_malformed_text_is_one_line_with_file_and_line(
    tmp_path: Path,
    files: Files,
    changes: Files,
    place: str,
    told: str,
    slice_bytes: int,
) -> None:
    if any(len(content) > 1 << 18 for content in changes.values()):
        slice_bytes = max(slice_bytes, 1 << 20)  # else more slices than anybody waits for
    source = write(tmp_path, {**files, **changes})
    with pytest.raises(SourceError) as caught:
        imported(source, format_name="triples", limits=ImportLimits(triples_slice_bytes=slice_bytes))
    message = str(caught.value)
    assert message.startswith(f"{source / place}: ")
    assert told in message
    assert "\n" not in message
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"notes.txt": "a\tis\tb\n"}, "kg: has no train.txt, train.tsv or train.del"),
        ({**NAMES, "train.tsv": "a\tis\tb\n"}, "train.tsv: there is also train.txt; remove one"),
        ({**NAMES, "train.txt.gz": b""}, "train.txt: there is also train.txt.gz; remove one"),
        (
            {**NAMES, "train.txt": gzip.compress(b"a\tis\tb\n" * 99, mtime=0)[:-9]},
            "train.txt, line 100: gzip must end with its checksum",
        ),
        ({**DICTIONARIES, **NAMES, "valid.txt": "", "valid.del": ""}, "valid.del: there is also valid.txt; remove one"),
        (
            {**DICTIONARIES, "train.txt": "a\tis\tb\n", "test.del": "0\t0\t0\n"},
            "has train.txt and test.del; *.del has ids",
        ),
        (IDS, "train.del: has ids, and the names of the ids are missing; give a folder with dataset.yaml"),
        ({**NAMES, "entities.dict": "0\ta\n"}, "entities.dict: requires relations.dict in the same folder"),
        ({**IDS, "dataset.yaml": "dataset:\n"}, "has dataset.yaml but no entity_ids.del; add the names of its ids"),
        (
            {**DESCRIBED, "dataset.yaml": "dataset:\n  num_relations: 7\n"},
            "relation_ids.del: has 2 names, the description in its folder says 7",
        ),
        (
            {**DESCRIBED, "dataset.yaml": "dataset:\n  files.train.filename: ../train.del\n"},
            "dataset.yaml: names the file '../train.del'; name one in the same folder",
        ),
        (
            {**DESCRIBED, "dataset.yaml": "dataset:\n  files.train.filename: ..\n"},
            "..: is not a regular file; give a text of triples",
        ),
        ({**DESCRIBED, "dataset.yaml": b"dataset:\n  name: \xff\n"}, "dataset.yaml: cannot be read: 'utf-8' codec"),
        ({**DESCRIBED, "dataset.yaml": b" " * (1 << 21)}, "dataset.yaml: must be at most 1048576 bytes long"),
    ],
)
def test_folders_that_are_not_whole_are_one_line(tmp_path: Path, files: Files, told: str) -> None:
    with pytest.raises(SourceError) as caught:
        imported(write(tmp_path, files), format_name="triples")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "graph").exists()


def test_ids_alone_in_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.del").write_text("0\t0\t0\n")
    with pytest.raises(SourceError, match="has ids, and the names of the ids are missing"):
        imported(tmp_path / "train.del", format_name="triples")


def test_options_of_other_formats_are_refused(tmp_path: Path) -> None:
    from diskhop.importing.options import ImportOptions

    with pytest.raises(ConfigError, match="--undirected does not apply to a folder with train, valid and test"):
        imported(write(tmp_path, NAMES), options=ImportOptions(undirected=True))


def test_too_small_a_budget_is_refused_up_front(tmp_path: Path) -> None:
    source = write(tmp_path, {**NAMES, "train.txt": "a\tis\tb\n" * 500_000})
    with pytest.raises(BudgetError, match="parsing triples") as caught:
        imported(source, budget=Budget(80 << 20))
    smallest_bytes = caught.value.smallest_bytes
    assert smallest_bytes is not None
    assert smallest_bytes > WRITER_BYTES + (64 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["kg"]
    assert imported(source, budget=Budget(smallest_bytes)).num_nodes == 3


def test_a_destination_that_duckdb_cannot_name_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, NAMES)
    with pytest.raises(DestinationError, match="must be valid UTF-8"):
        import_graph(source, tmp_path / "g\udcff", engine=threads_engine(), budget=Budget(1 << 30))


def test_texts_are_parsed_in_slices_not_loaded(tmp_path: Path) -> None:
    # Names are long: a dataset's files of less than 64 MiB are read whole when it is opened.
    text = "".join(f"entity {n % 977:0150d}\tis\tentity {n % 1009:0150d}\n" for n in range(100_000))
    source = write(tmp_path, {**NAMES, "train.txt": text})
    num_bytes = len(text)
    del text
    tracemalloc.start()
    dataset = imported(source, budget=Budget(150 << 20), threads=1)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    train = dataset.triples("train")
    assert train is not None
    assert len(train) == 100_000
    assert num_bytes > 30_000_000
    assert peak_bytes < num_bytes / 2


def test_the_command_line_imports_triples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path, NAMES)
    assert run(["import", str(source), str(tmp_path / "graph"), "--memory", "300MB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"]["node"]["count"] == 3


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize("style", ["names", "dictionaries", "described"])
def test_a_real_graph_written_as_text_is_the_one_in_arrays(tmp_path: Path, style: str) -> None:
    expected = import_graph(SHARED_DATA / "codex-s", tmp_path / "arrays", name="kg", engine=threads_engine())
    entities, relations = expected.names("entities"), expected.names("relations")
    assert entities is not None
    assert relations is not None
    files: Files = {}
    for part in TRIPLES:
        listed = expected.triples(part)
        assert listed is not None
        if style == "described":
            files[f"{part}.del"] = "".join(f"{h}\t{r}\t{t}\n" for h, r, t in listed.tolist())
        else:
            files[f"{part}.txt"] = "".join(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in listed)
    names = {"dictionaries": ("entities.dict", "relations.dict"), "described": ("entity_ids.del", "relation_ids.del")}
    for name, listed_names in zip(names.get(style, ()), (entities, relations), strict=False):
        files[name] = "".join(f"{number}\t{value}\n" for number, value in enumerate(listed_names))
    if style == "described":
        files["dataset.yaml"] = "dataset:\n  name: kg\n"
    dataset = imported(write(tmp_path, files))
    if style == "names" and entities != sorted(entities):
        new_entities, new_relations = dataset.names("entities"), dataset.names("relations")
        assert new_entities is not None
        assert new_relations is not None
        for part in TRIPLES:
            old, new = expected.triples(part), dataset.triples(part)
            assert old is not None
            assert new is not None
            ranks = np.argsort(np.argsort(np.array([name.encode() for name in entities])))
            np.testing.assert_array_equal(new[:, [0, 2]], ranks[old[:, [0, 2]]])
            assert [new_relations[r] for r in new[:, 1]] == [relations[r] for r in old[:, 1]]
    else:
        assert folder_bytes(dataset.path) == folder_bytes(expected.path)


def test_gzip_that_is_damaged_where_the_format_is_detected_has_its_file(tmp_path: Path) -> None:
    packed = gzip.compress("".join(f"e{n}\tr\te{n * n}\n" for n in range(20_000)).encode())
    write(tmp_path, {**NAMES, "train.txt.gz": packed[:500] + b"\xff\x00\xff" + packed[503:]})
    (tmp_path / "kg" / "train.txt").unlink()
    with pytest.raises(SourceError, match=r"train\.txt\.gz, line 1: gzip must match its checksum"):
        import_graph(tmp_path / "kg", tmp_path / "graph", engine=threads_engine())
