"""Destinations that cannot take a dataset: full, read-only. One line, exit code 2, nothing left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from diskhop._native import Engine, why_no_uring
from diskhop.dataset.build.builder import DATASET
from diskhop.dataset.dataset import open_dataset
from diskhop.errors import DestinationError
from diskhop.io.destinations import StagedDirectory
from tests.graphs import make_dataset, threads_engine

ENGINES = ["threads"] if why_no_uring() else ["threads", "uring"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_is_one_line_and_is_left_empty(small_disk: Path, engine: str) -> None:
    with pytest.raises(DestinationError) as caught:
        make_dataset(small_disk / "graph", num_nodes=3000, dim=100, engine=Engine(engine, 4))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert "space" in str(caught.value)
    assert list(small_disk.iterdir()) == []


def test_a_read_only_disk_is_one_line(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(DestinationError, match=r"graph: cannot be written: Read-only .*; choose a destination"):
        make_dataset(small_disk / "graph")


def test_a_dataset_on_a_read_only_disk_opens(small_disk: Path) -> None:
    make_dataset(small_disk / "graph")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert open_dataset(small_disk / "graph").num_nodes == 50


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(DestinationError, match="cannot be written: Permission denied; choose a destination"):
            make_dataset(tmp_path / "graph")
    finally:
        tmp_path.chmod(0o755)


def publish_late(destination: Path) -> None:
    """Stage a folder while somebody else makes the destination."""
    with StagedDirectory(destination, DATASET) as staged:
        destination.mkdir()
        (destination / "thesis.txt").touch()
        staged.publish()


def test_a_rename_onto_what_was_made_meanwhile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="graph: already exists and is not a dataset"):
        publish_late(tmp_path / "graph")
    assert [path.name for path in tmp_path.rglob("*")] == ["graph", "thesis.txt"]


def test_the_next_name_of_a_builder_is_not_left_by_a_refused_one(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "thesis.txt").touch()
    with pytest.raises(DestinationError, match="already exists"):
        make_dataset(tmp_path / "graph", engine=threads_engine())
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
