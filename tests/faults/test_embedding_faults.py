"""Runs of embeddings that are killed at any moment, or whose disk is full: no commit is lost, and they end the same.

Crashes before each change are simulated in tests/integration/test_embedding.py; here a process is gone from one instant
to the next, with threads at work.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.config.embed import LEAVING, SPARE
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError
from diskhop.runs.callbacks import Callback
from diskhop.runs.start import run_config
from tests.embedding import committed_bytes, embed_config, small_triples
from tests.graphs import memory_folder

NUM_KILLS, NUM_EPOCHS = 50, 30
# It says when it starts: what Python loads before is most of a short run.
COMMAND = [sys.executable, "-c", "from diskhop.cli import main; print('starts', flush=True); main()", "embed"]
OPTIONS = (
    f"--epochs {NUM_EPOCHS} --eval-every {NUM_EPOCHS} --partitions 8 --dim 32 --batch-size 256 --chunk-size 64 "
    "--negatives 16 --threads 2 --checkpoint-every 3states --memory 300MB"
)


class Runs:
    """Runs of one configuration by the command line."""

    def __init__(self, dataset: Path, prefetch_slot: str) -> None:
        self._dataset = dataset
        self._options = [*OPTIONS.split(), "--prefetch-slot", prefetch_slot]

    def start(self, out: Path) -> subprocess.Popen[str]:
        """A run that is past what Python loads."""
        arguments = ["--resume"] if (out / "config.toml").exists() else [str(self._dataset), *self._options]
        child = subprocess.Popen(
            [*COMMAND, *arguments, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "starts\n"
        return child

    def finish(self, out: Path) -> float:
        """Seconds that a run takes that nobody stops."""
        child = self.start(out)
        started = time.monotonic()
        _, told = child.communicate()
        assert child.returncode == 0, told
        return time.monotonic() - started

    def kill(self, out: Path, after_seconds: float) -> bool:
        """Whether a run was killed then, and not done before."""
        child = self.start(out)
        time.sleep(after_seconds)
        child.kill()
        _, told = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), told
        return child.returncode != 0


def place_of(out: Path) -> tuple[int, int]:
    """Epochs and states that are committed; none before the first commit."""
    path = out / "commit.json"
    if not path.exists():
        return (0, 0)
    commit = json.loads(path.read_text())
    return commit["epoch"], commit["states"]


@pytest.mark.slow
@pytest.mark.parametrize("prefetch_slot", [SPARE, LEAVING])
def test_random_kills_lose_no_commit_and_change_no_bit(prefetch_slot: str, tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        runs = Runs(small_triples(folder).path, prefetch_slot)
        whole_seconds = runs.finish(folder / "whole")
        expected = committed_bytes(folder / "whole")
        draws = np.random.default_rng(0)
        num_kills = number = 0
        while num_kills < NUM_KILLS:
            number += 1
            out, place = folder / f"{number}", (0, 0)
            # Several times each, at moments of what is left.
            while num_kills < NUM_KILLS and runs.kill(out, draws.uniform(0, whole_seconds / 3)):
                num_kills += 1
                assert place_of(out) >= place
                place = place_of(out)
            if place_of(out)[0] < NUM_EPOCHS or not (out / "result.json").exists():
                runs.finish(out)
            assert committed_bytes(out) == expected
        assert number < NUM_KILLS


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
    assert place_of(small_disk / "run") == (1, 0)
    filler.path.unlink()
    run_config(dataset, config, small_disk / "run", resume=True)
    assert committed_bytes(small_disk / "run") == committed_bytes(tmp_path / "whole")
