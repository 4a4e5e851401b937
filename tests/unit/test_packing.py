"""Compressed files: each packing gives the same graph as plain text; archives and damage are named."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from diskhop.budget import Budget
from diskhop.errors import SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.source_file import SourceFile
from diskhop.importing.text.packing import PACKINGS, RETURNS, packing_of
from diskhop.importing.text.streams import open_text, text_bytes
from tests.graphs import edges_of, folder_bytes, threads_engine

TEXT = b"".join(b"%d,%d\n" % (n % 977, n * n % 1009) for n in range(30_000))


def zipped(content: bytes, *names: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("edges.csv",):
            archive.writestr(name, content)
    return target.getvalue()


def zstd(content: bytes) -> bytes:
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as stream:
        stream.write(content)
    return bytes(target.getvalue())


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": zipped,
    "zstd": zstd,
}


def test_every_packing_is_tested() -> None:
    # Lines that end with CR are tested with texts: tests/property/test_found_texts.py.
    assert {*PACK, RETURNS} == PACKINGS.keys()


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("has_suffix", [True, False])
def test_a_packed_text_is_the_same_graph(tmp_path: Path, packing: str, has_suffix: bool) -> None:
    plain = tmp_path / "edges.csv"
    plain.write_bytes(TEXT)
    packed = tmp_path / ("edges.csv" + PACKINGS[packing].suffix if has_suffix else "packed/edges.csv")
    packed.parent.mkdir(exist_ok=True)
    packed.write_bytes(PACK[packing](TEXT))
    graphs = [
        import_graph(source, tmp_path / name, engine=threads_engine(), budget=Budget(300 << 20))
        for name, source in (("a", plain), ("b", packed))
    ]
    assert folder_bytes(graphs[0].path) == folder_bytes(graphs[1].path)


@pytest.mark.parametrize("packing", PACK)
def test_the_length_of_the_content_is_estimated(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "edges"
    path.write_bytes(PACK[packing](TEXT))
    assert text_bytes(SourceFile.of(path)) == pytest.approx(len(TEXT), rel=0.5)


@pytest.mark.parametrize("packing", ["gzip", "bz2", "xz"])
def test_several_streams_in_one_file_are_one_text(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "edges.csv"
    path.write_bytes(PACK[packing](TEXT) + PACK[packing](b"5,6\n"))
    with open_text(path) as text:
        assert text.read() == TEXT + b"5,6\n"


@pytest.mark.parametrize("packing", ["gzip", "bz2", "xz", "zstd"])
def test_a_truncated_file_is_named(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"edges.csv{PACKINGS[packing].suffix}"
    path.write_bytes(PACK[packing](TEXT)[:-20])
    with pytest.raises(SourceError, match=rf"edges\.csv\.\w+, line \d+: {packing} must end with its checksum"):
        import_graph(path, tmp_path / "graph", engine=threads_engine())
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize("packing", ["gzip", "bz2", "xz", "zip"])
def test_a_damaged_file_is_named(tmp_path: Path, packing: str) -> None:
    content = bytearray(PACK[packing](TEXT))
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / f"edges.csv{PACKINGS[packing].suffix}"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"edges\.csv\.\w+, line \d+: {packing} must"):
        import_graph(path, tmp_path / "graph", engine=threads_engine())


def test_a_text_that_begins_like_bz2_is_plain(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("BZh9,a\na,BZh9\n")
    assert packing_of(path) is None


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it: 7z x "),
        (b"Rar!\x1a\x07\x00", "is a RAR archive; unpack it: unrar x "),
        (b"\x04\x22\x4d\x18", "is compressed by lz4; unpack it: lz4 -d "),
        (b"LZIP\x01", "is compressed by lzip; unpack it: lzip -dk "),
        (b"\x1f\x9d\x90", "is compressed by compress; unpack it: uncompress "),
    ],
)
def test_other_compressions_are_named_with_the_command_that_unpacks(tmp_path: Path, start: bytes, told: str) -> None:
    path = tmp_path / "my edges.csv"
    path.write_bytes(start + b"\0" * 100)
    with pytest.raises(SourceError) as caught:
        import_graph(path, tmp_path / "graph", engine=threads_engine())
    assert f"{told}'{path}'" in str(caught.value)


@pytest.mark.parametrize("packing", ["gzip", "bz2", "xz"])
def test_tar_archives_are_named_with_the_command_that_unpacks(tmp_path: Path, packing: str) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("out.network")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"1 2\n"))
    path = tmp_path / f"edges.csv{PACKINGS[packing].suffix}"
    path.write_bytes(PACK[packing](target.getvalue()))
    with pytest.raises(SourceError, match="is an archive of files; unpack it: tar -xf ") as caught:
        import_graph(path, tmp_path / "graph", engine=threads_engine())
    command = str(caught.value).split("unpack it: ")[1].split(",")[0]
    if shutil.which(packing.replace("gzip", "gunzip").replace("bz2", "bzip2")) is not None:
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        assert (tmp_path / "out.network").read_bytes() == b"1 2\n"


@pytest.mark.parametrize("format_name", ["edges", None])
def test_zip_archives_of_several_files_are_named(tmp_path: Path, format_name: str | None) -> None:
    path = tmp_path / "edges.zip"
    path.write_bytes(zipped(TEXT, "a.csv", "b.csv"))
    with pytest.raises(SourceError, match=r"edges\.zip: must have one file, got 2; unpack it: unzip "):
        import_graph(path, tmp_path / "graph", format_name=format_name, engine=threads_engine())


def test_a_zip_archive_is_what_its_only_file_is(tmp_path: Path) -> None:
    path = tmp_path / "download.zip"
    path.write_bytes(zipped(b"0,1\n", "graph/edges.csv"))
    dataset = import_graph(path, tmp_path / "graph", engine=threads_engine())
    assert list(edges_of(dataset)) == [(0, 1)]


@pytest.mark.parametrize("packing", PACK)
def test_a_packed_table_has_its_weights(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"edges.csv{PACKINGS[packing].suffix}"
    path.write_bytes(PACK[packing](b"source,target,paid\n0,1,4\n1,0,7\n"))
    options = ImportOptions(weight="paid")
    dataset = import_graph(path, tmp_path / "graph", options=options, engine=threads_engine())
    weights = dataset.edge_weights()
    assert weights is not None
    assert sorted(weights.tolist()) == [4, 7]


def test_what_a_zip_archive_of_a_mac_adds_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv.zip"
    path.write_bytes(zipped(b"0,1\n", "edges.csv", "__MACOSX/._edges.csv"))
    dataset = import_graph(path, tmp_path / "graph", engine=threads_engine())
    assert list(edges_of(dataset)) == [(0, 1)]


def test_packed_parts_of_triples_are_read(tmp_path: Path) -> None:
    source = tmp_path / "kg"
    source.mkdir()
    (source / "train.txt.bz2").write_bytes(bz2.compress(b"a\tis\tb\n"))
    (source / "valid.txt.zip").write_bytes(zipped(b"b\tis\ta\n", "valid.txt"))
    (source / "test.tsv.xz").write_bytes(lzma.compress(b"a\tis\ta\n"))
    dataset = import_graph(source, tmp_path / "graph", engine=threads_engine())
    found = {part: each.tolist() for part in ("train", "valid", "test") if (each := dataset.triples(part)) is not None}
    assert found == {"train": [[0, 0, 1]], "valid": [[1, 0, 0]], "test": [[0, 0, 0]]}


@pytest.mark.parametrize("packing", PACK)
def test_damaged_content_leaves_nothing_in_memory(packing: str) -> None:
    content = PACK[packing](TEXT)[:-40]

    def read_all() -> None:
        opened = PACKINGS[packing].unpack(io.BytesIO(content))
        while opened.read1(1 << 16):
            pass

    def read_often(count: int) -> int:
        for _ in range(count):
            with pytest.raises((OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)):
                read_all()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = read_often(5)
        assert read_often(20) - before < 20 * (1 << 15)
    finally:
        tracemalloc.stop()
