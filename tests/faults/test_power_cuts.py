"""Claims about simulated power cuts: what was synced is there; of what was not, any part may be."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diskhop._native import CrashError
from diskhop.dataset.build.builder import DATASET
from diskhop.io.atomic import exchange, make_directories, rename, sync_directory, sync_file, write_file
from diskhop.io.destinations import StagedDirectory
from tests.campaign.cases import Tries
from tests.campaign.kills import tries_of
from tests.campaign.stage import Place, Stage
from tests.graphs import folder_bytes
from tests.power_cuts import SECTOR_BYTES, PowerCut

NUM_CUTS = 40


def found_after(
    folder: Path, prepare: Callable[[Path], object], change: Callable[[Path, PowerCut], object], nth: int = 0
) -> set[str]:
    """The states of a folder that are found after cuts, each as the text of its files. nth: 0 for the end."""
    states = set()
    for number in range(NUM_CUTS):
        root, after = folder / "root", folder / "after"
        for path in (root, after):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        prepare(root)
        power = PowerCut(root, nth)
        with power:
            with pytest.raises(CrashError) if nth else contextlib.nullcontext():
                change(root, power)
            power.write_torn(after, random.Random(number))
        states.add(str({name: content.decode() for name, content in sorted(folder_bytes(after).items())}))
    return states


def nothing(_root: Path) -> None: ...


def write_old(root: Path) -> None:
    (root / "state").write_bytes(b"old")


def test_what_is_synced_survives_whole(tmp_path: Path) -> None:
    def change(root: Path, power: PowerCut) -> None:
        make_directories(root / "folder", power)
        write_file(root / "folder" / "state", b"new", power)

    assert found_after(tmp_path, nothing, change) == {"{'folder/state': 'new'}"}


def test_a_rename_is_kept_or_lost_and_never_loses_both_names(tmp_path: Path) -> None:
    def change(root: Path, power: PowerCut) -> None:
        (root / "next").write_bytes(b"new")
        sync_file(root / "next", power)
        sync_directory(root, power)
        rename(root / "next", root / "state", power)

    assert found_after(tmp_path, write_old, change) == {"{'next': 'new', 'state': 'old'}", "{'state': 'new'}"}


def test_changes_of_names_are_lost_in_any_order(tmp_path: Path) -> None:
    def change(root: Path, power: PowerCut) -> None:
        for name in "ab":
            (root / name).write_bytes(b"x")
            sync_file(root / name, power)

    assert found_after(tmp_path, nothing, change) == {"{}", "{'a': 'x'}", "{'b': 'x'}", "{'a': 'x', 'b': 'x'}"}


def test_names_that_are_exchanged_are_exchanged_both(tmp_path: Path) -> None:
    def prepare(root: Path) -> None:
        write_old(root)
        (root / "next").write_bytes(b"new")

    def change(root: Path, power: PowerCut) -> None:
        exchange(root / "next", root / "state", power)

    assert found_after(tmp_path, prepare, change) == {
        "{'next': 'new', 'state': 'old'}",
        "{'next': 'old', 'state': 'new'}",
    }


def test_each_sector_of_unsynced_data_is_the_old_or_the_new(tmp_path: Path) -> None:
    def prepare(root: Path) -> None:
        (root / "state").write_bytes(b"o" * 2 * SECTOR_BYTES)

    def change(root: Path, power: PowerCut) -> None:
        power.check("write", str(root / "state"))
        (root / "state").write_bytes(b"n" * 2 * SECTOR_BYTES)

    sectors = [first + second for first in "on" for second in "on"]
    assert found_after(tmp_path, prepare, change) == {
        str({"state": "".join(letter * SECTOR_BYTES for letter in each)}) for each in sectors
    }


def test_what_a_killed_process_left_does_not_come_back_next_to_what_is_published(tmp_path: Path) -> None:
    def prepare(root: Path) -> None:
        (root / ".graph.partial").mkdir()
        (root / ".graph.partial" / "old").write_bytes(b"old")

    def change(root: Path, power: PowerCut) -> None:
        with StagedDirectory(root / "graph", DATASET, injector=power) as staged:
            write_file(staged.path / "new", b"new", power)
            staged.publish()

    (tmp_path / "count").mkdir()
    prepare(tmp_path / "count")
    power = PowerCut(tmp_path / "count", 0)
    with power:
        change(tmp_path / "count", power)
    # Before the last change, the fsync that makes the new name durable.
    found = found_after(tmp_path, prepare, change, power.num_changes)
    assert found == {"{'.graph.partial/new': 'new'}", "{}", "{'graph/new': 'new'}"}


@pytest.fixture
def tries(tmp_path: Path) -> Tries:
    return Tries(0, 8, 0, tmp_path)


def stage(run: Callable[[Place], object]) -> Stage:
    return Stage(name="small", prepare=nothing, run=run, done="state")


def write_whole(place: Place) -> None:
    write_file(place.out / "state", b"all of it", place.cut)


def write_unsynced(place: Place) -> None:
    partial = place.out / ".state.partial"
    partial.write_bytes(b"all of it")
    rename(partial, place.out / "state", place.cut)
    sync_directory(place.out, place.cut)


def write_slowly(place: Place) -> None:
    with (place.out / "state").open("wb", buffering=0) as file:
        for _ in range(20_000):
            file.write(b"x")


def failures(tries: Iterator[str]) -> set[str]:
    return {each for each in tries if each}


def test_cuts_find_a_missing_fsync(tries: Tries) -> None:
    assert not failures(tries_of(stage(write_whole), True, tries))
    for path in tries.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert failures(tries_of(stage(write_unsynced), True, tries)) == {"other bytes: state"}


def test_kills_find_a_file_that_is_written_in_place(tries: Tries) -> None:
    assert "other bytes: state" in failures(tries_of(stage(write_slowly), False, tries))
