"""`diskhop verify` reads every byte of whatever has checksums: a flip anywhere is found, and named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diskhop.api.verify import verify
from diskhop.cli.app import run
from diskhop.errors import ConfigError, FormatError
from diskhop.stores.packed.layout import read_layout
from tests.campaign.flip_folders import (
    Flippable,
    clusters,
    edge_split,
    embedded,
    hop_tables,
    merged,
    packed_layout,
    predictions,
    saint_norms,
    trained,
)
from tests.campaign.flips import flip_once

KINDS = {
    "hop tables": hop_tables,
    "packed layout": packed_layout,
    "embeddings": embedded,
    "model": trained,
    "predictions": predictions("parquet"),
    "merged lists": merged,
    "clusters": clusters,
    "norms": saint_norms,
    "split": edge_split,
}


@pytest.mark.fast(3)
@pytest.mark.parametrize("name", KINDS)
def test_a_flip_anywhere_is_found_and_named(tmp_path: Path, name: str) -> None:
    make: Callable[[Path], Flippable] = KINDS[name]
    made = make(tmp_path)
    assert made.find() == ""
    for number in range(30):
        assert flip_once(made, random.Random(number)) == ""
    assert made.find() == ""


@pytest.mark.parametrize("name", ["merged lists", "clusters", "norms"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    made = KINDS[name](tmp_path)
    path = next(path for path in made.files if path.suffix == ".bin")
    path.unlink()
    assert path.name in made.find()


def test_shared_rows_of_packed_batches_are_verified(tmp_path: Path) -> None:
    made = packed_layout(tmp_path)
    path = next(path for path in made.files if path.name == "epoch-0.bin")
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    (damage,) = verify(path.parent).damages
    assert damage.offset == 0
    assert "rows that batches share" in damage.reason


def test_resident_rows_that_become_shorter_while_they_are_read_end_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = packed_layout(tmp_path)
    path = next(path for path in made.files if path.name == "held.bin")
    layout, num_bytes = read_layout(path.parent), path.stat().st_size
    stat = path.stat()
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr("diskhop.stores.packed.layout.os.fstat", lambda _: stat)
    with pytest.raises(FormatError, match=r"held\.bin: became shorter while it was read"):
        layout.read_held(np.empty(num_bytes, np.uint8))


def test_the_command_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = predictions("npy")(tmp_path)
    folder = made.files[0].parent
    assert run(["verify", str(folder)]) == 0
    assert "every checksum matches" in capsys.readouterr().out
    path = next(path for path in made.files if path.suffix == ".npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert run(["verify", str(folder)]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert path.name in printed
    assert printed.endswith("1 damaged; run 'diskhop predict' again")


def test_a_run_that_has_kept_nothing_is_not_called_whole(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('dataset = "graph"\n')
    with pytest.raises(ConfigError, match="has no model or checkpoint yet, so there is nothing to verify"):
        verify(tmp_path)
