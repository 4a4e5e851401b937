"""Runs of embeddings whose disk is too small or fills up: one line, and no commit is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError
from diskhop.runs.callbacks import Callback
from diskhop.runs.start import run_config
from tests.embedding import committed_bytes, embed_config, small_triples


class Filler(Callback):
    """Leaves no room on a disk after an epoch."""

    def __init__(self, disk: Path) -> None:
        self.path = disk / "filler"

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """Called once an epoch is committed."""
        try:
            with self.path.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            return False


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path: Path, small_disk: Path) -> None:
    dataset = small_triples(tmp_path / "triples")
    with pytest.raises(DestinationError, match="two versions of all partitions") as caught:
        run_config(dataset, embed_config(dim=64), small_disk / "run")
    assert "\n" not in str(caught.value)
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_keeps_the_last_commit(tmp_path: Path, small_disk: Path) -> None:
    dataset: Dataset = small_triples(tmp_path / "triples")
    config = embed_config(epochs=3)
    run_config(dataset, config, tmp_path / "whole")
    filler = Filler(small_disk)
    with pytest.raises(DestinationError, match="No space left"):
        run_config(dataset, config, small_disk / "run", callbacks=[filler])
    commit = json.loads((small_disk / "run/commit.json").read_text())
    assert (commit["epoch"], commit["states"]) == (1, 0)
    filler.path.unlink()
    run_config(dataset, config, small_disk / "run", resume=True)
    assert committed_bytes(small_disk / "run") == committed_bytes(tmp_path / "whole")
