"""Files from elsewhere: archives without end, paths that lead elsewhere, forged counts, names that a terminal obeys."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diskhop
from diskhop.cli import run
from diskhop.cli.output import plain_json
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import TABLES_FILE
from diskhop.errors import FormatError, SourceError
from diskhop.hops.tables import VERSION, open_hop_tables
from diskhop.importing.arrays.npy import archive_arrays, file_array
from diskhop.importing.text import packing
from diskhop.importing.text.streams import damage_errors, open_text, require_unpacks
from diskhop.io.manifests import encode_manifest, read_manifest
from tests.hop_tables import write_hop_tables
from tests.runs import small_graph


def zstd(content: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, 1),
    "bz2": lambda content: bz2.compress(content, 1),
    "xz": lambda content: lzma.compress(content, preset=0),
    "zstd": zstd,
}


def read_all(path: Path) -> None:
    with open_text(path) as text, damage_errors(path):
        while text.read1(1 << 18):
            pass


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Edges: hardly compressible ones first, as the estimate sees them, then thirty times as many that are equal."""
    pairs = np.random.default_rng(0).integers(10**8, 10**9, (50_000, 2))
    return b"".join(b"%d %d\n" % (one, other) for one, other in pairs.tolist()) + b"1 2\n" * 4_000_000


@pytest.mark.fast("gzip")
@pytest.mark.parametrize("name", COMPRESS)
def test_a_text_that_inflates_without_end_is_stopped(
    tmp_path: Path, bomb: bytes, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edges.txt"
    path.write_bytes(COMPRESS[name](bomb))
    assert path.stat().st_size < len(bomb) / 15
    monkeypatch.setattr(packing, "_MOST_MORE_BYTES", 1 << 18)
    with pytest.raises(SourceError) as caught:
        read_all(path)
    words = f"{path}, line 1: {name} content must be about as long as its start promises, got more than "
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("unpack it yourself if it is right")


@pytest.mark.slow
def test_an_import_of_what_inflates_without_end_leaves_nothing(
    tmp_path: Path, bomb: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "edges.txt.gz"
    path.write_bytes(COMPRESS["gzip"](bomb))
    monkeypatch.setattr(packing, "_MOST_MORE_BYTES", 1 << 18)
    assert run(["import", str(path), str(tmp_path / "graph")]) == 2
    assert "content must be about as long as its start promises" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["edges.txt.gz"]


def test_names_that_inflate_without_end_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    np.savez(source / "data.npz", train=np.array([[0, 0, 2]]), num_entities=np.int64(3))
    start = np.random.default_rng(0).integers(65, 90, 400_000, np.uint8).tobytes()
    (source / "entities.txt.gz").write_bytes(gzip.compress(start + b"x" * 20_000_000, 1))
    monkeypatch.setattr(packing, "_MOST_MORE_BYTES", 1 << 18)
    with pytest.raises(SourceError, match=r"entities.txt.gz, line 1: gzip content must be about as long"):
        diskhop.import_graph(source, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


FINDINGS = Path(__file__).parents[1] / "fuzz" / "corpus"


@pytest.mark.parametrize("finding", ["an-xz-dictionary-of-a-gigabyte", "a-zip-dictionary-of-4-gigabytes"])
def test_a_text_that_asks_for_gigabytes_to_unpack_is_refused(tmp_path: Path, finding: str) -> None:
    path = tmp_path / "edges.txt"
    shutil.copy(FINDINGS / "packed_text" / finding, path)
    with pytest.raises(SourceError) as caught:
        diskhop.import_graph(path, tmp_path / "graph")
    packing = finding.split("-")[1]
    words = f"{path}, line 1: {packing} content must be unpacked with at most 268 MB of memory, this file asks for more"
    assert str(caught.value) == f"{words}; unpack it yourself if it is right"
    assert [each.name for each in tmp_path.iterdir()] == ["edges.txt"]


def test_an_array_that_asks_for_gigabytes_to_unpack_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    shutil.copy(FINDINGS / "arrays" / "a-dictionary-of-4-gigabytes.npz", path)
    with pytest.raises(SourceError, match=r"data.npz: x: cannot be read: LZMA content must be unpacked with at most"):
        archive_arrays(path)


def test_all_streams_of_an_xz_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    one = lzma.compress(b"0 1\n" * 50_000)
    # Streams may be padded, which Python's own reader takes for the end.
    path.write_bytes(one + bytes(70_000) + one + lzma.compress(b"") + one + b"what follows is left alone")
    with open_text(path) as text:
        assert text.read() == b"0 1\n" * 150_000
    for cut in (len(one) // 2, len(one) - 1):
        path.write_bytes(one + one[:cut])
        with pytest.raises(SourceError, match=r"edges.txt, line \d+: xz must end with its checksum"):
            require_unpacks(path)


@pytest.mark.parametrize("shape", [(2**63,), (2**64 - 1, 2**64 - 1), (2**62, 4), (2**63 - 1, 0)])
def test_shapes_of_arrays_do_not_overflow(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "edge_index.npy"
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    if 0 in shape:
        assert file_array(path).num_items == 0
        return
    with pytest.raises(
        SourceError, match=r"edge_index.npy: holds \d+ bytes, its header .* says \d{20,}; it is damaged"
    ):
        file_array(path)


@pytest.mark.parametrize("escape", [r"\uD800", r"\uDFFF", r"\U00110000", r"\UFFFFFFFF"])
def test_an_escape_that_is_no_character_is_named_with_its_line(tmp_path: Path, escape: str) -> None:
    path = tmp_path / "graph.nt"
    path.write_text(f"<http://a> <http://p> <http://b> .\n<http://a> <http://p> <http://{escape}> .\n")
    with pytest.raises(SourceError) as caught:
        diskhop.import_graph(path, tmp_path / "graph")
    rule = r"\u and \U must be followed by a character's number"
    assert str(caught.value).startswith(f"{path}, line 2: {rule}, got ")


@pytest.mark.parametrize("name", ["nodes", "edges"])
def test_a_column_with_a_null_in_its_name_is_refused(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    tables = {"nodes": b"id,x\n0,1\n1,2\n", "edges": b"source,target\n0,1\n"}
    for each, content in tables.items():
        (source / f"{each}.csv").write_bytes(content.replace(b"\n", b",w\0x\n", 1) if each == name else content)
    with pytest.raises(SourceError) as caught:
        diskhop.import_graph(source, tmp_path / "graph")
    place = f"{source / name}.csv, line 1"
    assert str(caught.value) == f"{place}: column 'w\\x00x' must have a name without null characters; rename it"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "g", num_nodes=50, num_edges=200)


@pytest.mark.parametrize("linked", ["nodes/node/features.bin", "nodes", "checksums.bin"])
def test_links_of_a_dataset_stay_in_it(dataset: Dataset, tmp_path: Path, linked: str) -> None:
    path = tmp_path / "g"
    shutil.copytree(dataset.path, path)
    (path / linked).rename(path / "moved")
    (path / linked).symlink_to(path / "moved")
    assert diskhop.open_dataset(path).num_nodes == 50

    (path / "moved").rename(tmp_path / "elsewhere")
    (path / linked).unlink()
    (path / linked).symlink_to(tmp_path / "elsewhere")
    for ask in (diskhop.open_dataset, diskhop.verify):
        with pytest.raises(FormatError, match=r"is a symbolic link that leads out of the dataset, to .*elsewhere"):
            ask(path)
    # The dataset itself may be reached by a link.
    (tmp_path / "link").symlink_to(dataset.path)
    assert diskhop.open_dataset(tmp_path / "link").num_nodes == 50


def changed(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: {**content, **changes}


def shaped(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: {**content, "shape": {**content["shape"], **changes}}


def filed(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: {**content, "files": [{**content["files"][0], **changes}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (filed(name="../elsewhere.bin"), "files must be names of files in the folder, got '../elsewhere.bin'"),
        (filed(name="/etc/hostname"), "files must be names of files in the folder"),
        (filed(name=".."), "files must be names of files in the folder"),
        (filed(name=3), "files must be names of files in the folder, got 3"),
        (filed(num_bytes=2**63), "hop-0.bin must be of 65536 bytes, as its shape says, got 9223372036854775808"),
        (shaped(num_rows=2**63 - 1), "num_rows must be a whole number from 0 to"),
        (shaped(dim=0), "dim must be a whole number from 1 to"),
        (shaped(tile_columns=-4), "tile_columns must be"),
        (shaped(dtype="O"), "dtype must be one of float32"),
        (shaped(colour="red"), "is not a manifest of hop tables"),
        (changed(num_nodes=True), "num_nodes must be a whole number"),
        (changed(hops="many"), "hops must be a whole number"),
        (changed(files=[]), "files must be at least one"),
        (changed(files=None), "is not a manifest of hop tables"),
        (changed(shape=None), "is not a manifest of hop tables"),
        (lambda content: {}, "is not a manifest of hop tables"),
    ],
)
def test_hop_tables_are_checked_whoever_summed_them(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    path = tmp_path / "tables"
    write_hop_tables(path, [np.zeros((10, 4), np.float32)])
    (tmp_path / "elsewhere.bin").write_bytes(bytes(4096))
    content = read_manifest(path / TABLES_FILE, VERSION, "hop tables", "")
    (path / TABLES_FILE).write_bytes(encode_manifest(change(content), VERSION))
    with pytest.raises(FormatError) as caught:
        open_hop_tables(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_manifest_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    (tmp_path / TABLES_FILE).write_bytes(b"[" * 100_000)
    with pytest.raises(FormatError, match="is damaged"):
        open_hop_tables(tmp_path)


STRANGE = "a\x1b[2Jb\u202ec\nd\x00e"


def test_names_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = STRANGE.replace("\0", "")
    assert run(["inspect", str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert r"a\u001b[2Jb\u202ec de: does not exist" in message
    assert message.count("\n") == 1

    small_graph(tmp_path / name, num_nodes=50, num_edges=200)
    assert run(["inspect", str(tmp_path / name)]) == 0
    printed = capsys.readouterr().out
    assert r"a\u001b[2Jb\u202ec\nde" in "".join(printed.split())  # without the folds of a narrow terminal
    assert "\x1b" not in printed
    assert "\u202e" not in printed


def test_json_is_json_whatever_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / (STRANGE.replace("\0", "") + '"\\' + os.fsdecode(b"\xff"))
    small_graph(path, num_nodes=50, num_edges=200)
    assert run(["inspect", str(path), "--json"]) == 0
    printed = capsys.readouterr().out
    shown = str(path).replace("\udcff", "\\xff")
    assert json.loads(printed)["path"] == shown
    assert "\\ud" not in printed


def test_json_has_no_numbers_of_its_own() -> None:
    document = {"a": [float("nan"), {"b": float("-inf")}], "\udcff": 1.5, "c": (True, None, "\ud800")}
    assert plain_json(document) == {"a": [None, {"b": None}], "\\xff": 1.5, "c": [True, None, "\\ud800"]}
