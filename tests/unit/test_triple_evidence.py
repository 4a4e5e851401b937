"""Folders of triples have parts by any name, columns in any order, names or ids, counts and headers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DiskhopError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.sources import SOURCES
from tests.graphs import threads_engine

Files = dict[str, str]
DICTIONARIES: Files = {"entity2id.txt": "ann\t0\nbob\t1\ncid\t2\n", "relation2id.txt": "knows\t0\nlikes\t1\n"}
NUMBERED: Files = {"entities.dict": "0\tann\n1\tbob\n2\tcid\n", "relations.dict": "0\tknows\n1\tlikes\n"}
TRAIN = [("ann", "knows", "bob"), ("bob", "likes", "cid")]


def imported(folder: Path, files: Files, **options: object) -> Dataset:
    source = folder / "kg"
    source.mkdir()
    for name, content in files.items():
        data = content.encode()
        (source / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    made = ImportOptions(**options)  # type: ignore[arg-type]
    found: dict[str, object] = {}
    return import_graph(
        source, folder / "graph", options=made, engine=threads_engine(), budget=Budget(300 << 20), on_facts=found.update
    )


def triples(dataset: Dataset, part: str = "train") -> list[tuple[str, str, str]]:
    entities, relations, found = dataset.names("entities"), dataset.names("relations"), dataset.triples(part)
    assert entities is not None
    assert relations is not None
    assert found is not None
    return [(entities[head], relations[relation], entities[tail]) for head, relation, tail in found.tolist()]


@pytest.mark.parametrize(
    "name",
    ["dev.txt", "val.tsv", "validation.txt", "valid.csv", "Valid.txt", "valid", "dev.tsv.gz"],
)
def test_parts_by_other_names_are_found(tmp_path: Path, name: str) -> None:
    text = "ann\tlikes\tcid\n"
    files = {
        "train.txt": "ann\tknows\tbob\nbob\tlikes\tcid\n",
        name: text.replace("\t", "," if "csv" in name else "\t"),
    }
    dataset = imported(tmp_path, files)
    assert triples(dataset) == TRAIN
    assert triples(dataset, "valid") == [("ann", "likes", "cid")]


def test_parts_that_are_called_after_their_graph_are_found(tmp_path: Path) -> None:
    files = {
        "wn18-train.txt": "ann\tknows\tbob\nbob\tlikes\tcid\n",
        "wn18-valid.txt": "ann\tlikes\tcid\n",
        "wn18-test.txt": "cid\tlikes\tann\n",
    }
    dataset = imported(tmp_path, files)
    assert triples(dataset) == TRAIN
    assert triples(dataset, "test") == [("cid", "likes", "ann")]


def test_two_files_of_one_part_are_refused(tmp_path: Path) -> None:
    text = "ann\tknows\tbob\n"
    with pytest.raises(SourceError, match=r"dev\.txt: there is also valid\.txt"):
        imported(tmp_path, {"train.txt": text, "dev.txt": text, "valid.txt": text})


@pytest.mark.parametrize("dictionaries", [DICTIONARIES, NUMBERED], ids=["name first", "id first"])
@pytest.mark.parametrize(
    "train",
    [
        "ann\tknows\tbob\nbob\tlikes\tcid\n",
        "ann\tbob\tknows\nbob\tcid\tlikes\n",
        "knows\tann\tbob\nlikes\tbob\tcid\n",
        "ann bob knows\nbob cid likes\n",
        "ann,knows,bob\nbob,likes,cid\n",
        "0\t0\t1\n1\t1\t2\n",
        "0\t1\t0\n1\t2\t1\n",
        "0 0 1\n1 1 2\n",
        " 0  0 1 \n1 1 2\n",
        "ann\tknows\tbob\t\nbob\tlikes\tcid\t\n",
        "head\trelation\ttail\nann\tknows\tbob\nbob\tlikes\tcid\n",
        "subject,object,predicate\nann,bob,knows\nbob,cid,likes\n",
        "2\nann\tknows\tbob\nbob\tlikes\tcid\n",
    ],
)
def test_dictionaries_and_headers_tell_the_columns(tmp_path: Path, dictionaries: Files, train: str) -> None:
    assert triples(imported(tmp_path, {**dictionaries, "train.txt": train})) == TRAIN


@pytest.mark.parametrize("between", [" ", "\t"])
@pytest.mark.parametrize("has_counts", [True, False])
def test_the_folders_of_openke(tmp_path: Path, between: str, has_counts: bool) -> None:
    counts = {"entity2id.txt": "4\n", "relation2id.txt": "2\n", "train2id.txt": "3\n", "test2id.txt": "1\n"}
    files = {
        "entity2id.txt": "ann\t0\nbob\t1\ncid\t2\ndan\t3\n",
        "relation2id.txt": "knows\t0\nlikes\t1\n",
        "train2id.txt": "0 1 0\n1 2 1\n1 0 0\n".replace(" ", between),
        "test2id.txt": "0 1 1\n".replace(" ", between),
    }
    if has_counts:
        files = {name: counts[name] + text for name, text in files.items()}
    dataset = imported(tmp_path, {**files, "type_constrain.txt": "1\n"})
    assert triples(dataset) == [*TRAIN, ("bob", "knows", "ann")]
    assert triples(dataset, "test") == [("ann", "likes", "bob")]


@pytest.mark.parametrize("what", ["train2id.txt", "entity2id.txt"])
def test_a_count_that_is_wrong_is_named(tmp_path: Path, what: str) -> None:
    files = {**DICTIONARIES, "train2id.txt": "0 1 0\n1 2 1\n"}
    with pytest.raises(SourceError, match=rf"{what}: has . \w+, its first line says 7; correct one of them"):
        imported(tmp_path, {**files, what: "7\n" + files[what]})


def test_the_folders_of_dgl_ke(tmp_path: Path) -> None:
    files = {
        "entities.tsv": "0\tann\n1\tbob\n2\tcid\n",
        "relations.tsv": "0\tknows\n1\tlikes\n",
        "train.tsv": "0\t0\t1\n1\t1\t2\n",
        "valid.tsv": "0\t1\t2\n",
    }
    assert triples(imported(tmp_path, files)) == TRAIN


def test_names_that_are_numbers_are_names_where_the_dictionary_has_them(tmp_path: Path) -> None:
    files = {
        "entities.dict": "0\t30\n1\t10\n2\t20\n",
        "relations.dict": "0\t1\n1\t0\n",
        "train.txt": "30\t1\t10\n20\t0\t30\n",
        "test.txt": "10\t0\t20\n",
    }
    assert triples(imported(tmp_path, files)) == [("30", "1", "10"), ("20", "0", "30")]


def test_a_list_of_entities_without_ids_is_no_dictionary(tmp_path: Path) -> None:
    train = "ann\tknows\tbob\nbob\tlikes\tcid\n"
    files = {"entities.txt": "cid\nbob\nann\n", "train.tsv": train, "dev.tsv": "ann\tlikes\tcid\n"}
    assert triples(imported(tmp_path, files)) == TRAIN


def test_columns_name_head_relation_and_tail(tmp_path: Path) -> None:
    files = {"train.txt": "ann\tbob\tknows\t2014\nbob\tcid\tlikes\t2015\n", "test.txt": "ann\tcid\tknows\t2016\n"}
    with pytest.raises(DiskhopError, match="name the three, as --columns 1,2,3"):
        imported(tmp_path, files)
    (tmp_path / "again").mkdir()
    dataset = imported(tmp_path / "again", files, columns=("1", "3", "2"))
    assert triples(dataset) == TRAIN
    assert dataset.names("relations") == ["knows", "likes"]


def test_columns_by_the_names_of_a_header(tmp_path: Path) -> None:
    files = {
        "train.txt": "to_\tby_\tfrom_\nbob\tknows\tann\ncid\tlikes\tbob\n",
        "test.txt": "to_\tby_\tfrom_\nann\tlikes\tcid\n",
    }
    dataset = imported(tmp_path, files, columns=("from_", "by_", "to_"))
    assert triples(dataset) == TRAIN


@pytest.mark.parametrize("train", ["s\tr\tt\nt\tr\ts\n", "head\tof\ttail\nhead\tof\ttail\n", "h\tr\tt\nh\tr\tx\n"])
def test_short_names_are_no_header(tmp_path: Path, train: str) -> None:
    dataset = imported(tmp_path, {"train.txt": train, "test.txt": train})
    found = dataset.triples("train")
    assert found is not None
    assert len(found) == 2


@pytest.mark.parametrize(
    "train",
    ["1 2 3\n2 3 1\n", "1,2,.5\n2,3,1\n", "1\t2\n2\t3\n", "ann ben\nben cem\n"],
    ids=["weights", "csv", "tab", "blank"],
)
def test_folders_of_edges_are_no_triples(tmp_path: Path, train: str) -> None:
    source = tmp_path / "edges"
    source.mkdir()
    for name in ("train.txt", "test.txt"):
        (source / name).write_text(train)
    assert not SOURCES["triples"].detect(source)


def test_other_files_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "kg"
    source.mkdir()
    for name in ("train.txt", "test.txt", "test_hard.txt"):
        (source / name).write_text("ann\tknows\tbob\n")
    found: dict[str, object] = {}
    import_graph(source, tmp_path / "graph", engine=threads_engine(), on_facts=found.update)
    assert found["passed_over"] == ["test_hard.txt"]
