"""Two processes that use one folder at the same time: each step of one is put where it hurts the other most."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diskhop.derived.make import make_derived, make_once
from diskhop.errors import BusyError, DestinationError, ReadError
from diskhop.io import locks
from diskhop.io.atomic import make_directories, write_file
from diskhop.io.destinations import FolderKind, StagedDirectory, new_file
from diskhop.io.locks import keep_directory, lock_directory, shared_directory
from diskhop.runtime.tasks import WorkFolder

KIND = FolderKind("a test", "marker", ("marker",))
WRITER = """
import sys, time
from pathlib import Path
from diskhop.io.locks import lock_directory
lock_directory(Path(sys.argv[1]), Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(600)
"""


def before_the_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]) -> list[Path]:
    """Let another process act once, just before this one locks a folder. Returns the folders that were locked."""
    found: list[Path] = []

    def lock(path: Path, shown: Path) -> int:
        found.append(path)
        if len(found) == 1:
            act(path)
        return lock_directory(path, shown)

    monkeypatch.setattr(locks, "lock_directory", lock)
    return found


def after_the_open(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]) -> None:
    """Let another process act once, between the open and the lock of a folder by this one."""
    acts = [act]

    def open_and_wait(path: Path, flags: int, *mode: int) -> int:
        descriptor = os.open(path, flags, *mode)
        if acts:
            acts.pop()(path)
        return descriptor

    class Os:
        """The module os with another open()."""

        open = staticmethod(open_and_wait)

        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

    monkeypatch.setattr(locks, "os", Os())


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize("interrupt", [before_the_lock, after_the_open])
def test_a_work_folder_that_its_last_user_removes_is_made_again(
    destination: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., object]
) -> None:
    interrupt(monkeypatch, shutil.rmtree)
    with WorkFolder(destination) as work:
        assert work.stage("parts", "key").is_dir()
        with pytest.raises(BusyError, match="is writing to it"):
            lock_directory(work.path, destination)


@pytest.mark.parametrize("interrupt", [before_the_lock, after_the_open])
def test_a_staged_folder_that_is_taken_for_a_leftover_is_made_again(
    destination: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., object]
) -> None:
    interrupt(monkeypatch, shutil.rmtree)
    with StagedDirectory(destination, KIND) as staged:
        write_file(staged.path / "marker", b"")
        staged.publish()
    assert (destination / "marker").exists()


def test_a_folder_that_is_published_while_another_starts_is_refused_by_name(
    destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other finds the folder under construction, which then gets its name."""
    partial = destination.with_name(".out.partial")
    partial.mkdir()
    (partial / "marker").touch()
    is_dir = Path.is_dir

    def is_dir_until_then(path: Path) -> bool:
        found = is_dir(path)
        if path == partial and found:
            partial.rename(destination)
        return found

    monkeypatch.setattr(Path, "is_dir", is_dir_until_then)
    with pytest.raises(DestinationError, match="out: already exists; replace it"), StagedDirectory(destination, KIND):
        pass


def test_a_new_writer_s_folder_is_no_leftover(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leftover that was opened is removed, and made again by another process, before it is locked."""
    partial = destination.with_name(".out.partial")
    partial.mkdir()
    held = []

    def replace(path: Path) -> None:
        path.rmdir()
        path.mkdir()
        held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(held[0], fcntl.LOCK_EX)

    after_the_open(monkeypatch, replace)
    with pytest.raises(BusyError, match="is writing to it"), StagedDirectory(destination, KIND):
        pass
    assert partial.is_dir()
    os.close(held[0])


def test_what_another_process_finishes_meanwhile_is_not_made_again(
    destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(work: Path) -> None:
        shutil.rmtree(work)
        destination.mkdir()

    before_the_lock(monkeypatch, finish)
    built: list[Path] = []
    make_derived(destination, "key", lambda made, _work: built.append(made))
    assert not built
    assert [each.name for each in destination.parent.iterdir()] == ["out"]


def test_a_folder_that_another_process_publishes_first_serves(destination: Path) -> None:
    def make() -> None:
        destination.mkdir()
        (destination / "marker").touch()
        with StagedDirectory(destination, KIND):
            pass

    assert not make_once(destination, make)


def test_a_folder_that_clean_removes_is_named(tmp_path: Path) -> None:
    for lock in (keep_directory, lambda path: shared_directory(path).__enter__()):
        with pytest.raises(ReadError, match=r"gone: cannot be opened: No such file.*; repeat the command"):
            lock(tmp_path / "gone")


def test_earlier_stages_may_go_while_they_are_counted(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = WorkFolder(destination)
    make_directories(work.path / "parts")
    (work.path / "parts" / "0").write_bytes(bytes(5000))
    monkeypatch.setattr(Path, "glob", lambda self, _pattern: iter([self / "parts/gone", self / "parts/0"]))
    assert work.kept_bytes() >= 5000


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Path]:
    """The work folder of a running process."""
    folder = tmp_path / ".out.work"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"locked\n"
        yield folder
        writer.kill()


@pytest.mark.parametrize("content", ["link", "file"])
def test_what_is_no_folder_in_the_place_of_one_is_named(destination: Path, content: str) -> None:
    partial = destination.with_name(".out.partial")
    if content == "link":
        partial.symlink_to(destination.with_name("nowhere"))
    else:
        partial.touch()
    found = "a symbolic link to nothing" if content == "link" else "a file"
    with pytest.raises(DestinationError, match=rf"out: \S*\.out\.partial is {found}; remove it with: rm "):
        StagedDirectory(destination, KIND).__enter__()


def test_of_two_writers_of_a_file_the_second_is_refused_and_harms_nothing(destination: Path) -> None:
    with new_file(destination, overwrite=True) as partial:
        partial.write_bytes(b"first")
        with pytest.raises(BusyError, match=r"out: process \d+ is writing to it"):
            new_file(destination, overwrite=True).__enter__()
    assert destination.read_bytes() == b"first"


class SecondWriter:
    """An injector that lets another writer start to replace the same small file before a change of the first."""

    def __init__(self, path: Path, change: str) -> None:
        self._change = change
        self.thread = threading.Thread(target=write_file, args=(path, b"second"))

    def check(self, kind: str, path: str) -> None:
        if kind == self._change and self.thread.ident is None:
            self.thread.start()
            self.thread.join(0.2)  # it waits, or it would be done


@pytest.mark.parametrize("change", ["fsync", "rename"])
def test_of_two_writers_of_a_small_file_both_succeed_and_the_last_remains(destination: Path, change: str) -> None:
    second = SecondWriter(destination, change)
    write_file(destination, b"first", second)
    second.thread.join()
    assert destination.read_bytes() == b"second"
    assert [each.name for each in destination.parent.iterdir()] == ["out"]


def test_the_work_folder_of_a_running_process_is_not_removed(busy: Path, destination: Path) -> None:
    with pytest.raises(BusyError, match=r"out: process \d+ is writing to it"):
        WorkFolder(destination).remove()
    assert busy.is_dir()
