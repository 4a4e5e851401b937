"""`diskhop clean` removes what diskhop made and nobody uses, and nothing else, ever."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run
from diskhop.derived.clean import list_derived, remove_unused
from diskhop.derived.scratch import scratch_folder
from diskhop.errors import DestinationError
from diskhop.runtime.tasks import WorkFolder
from tests.runs import folder_bytes, small_graph

PACKED = "packed-0123456789abcdef"
WORK = f".{PACKED}.work"
PARTIAL = f".{PACKED}.partial"
SCRATCH = "run-abcd_123"
OURS = [PARTIAL, WORK, PACKED, SCRATCH]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return small_graph(tmp_path / "graph", num_nodes=60, num_edges=200).path


def make_derived(folder: Path) -> None:
    """One of each kind, that nobody uses."""
    for name, file in ((PACKED, "layout.json"), (WORK, "samples/0.bin"), (PARTIAL, "0.bin"), (SCRATCH, "trace-0.bin")):
        (folder / name / file).parent.mkdir(parents=True)
        (folder / name / file).write_bytes(bytes(10_000))


def make_foreign(folder: Path) -> list[str]:
    """Make files and folders of the user, some with names like those of derived files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.txt").write_text("mine")
    (folder / ".video.mp4.partial").write_text("half of it")
    (folder / "packed-lunch").mkdir()
    (folder / "packed-0123456789").write_text("a file")
    (folder / f"{PACKED}.tar").write_text("kept")
    (folder / ".packed-it.work").mkdir()
    # A run that was told --out run-of_mine9.
    (folder / "run-of_mine9").mkdir()
    (folder / "run-of_mine9/config.toml").write_text("model = 'sage'")
    (folder / "run-of_mine9/weights.bin").write_bytes(b"1")
    (folder / "run-of_mine10").mkdir()
    return sorted(path.name for path in folder.iterdir())


def clean(capsys: pytest.CaptureFixture[str], graph: Path, *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["clean", str(graph), "--json", *options]) == 0
    return dict(json.loads(capsys.readouterr().out))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextmanager
def locked(folder: Path, how: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_nobody_uses_is_listed_then_removed(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], elsewhere: bool
) -> None:
    folder = tmp_path / "scratch" if elsewhere else graph / "derived"
    options = ["--scratch", str(folder)] if elsewhere else []
    make_derived(folder)
    dataset_before = {name: content for name, content in folder_bytes(graph).items() if "derived" not in name}
    before = folder_bytes(folder)

    listed = clean(capsys, graph, "--dry-run", *options)
    assert folder_bytes(folder) == before
    assert (listed["dataset"], listed["folder"], listed["dry_run"]) == (str(graph), str(folder), True)
    assert [entry["name"] for entry in listed["entries"]] == OURS
    assert [entry["what"] for entry in listed["entries"]] == [
        *("unfinished packing", "unfinished packing", "packed layout", "scratch of a run")
    ]
    for entry in listed["entries"]:
        paths = [folder / entry["name"], *(folder / entry["name"]).rglob("*")]
        assert entry["bytes"] == sum(path.stat().st_blocks for path in paths) * 512 >= 10_000
        assert (entry["kept_because"], entry["removed"]) == (None, False)
    assert listed["removed_bytes"] == 0

    removed = clean(capsys, graph, *options)
    assert removed["removed_bytes"] == sum(entry["bytes"] for entry in listed["entries"])
    assert removed["entries"] == [{**entry, "removed": True} for entry in listed["entries"]]
    assert names(folder) == set()
    assert {name: content for name, content in folder_bytes(graph).items() if "derived" not in name} == dataset_before
    assert clean(capsys, graph, *options)["entries"] == []


def test_what_others_made_is_listed_and_left_alone(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = make_foreign(graph / "derived")
    before = folder_bytes(graph / "derived")
    make_derived(graph / "derived")
    cleaned = clean(capsys, graph)
    assert folder_bytes(graph / "derived") == before
    assert names(graph / "derived") == set(foreign)
    told = {entry["name"]: entry for entry in cleaned["entries"]}
    for name in foreign:
        assert told[name] == {
            "name": name,
            "what": "not made by diskhop",
            "kept_because": "not made by diskhop",
            "removed": False,
        }


def test_links_are_not_followed(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "layout.json").write_text("{}")
    derived = graph / "derived"
    make_derived(derived)
    shutil.rmtree(derived / PARTIAL)
    for link in (derived / "packed-fedcba9876543210", derived / PARTIAL, derived / SCRATCH / "link.bin"):
        link.symlink_to(precious)
    (derived / PACKED / "inner").symlink_to(precious)
    listed = {entry["name"]: entry for entry in clean(capsys, graph, "--dry-run")["entries"]}
    assert listed["packed-fedcba9876543210"]["kept_because"] == "not made by diskhop"
    clean(capsys, graph)
    assert names(precious) == {"layout.json"}
    # What a scratch folder has in it is files alone.
    assert names(derived) == {"packed-fedcba9876543210", PARTIAL, SCRATCH}


@pytest.mark.parametrize("how", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_what_is_in_use_stays(graph: Path, capsys: pytest.CaptureFixture[str], how: int) -> None:
    folder = graph / "derived"
    make_derived(folder)
    before = folder_bytes(folder)
    with ExitStack() as stack:
        for name in OURS:
            stack.enter_context(locked(folder / name, how))
        for entry in clean(capsys, graph)["entries"]:
            assert (entry["kept_because"], entry["removed"]) == ("in use", False)
    assert folder_bytes(folder) == before
    assert all(entry["removed"] for entry in clean(capsys, graph)["entries"])


def test_scratch_of_a_run_and_work_are_in_use_while_they_live(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    derived = graph / "derived"
    with scratch_folder(derived) as scratch, WorkFolder(derived / PACKED) as work:
        (scratch / "trace-0.bin").write_bytes(b"1")
        stage = work.stage("samples", "key")
        assert [entry["kept_because"] for entry in clean(capsys, graph)["entries"]] == ["in use", "in use"]
        assert scratch.exists()
        assert stage.exists()
    # The run's is gone with it, the work is left to the next packing.
    assert [entry["name"] for entry in clean(capsys, graph, "--dry-run")["entries"]] == [WORK]


def test_what_is_in_use_by_the_time_stays(graph: Path) -> None:
    make_derived(graph / "derived")
    entries = list_derived(graph / "derived")
    with locked(graph / "derived" / PACKED, fcntl.LOCK_SH):
        cleaned = {entry.path.name: entry for entry in remove_unused(entries)}
    assert (cleaned[PACKED].kept_because, cleaned[PACKED].is_removed) == ("in use", False)
    assert names(graph / "derived") == {PACKED}
    # Another clean was quicker: it is gone, which is what was wanted.
    entries = list_derived(graph / "derived")
    shutil.rmtree(graph / "derived" / PACKED)
    assert [entry.is_removed for entry in remove_unused(entries)] == [True]


def test_without_locks_nothing_is_removed(
    graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_derived(graph / "derived")

    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    for entry in clean(capsys, graph)["entries"]:
        assert entry["kept_because"] == "may be in use: its file system has no locks"
    assert names(graph / "derived") == set(OURS)


def test_an_interrupted_removal_leaves_no_layout(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_derived(graph / "derived")
    entries = [entry for entry in list_derived(graph / "derived") if entry.path.name == PACKED]

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        with pytest.raises(DestinationError, match=f"{PACKED}: cannot be written"):
            remove_unused(entries)
    assert names(graph / "derived" / PACKED) == set()
    assert [entry.is_removed for entry in remove_unused(entries)] == [True]


def test_what_is_printed_for_people(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clean", str(graph)]) == 0
    assert f"{graph / 'derived'}: there are no derived files" in capsys.readouterr().out
    make_derived(graph / "derived")
    (graph / "derived/notes.txt").write_text("mine")
    with locked(graph / "derived" / PACKED, fcntl.LOCK_SH):
        for options, outcome in ((["--dry-run"], "would be removed"), ([], "removed")):
            assert run(["clean", str(graph), *options]) == 0
            told = dict(re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines())
            assert told["notes.txt"] == "not made by diskhop: left alone"
            assert told[PACKED].startswith("packed layout, ")
            assert told[PACKED].endswith(", kept: in use")
            assert told[SCRATCH].endswith(f", {outcome}")
            assert told[outcome].startswith("3 of 5, ")


def test_bad_input_is_one_line(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    for arguments, words in (
        ([str(tmp_path / "nowhere")], ["nowhere"]),
        ([str(tmp_path)], ["not a diskhop dataset"]),
        ([str(graph), "--scratch", str(tmp_path / "nowhere")], ["nowhere", "there is no such folder", "--scratch"]),
        ([str(graph), "--scratch", str(tmp_path / "file")], ["file", "is not a folder", "--scratch"]),
    ):
        capsys.readouterr()
        assert run(["clean", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert all(word in captured.err for word in words), captured.err


def test_a_run_beside_a_trained_model_leaves_it_there(tmp_path: Path) -> None:
    """--scratch and --out may be in the same folder, and the names of the user's runs may start like a scratch's."""
    make_foreign(tmp_path)
    make_derived(tmp_path)
    with scratch_folder(tmp_path):
        assert (tmp_path / "run-of_mine9/config.toml").exists()
        assert not (tmp_path / SCRATCH).exists()


def test_a_scratch_folder_that_another_run_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def make_and_lose(*, prefix: str, dir: Path) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with scratch_folder(tmp_path) as scratch:
        assert [str(scratch)] == made[1:]
        assert scratch.is_dir()
