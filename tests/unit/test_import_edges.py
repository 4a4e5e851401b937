"""Edges in text: what is taken, what is refused with which line, and what each option does."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import tracemalloc
import zlib
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
from diskhop.importing.numbering.tasks import ListIds, read_parquet
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.text.layout import find_texts
from diskhop.importing.text.streams import row_bytes
from diskhop.importing.tools import ImportLimits
from diskhop.runtime.duck import Duck, QueryError
from diskhop.runtime.tasks import TaskTools
from tests.graphs import SHARED_DATA, edges_of, folder_bytes, threads_engine

# Without room for a bit set, ids are listed.
NO_SET = ImportLimits(id_set_share=1 << 60)


def import_text(folder: Path, text: str | bytes, name: str = "e.csv", **options: Any) -> Dataset:
    source = folder / name
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_file(source, **options)


def import_file(
    source: Path,
    *,
    memory_bytes: int = 1 << 30,
    limits: ImportLimits | None = None,
    on_facts: Any = None,
    **options: Any,
) -> Dataset:
    return import_graph(
        source,
        source.parent / "graph",
        engine=threads_engine(),
        budget=Budget(memory_bytes),
        threads=2,
        limits=limits,
        on_facts=on_facts,
        options=ImportOptions(**options),
    )


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n1,2\n",
        "0,1\n1,2",
        "0,1\r\n1,2\r\n",
        "0,1\r\n1,2\n",
        "0,1\r1,2\r",
        "src,dst\r0,1\r1,2",
        "\ufeff0,1\n1,2\n",
        '"0","1"\n1,"2"\n',
        "\n0,1\n\n \t\n1,2\n\n",
        "# from,to\n0,1\n# half\n1,2\n",
        "0,1\n# half\rand half\n1,2\n",
        "src,dst\n0,1\n1,2\n",
        "a,b\n0,1\n1,2\n",
        "0, 1\n 1 ,2\n",
        "00,1\n1,02\n",
        "0\t1\n1\t2\n",
        "0 1\n1 2\n",
        "0;1\n1;2\n",
        "0|1\n1|2\n",
        "% sym\n% 2 3\n0 1\n1 2\n",
        "\n% sym\n0\t1\n# and\n1\t2\n",
        "0  1\n1   2\n",
        "  0 1\n  1 2  \n",
        '  "0"   1\n  1  "2" \n',
        "0 1\n1 \t2\n",
        "0\t1\t\n1\t2\n",
        "0\t1\n1\t2\t\n",
        "0,1,,\n1,2,\n",
        '"0",1,\n1,"2"\n',
    ],
)
def test_harmless_differences_in_the_text_make_none_in_the_graph(tmp_path: Path, text: str) -> None:
    dataset = import_text(tmp_path, text)
    assert (edges_of(dataset), dataset.num_nodes, dataset.original_ids()) == ([(0, 1), (1, 2)], 3, None)
    assert verify(dataset.path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "graph"]


MALFORMED: list[tuple[str | bytes, int, str]] = [
    ("0,1\n1\n", 2, "two columns, source and destination, got 1"),
    ("0,1\n1,2,3\n", 2, "two columns, source and destination, got 3"),
    ("0,1,5\n1,2,6\n", 1, "--columns 1,2"),
    ("0\n1\n", 1, "add the other one"),
    ("0,1\n\n# x\n1,\n", 4, "destination is missing"),
    ("0,1\r\n\r\n ,2\r\n", 3, "source is missing"),
    ("src,dst\n0,1\n2,x\n", 3, "'x'"),
    ("0,1\n1.5,2\n", 2, "'1.5'"),
    ("0,1\n1e3,2\n", 2, "'1e3'"),
    ("0,1\n1_0,2\n", 2, "'1_0'"),
    ("0,1\n0x1,2\n", 2, "'0x1'"),
    ("0,1\n+1,2\n", 2, "'+1'"),
    ("0,1\n\u0662,2\n", 2, "'\u0662'"),
    ("0,1\n-1,2\n", 2, "0 or more, got '-1'"),
    ("0,1\n9223372036854775808,2\n", 2, "less than 2^63, got '9223372036854775808'"),
    ("0,1\n1," + "9" * 400 + "\n", 2, "less than 2^63, got '999"),
    ("0,1\n1," + "9" * 5000 + "\n", 2, "less than 2^63, got '999"),
    ("0,1\n1,-" + "9" * 5000 + "\n", 2, "0 or more, got '-999"),
    ('0,1\n"1,2\n3,4\n', 2, "quote"),
    ('0,1\n"1"x,2\n', 2, "quote"),
    ('a,b\nc,"d\ne",f\n', 2, "quote"),
    ("0,1\n\f\n1,2\n", 2, "two columns"),
    ("0,1\n1,\f2\n", 2, "digits alone"),
    ("0,1\n1,\u00a02\n", 2, "digits alone"),
    ("1.000e+00 2.000e+0\x1f\n2.0 3.0\n", 1, "destination must be a whole number"),
    ("0,1\n\r\r\n1,2\n", 2, "CR"),
    ("0,1\n1,2\r3,4\n", 2, "CR"),
    (b"0,1\n\n\xe9,2\n", 3, "UTF-8, got byte 0xe9"),
    (b"a,b\nc,\xff\n", 2, "UTF-8, got byte 0xff"),
    ("0,1\n".encode("utf-16"), 1, "UTF-16"),
    ("a,b\na,\n", 2, "destination is missing"),
    ('a,b\n"",b\n', 2, "source is missing"),
    ("a,b\na\n", 2, "two columns"),
    (b"0,1\n" + b"7" * (1 << 20) + b",1\n", 2, "bytes long"),
    (b"a,b\n" + b"c" * (1 << 20) + b",d\n", 2, "bytes long"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("text", "line", "told"), MALFORMED)
def test_malformed_text_is_one_line_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, line: int, told: str, packed: bool
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    source = tmp_path / ("e.csv.gz" if packed else "e.csv")
    source.write_bytes(gzip.compress(content) if packed else content)
    assert run(["import", str(source), str(tmp_path / "graph"), "--memory", "200MB"]) == 2
    *begun, error = capsys.readouterr().err.splitlines()
    if begun:
        assert begun[0].startswith("found"), "the table of what was found, and the estimate, are before it"
        assert begun[-1].startswith(f"{source}, ")
    assert f"{source}, line {line}: " in error
    assert told in error
    left = {path.name for path in tmp_path.iterdir()} - {source.name}
    assert left <= {".graph.work"}
    assert (".graph.work" in error) == (".graph.work" in left), "what is left is named"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_line_is_right_in_any_part_and_slice(tmp_path: Path, ends: str, threads: int) -> None:
    limits = ImportLimits(pairs_slice_bytes=64)
    folder = tmp_path / "parts"
    folder.mkdir()
    rows = [f'"{n}",{n + 1}' for n in range(300)]
    (folder / "a.csv").write_text("src,dst\n" + "\n".join(rows) + "\n")
    rows[217] = "217,x"
    (folder / "b.csv").write_text(ends.join(["# by b", *rows]), newline="")
    with pytest.raises(SourceError, match=r"b\.csv, line 219: the destination must be a whole number.*'x'"):
        import_graph(folder, tmp_path / "graph", engine=threads_engine(), threads=threads, limits=limits)


@pytest.mark.parametrize(
    ("text", "options", "names", "edges"),
    [
        ('"a  b"   c\nc  d\n', {}, ["a  b", "c", "d"], [(0, 1), (1, 2)]),
        ('  c "a "" b" \n d   c\n', {}, ['a " b', "c", "d"], [(1, 0), (2, 1)]),
        ("% comment\na,%b\n# no,row\n", {}, ["%b", "a"], [(1, 0)]),
        ("a,%b\n%b,c\n", {}, ["%b", "a", "c"], [(0, 2), (1, 0)]),
        ('a,b,.5\nb,"c,",\na,b,1,,\n', {"columns": ("1", "2")}, ["a", "b", "c,"], [(0, 1), (0, 1), (1, 2)]),
    ],
)
def test_names_are_whole_between_spaces_comments_and_delimiters(
    tmp_path: Path, text: str, options: dict[str, Any], names: list[str], edges: list[tuple[int, int]]
) -> None:
    dataset = import_text(tmp_path, text, header=False, **options)
    assert dataset.names("nodes") == names
    assert sorted(edges_of(dataset)) == edges


def test_gzip_that_ends_early_or_is_damaged_tells_its_line(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 10**6, (200_000, 2))
    packed = gzip.compress("\n".join(f"{a},{b}" for a, b in rows).encode(), 1)
    with pytest.raises(SourceError, match=r"e\.csv\.gz, line \d{5,6}: gzip must end with its checksum"):
        import_text(tmp_path, packed[:-1000], "e.csv.gz")
    with pytest.raises(SourceError, match=r"e\.csv\.gz, line \d+: gzip must match its checksum"):
        import_text(tmp_path, packed[:-8] + bytes(8), "e.csv.gz")
    with pytest.raises(SourceError, match=r"e\.csv\.gz, line 1: gzip must end"):
        import_text(tmp_path, packed[:5], "e.csv.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv.gz"]
    several = gzip.compress(b"0,1\n1,") + gzip.compress(b"2\n2,3\n")
    assert edges_of(import_text(tmp_path, several, "e.csv.gz")) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("num_lost", [9, 1000, 20_000])
def test_the_line_at_which_gzip_ends_is_exact(tmp_path: Path, num_lost: int) -> None:
    rows = np.random.default_rng(0).integers(0, 10**6, (30_000, 2))
    packed = gzip.compress("".join(f"{a},{b}\n" for a, b in rows.tolist()).encode())[:-num_lost]
    line = 1 + zlib.decompressobj(wbits=31).decompress(packed).count(b"\n")
    with pytest.raises(SourceError, match=rf"e\.csv\.gz, line {line}: gzip must end with its checksum"):
        import_text(tmp_path, packed, "e.csv.gz")


def test_gzip_that_is_damaged_at_its_beginning_names_the_first_line(tmp_path: Path) -> None:
    packed = gzip.compress("".join(f"{a},{a * a % 9973}\n" for a in range(50_000)).encode())
    with pytest.raises(SourceError, match=r"e\.csv\.gz, line 1: gzip must match its checksum"):
        import_text(tmp_path, packed[:1000] + b"\xff\x00\xff" + packed[1003:], "e.csv.gz")


def test_gzip_that_the_disk_cannot_read_is_told_as_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: gzip.GzipFile, num_bytes: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(gzip.GzipFile, "read1", fail)
    with pytest.raises(SourceError, match=r"e\.csv\.gz: cannot be read: Input/output error"):
        import_text(tmp_path, gzip.compress(b"0,1\n1,2\n"), "e.csv.gz")


def test_a_resumed_import_of_gzip_ends_its_bar(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"0,1\n"))
    (folder / "b.csv.gz").write_bytes(gzip.compress(b"1,x\n"))
    bars: list[tuple[str, int, int]] = []
    for _ in range(2):
        bars.clear()
        with pytest.raises(SourceError, match="'x'"):
            import_graph(
                folder,
                tmp_path / "graph",
                engine=threads_engine(),
                progress=lambda *bar: bars.append(bar),
            )
        assert [done == total for stage, done, total in bars if stage == "unpacking"][-1]


def test_comments_before_the_first_row_are_not_held(tmp_path: Path) -> None:
    source = tmp_path / "e.csv"
    source.write_bytes((b"#" + b" comment" * 15 + b"\n") * 40_000 + b"0,1\n")
    (file,) = find_texts(source, ImportOptions()).files
    tracemalloc.start()
    assert row_bytes(source, file.rows_begin) == 4
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 << 20


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "src,dst\n"])
def test_a_text_without_edges_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match=r"e\.csv: has no edges"):
        import_text(tmp_path, text)


def test_a_folder_is_its_parts(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    with pytest.raises(SourceError, match="format not recognised"):
        import_file(folder)
    with pytest.raises(SourceError, match="has no files named"):
        import_graph(folder, tmp_path / "graph", format_name="edges", engine=threads_engine())
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.csv.crc").write_text("x")
    (folder / "part-1.csv").touch()
    (folder / "part-2.csv").write_text("src,dst\n5,6\n")
    (folder / "part-3.csv.gz").write_bytes(gzip.compress(b"6,7\n"))
    facts: dict[str, Any] = {}
    dataset = import_file(folder, on_facts=facts.update)
    original = dataset.original_ids()
    assert original is not None
    assert original.tolist() == [5, 6, 7]
    assert edges_of(dataset) == [(0, 1), (1, 2)]
    assert facts["files"] == 2
    assert facts["passed_over"] == [".part-0.csv.crc", "_SUCCESS"]
    assert facts["balance"] == {"lines": 3, "edges": 2, "header": 1, "comments": 0, "empty": 0, "skipped": 0}
    os.mkfifo(folder / "part-4.csv")
    with pytest.raises(SourceError, match=r"part-4\.csv: is not a regular file"):
        import_file(folder)


def test_ids_stay_or_are_mapped_and_kept(tmp_path: Path) -> None:
    dataset = import_text(tmp_path, "7,4\n4,4000000000\n")
    original = dataset.original_ids()
    assert original is not None
    assert (original.tolist(), edges_of(dataset)) == ([4, 7, 4_000_000_000], [(1, 0), (0, 2)])


def test_a_wide_id_gives_the_same_bytes_with_and_without_a_set(tmp_path: Path) -> None:
    """A budget that is too small for a bit an id changes the way, and not the result."""
    text = "7,4\n4,1500000000\n900,7\n"
    wide = folder_bytes(import_text(tmp_path, text, memory_bytes=4 << 30).path)
    (tmp_path / "graph").rename(tmp_path / "other")
    assert folder_bytes(import_text(tmp_path, text, memory_bytes=100 << 20).path) == wide


@pytest.mark.parametrize("text", ["0,1\n1,2\n2,0\n", "7,4\n4,9\n"])
def test_a_budget_without_a_set_of_ids_changes_no_byte(tmp_path: Path, text: str) -> None:
    by_set = folder_bytes(import_text(tmp_path, text).path)
    (tmp_path / "graph").rename(tmp_path / "other")
    assert folder_bytes(import_text(tmp_path, text, limits=NO_SET).path) == by_set


def test_pairs_of_a_run_with_more_memory_are_listed_where_no_set_fits(
    tmp_path: Path,
) -> None:
    expected = folder_bytes(import_text(tmp_path, "7,4\n4,9\n").path)
    shutil.rmtree(tmp_path / "graph")

    class StopsAtLists:
        def check(self, kind: str, path: str) -> None:
            if path.endswith("indices.bin"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_graph(
            tmp_path / "e.csv",
            tmp_path / "graph",
            name="e",
            engine=threads_engine(),
            budget=Budget(1 << 30),
            threads=1,
            injector=StopsAtLists(),
        )
    assert list((tmp_path / ".graph.work" / "pairs").iterdir())
    assert folder_bytes(import_file(tmp_path / "e.csv", limits=NO_SET).path) == expected


def test_names_are_kept_and_sorted_by_bytes(tmp_path: Path) -> None:
    dataset = import_text(tmp_path, 'b,"a,x"\n\u00e9,Z\nz,b\n', header=False)
    assert dataset.names("nodes") == ["Z", "a,x", "b", "z", "\u00e9"]
    assert edges_of(dataset) == [(4, 0), (2, 1), (3, 2)]
    assert dataset.original_ids() is None


def test_a_name_in_quotes_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    long = "x" * 200_000
    dataset = import_text(tmp_path, f'"{long}","a ""b"""\na,"{long}"\n', header=False)
    assert dataset.names("nodes") == ["a", 'a "b"', long]
    assert edges_of(dataset) == [(2, 1), (0, 2)]
    (tmp_path / "graph").rename(tmp_path / "other")
    with pytest.raises(SourceError, match=r"e\.csv, line 3: a row must have two columns, .* got 3"):
        import_text(tmp_path, f'a,b\na,c\n"{long}",c,d\n')


def test_names_may_be_long(tmp_path: Path) -> None:
    """Names are URLs of two kilobytes, and more of them than are held at once."""
    names = sorted(f"https://{number:05d}/{'x' * 2000}" for number in range(20_000))
    text = "".join(f"{source}\t{destination}\n" for source, destination in zip(names[::2], names[1::2], strict=True))
    dataset = import_text(tmp_path, text, "e.tsv", memory_bytes=512 << 20)
    assert dataset.names("nodes") == names
    assert edges_of(dataset) == [(number, number + 1) for number in range(0, 20_000, 2)]


def test_hot_order_keeps_what_nodes_were_called(tmp_path: Path) -> None:
    names = import_text(tmp_path, "a,b\nc,b\nc,a\nc,d\n", order="hot")
    original, called = names.original_ids(), names.names("nodes")
    assert original is not None
    assert called is not None
    assert [called[number] for number in original] == ["c", "a", "b", "d"]
    assert names.manifest.node_types["node"].order == "hot"
    (tmp_path / "graph").rename(tmp_path / "other")
    for wide in (30, 2**40):
        numbers = import_text(tmp_path, f"10,20\n{wide},20\n{wide},10\n{wide},99\n", order="hot")
        ids = numbers.original_ids()
        assert ids is not None
        assert ids.tolist() == [wide, 10, 20, 99]
        (tmp_path / "graph").rename(tmp_path / str(wide))


def test_nodes_says_how_many_there_are(tmp_path: Path) -> None:
    dataset = import_text(tmp_path, "0,2\n", nodes=5)
    assert (dataset.num_nodes, dataset.original_ids(), edges_of(dataset)) == (5, None, [(0, 2)])
    (tmp_path / "graph").rename(tmp_path / "other")
    with pytest.raises(
        SourceError, match=r"e\.csv, line 2: the source must be less than 5, the number of nodes, got '5'"
    ):
        import_text(tmp_path, "0,2\n5,1\n", nodes=5)
    with pytest.raises(SourceError, match=r"got '4294967296'"):
        import_text(tmp_path, "0,2\n4294967296,1\n", nodes=5)
    with pytest.raises(ConfigError, match=r"e\.csv: --nodes 5 requires ids that are whole numbers"):
        import_text(tmp_path, "a,b\na,c\n", nodes=5)


@pytest.mark.parametrize(
    ("options", "edges", "duplicates"),
    [
        ({}, [(2, 0), (0, 1), (0, 1), (1, 1), (1, 1), (1, 0)], 2),
        ({"duplicates": "drop"}, [(2, 0), (0, 1), (1, 1), (1, 0)], 2),
        ({"self_loops": "drop"}, [(2, 0), (0, 1), (0, 1), (1, 0)], 1),
        ({"undirected": True, "duplicates": "drop"}, [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0)], 3),
        ({"undirected": True, "self_loops": "drop"}, [(0, 1), (1, 0)] * 3 + [(0, 2), (2, 0)], 2),
    ],
)
def test_loops_and_duplicates_are_counted_and_kept_or_dropped(
    tmp_path: Path, options: dict[str, Any], edges: list[tuple[int, int]], duplicates: int
) -> None:
    facts: dict[str, Any] = {}
    dataset = import_text(tmp_path, "0,1\n0,1\n1,0\n1,1\n1,1\n2,0\n", on_facts=facts.update, **options)
    assert sorted(edges_of(dataset)) == sorted(edges)
    assert (facts["rows"], facts["self_loops"], facts["duplicates"]) == (6, 2, duplicates)
    assert dataset.num_nodes == 3, "a node stays, whatever becomes of its edges"


@pytest.mark.parametrize(
    ("text", "options", "edges"),
    [
        ("0,1,.5\n1,2,x\n", {"columns": ("1", "2")}, [(0, 1), (1, 2)]),
        ("0,1,.5\n1,2,\n", {"columns": ("2", "1")}, [(1, 0), (2, 1)]),
        ("t,to,from\n9,1,0\n9,2,1\n", {"columns": ("from", "to")}, [(0, 1), (1, 2)]),
        ("0 1,2\n", {"delimiter": "comma", "ids": "string"}, [(0, 1)]),
        ("0,1\n1,2\n", {"header": True, "ids": "string"}, [(0, 1)]),
        ("a,b\n1,2\n", {"header": False, "ids": "string"}, [(2, 3), (0, 1)]),
    ],
)
def test_the_layout_can_be_told(tmp_path: Path, text: str, options: dict[str, Any], edges: Any) -> None:
    assert sorted(edges_of(import_text(tmp_path, text, **options))) == sorted(edges)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": ("1",)}, "two columns"),
        ({"columns": ("1", "1")}, "two columns"),
        ({"delimiter": "ab"}, "delimiter must be one character .* got 'ab'; for example delimiter='tab'"),
        ({"delimiter": "5"}, "delimiter must be one character .* got '5'"),
        ({"ids": "float"}, "ids must be one of integer, string, got 'float'"),
        ({"self_loops": "no"}, "self_loops must be one of keep, drop, got 'no'"),
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        ({"nodes": 3, "ids": "string"}, "--nodes"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ImportOptions(**options)


def test_columns_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"e\.csv, line 1: has no column 'w'; --columns can name 1 to 2 and a, b"):
        import_text(tmp_path, "a,b\n1,2\n", columns=("a", "w"))
    with pytest.raises(SourceError, match=r"e\.csv, line 1: has no column '99*'; --columns can name 1 to 2"):
        import_text(tmp_path, "a,b\n1,2\n", columns=("1", "9" * 5000))
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "1.csv").write_text("a,b\n1,2\n")
    (folder / "2.csv").write_text("b,a\n1,2\n")
    with pytest.raises(SourceError, match=r"2\.csv, line 1: must have the same header as .*1\.csv"):
        import_file(folder, columns=("a", "b"))


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.zeros((2, 1), np.int64))
    with pytest.raises(ConfigError, match=r"--header, --nodes does not apply"):
        import_file(tmp_path, header=False, nodes=3)
    (tmp_path / "e.csv").write_text("0,1\n")
    with pytest.raises(ConfigError, match="--dtype does not apply"):
        import_graph(
            tmp_path / "e.csv", tmp_path / "graph", options=ImportOptions(dtype="float16"), engine=threads_engine()
        )


def test_too_small_a_budget_is_refused_with_one_that_does(tmp_path: Path) -> None:
    text = "0,1\n" * 1000
    with pytest.raises(BudgetError) as caught:
        import_text(tmp_path, text, memory_bytes=1 << 20)
    smallest = caught.value.smallest_bytes
    assert smallest is not None
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_a_small_text_needs_little_whatever_the_threads(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1\n5,2\n")
    dataset = import_graph(
        tmp_path / "e.csv", tmp_path / "graph", engine=threads_engine(), budget=Budget(50_000_000), threads=64
    )
    assert edges_of(dataset) == [(0, 1), (3, 2)]


def test_what_nodes_were_called_is_refused_before_edges_are_sorted(
    tmp_path: Path,
) -> None:
    """The memory has room for reading the numbers, but not for their order as well."""
    memory_bytes = 150_000_000
    limits = ImportLimits(names_bytes=memory_bytes - WRITER_BYTES - 1000)
    source = tmp_path / "e.csv"
    source.write_text("".join(f"{2**40 + node},{2**41}\n" for node in range(500)))
    stages: list[str] = []

    def import_within(num_bytes: int) -> Dataset:
        return import_graph(
            source,
            tmp_path / "graph",
            engine=threads_engine(),
            budget=Budget(num_bytes),
            progress=lambda stage, done, total: stages.append(stage),
            limits=limits,
            options=ImportOptions(order="hot"),
        )

    with pytest.raises(BudgetError, match="original ids") as caught:
        import_within(memory_bytes)
    assert stages[-1] == "numbering"
    assert caught.value.smallest_bytes is not None
    assert caught.value.smallest_bytes == memory_bytes - 1000 + 501 * 16
    import_within(caught.value.smallest_bytes)


def test_what_a_killed_run_spilled_is_no_finished_work(tmp_path: Path) -> None:
    spilled = tmp_path / ".graph.work" / ".spill" / "duckdb_temp_storage_DEFAULT-0.tmp"
    spilled.parent.mkdir(parents=True)
    spilled.touch()
    with pytest.raises(SourceError) as caught:
        import_text(tmp_path, "0,1\n1,x\n")
    assert not hasattr(caught.value, "__notes__")
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_rows_that_were_damaged_in_the_work_folder_are_one_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_bytes(b"PAR1" + bytes(100))
    with (
        Duck(64 << 20, 1, tmp_path / ".spill") as duck,
        pytest.raises(QueryError, match=r"remove the folder and run") as caught,
    ):
        ListIds("ids", read_parquet(rows), duck).write(tmp_path / "ids", TaskTools(threads_engine()))
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_a_destination_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "e.csv"
    source.write_text("0,1\n")
    with pytest.raises(DestinationError, match="must be valid UTF-8"):
        import_graph(source, tmp_path / "\udcff", engine=threads_engine())
    assert list(tmp_path.iterdir()) == [source]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(DestinationError, match="are free"):
        import_text(tmp_path, "0,1\n" * 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_the_rows_of_names_are_part_of_what_the_disk_must_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100_000})())
    with pytest.raises(DestinationError, match="are free"):
        import_text(tmp_path, f"{'a' * 100},{'b' * 100}\n" * 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_the_command_line_tells_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "e.tsv"
    source.write_text("a\tb\nb\ta\na\ta\n")
    options = ["--undirected", "--duplicates", "drop", "--memory", "200MB"]
    assert run(["import", str(source), str(tmp_path / "graph"), *options]) == 0
    told = capsys.readouterr().out
    assert "3 with string ids, tab between columns, no header" in told
    assert "1, kept" in told
    assert "1, dropped" in told
    assert run(["import", str(source), str(tmp_path / "other"), "--json", *options]) == 0
    facts = json.loads(capsys.readouterr().out)["import"]
    assert (facts["rows"], facts["self_loops"], facts["duplicates"], facts["dropped"]) == (3, 1, 1, ["duplicates"])


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "loops"),
    [
        ("email-Enron", 36692, 183831, 0),
        pytest.param("ego-Twitter-undirected", 81306, 1342310, 14, marks=pytest.mark.slow),
    ],
)
def test_real_graphs_have_their_published_counts(tmp_path: Path, name: str, nodes: int, edges: int, loops: int) -> None:
    """Written as they are published: space or tab between columns, comments first, gzip."""
    with np.load(SHARED_DATA / name / "data.npz") as arrays:
        pairs = arrays["edge_index"]
    scattered = np.sort(np.random.default_rng(0).choice(10**7, nodes, replace=False))[pairs]
    source = tmp_path / f"{name}.txt.gz"
    with gzip.open(source, "wb", 1) as text:
        text.write(f"# Nodes: {nodes} Edges: {edges}\r\n# FromNodeId\tToNodeId\r\n".encode())
        np.savetxt(text, scattered.T, "%d", "\t", "\r\n")
    facts: dict[str, Any] = {}
    dataset = import_file(source, on_facts=facts.update, undirected=True, memory_bytes=200 << 20)
    assert (dataset.num_nodes, facts["rows"], facts["self_loops"], facts["duplicates"]) == (nodes, edges, loops, 0)
    assert dataset.num_edges == 2 * edges - loops
    original = dataset.original_ids()
    assert original is not None
    both = np.concatenate([pairs, pairs[::-1, pairs[0] != pairs[1]]], axis=1)
    order = np.lexsort((both[0], both[1]))
    np.testing.assert_array_equal(np.fromfile(dataset.topology.indices_path, np.uint32), both[0][order])
