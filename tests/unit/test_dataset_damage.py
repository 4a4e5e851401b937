"""What is read is what was written: damage of any file is found, and named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from diskhop.dataset.checksums import BLOCK_BYTES
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.files import SMALL_FILE_BYTES
from diskhop.dataset.verify import verify
from diskhop.errors import DiskhopError, FormatError
from tests.graphs import folder_bytes, make_dataset

GOLDEN = Path(__file__).parents[1] / "golden"


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.parametrize("name", ["plain", "typed"])
def test_a_flipped_bit_anywhere_in_any_file_is_found(tmp_path: Path, name: str) -> None:
    generator = np.random.default_rng(3)
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / "copy"))
    for relative, content in folder_bytes(folder).items():
        for _ in range(8 if content else 0):
            flip(folder / relative, int(generator.integers(len(content))), int(generator.integers(8)))
            with pytest.raises(FormatError, match=str(folder / relative)):
                open_dataset(folder)
            if relative == "manifest.json":
                with pytest.raises(FormatError):
                    verify(folder)
            else:
                assert [damage.file for damage in verify(folder)] == [relative]
            (folder / relative).write_bytes(content)
    open_dataset(folder)


@pytest.mark.parametrize("name", ["plain", "typed"])
def test_a_file_cut_extended_or_missing_is_found(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / "copy"))
    for relative, content in folder_bytes(folder).items():
        for changed in (content[:-1], content[: len(content) // 2], content + b"\0", None):
            if changed is None:
                (folder / relative).unlink()
            else:
                (folder / relative).write_bytes(changed)
            with pytest.raises(FormatError, match="import") as caught:
                open_dataset(folder)
            assert "\n" not in str(caught.value)
            if relative != "manifest.json":
                assert [damage.file for damage in verify(folder)] == [relative]
            (folder / relative).write_bytes(content)
    open_dataset(folder)


def test_verify_names_the_blocks(tmp_path: Path) -> None:
    # 2.86 MiB of features: blocks 0, 1 and a short 2.
    folder = make_dataset(tmp_path / "graph", num_nodes=3000, num_edges=10, dim=250).path
    flip(folder / "nodes/node/features.bin", 17)
    flip(folder / "nodes/node/features.bin", 2 * BLOCK_BYTES + 5)
    reported: list[tuple[str, int, int]] = []
    damages = verify(folder, lambda stage, done, total: reported.append((stage, done, total)))
    assert [(damage.file, damage.offset, damage.num_bytes) for damage in damages] == [
        ("nodes/node/features.bin", 0, BLOCK_BYTES),
        ("nodes/node/features.bin", 2 * BLOCK_BYTES, 3_000_000 - 2 * BLOCK_BYTES),
    ]
    assert str(damages[0]) == "nodes/node/features.bin: bytes 0 to 1048576: block 0 does not match its checksum"
    assert reported[-1][0] == "verify"
    assert reported[-1][1] == reported[-1][2]


def test_damage_beyond_the_block_sums_is_still_named_by_file(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "plain", tmp_path / "copy"))
    flip(folder / "checksums.bin", 3)
    flip(folder / "nodes/node/labels.bin", 3)
    assert [damage.file for damage in verify(folder)] == ["nodes/node/labels.bin", "checksums.bin"]


def test_a_large_file_is_checked_by_length_at_open_and_by_content_in_verify(tmp_path: Path) -> None:
    num_nodes = SMALL_FILE_BYTES // 1024 + 1
    folder = make_dataset(tmp_path / "graph", num_nodes=num_nodes, num_edges=10, dim=256).path
    features = folder / "nodes/node/features.bin"
    flip(features, 40 * BLOCK_BYTES)
    open_dataset(folder)
    assert [damage.offset for damage in verify(folder)] == [40 * BLOCK_BYTES]
    os.truncate(features, SMALL_FILE_BYTES)
    with pytest.raises(FormatError, match=rf"features.bin: is {SMALL_FILE_BYTES} bytes, the manifest says"):
        open_dataset(folder)


def test_a_label_file_that_changes_after_open_is_found_when_it_is_read(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    flip(dataset.path / "nodes/node/labels.bin", 9)
    with pytest.raises(FormatError, match=r"labels.bin: does not match its checksum"):
        dataset.labels()


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "plain", tmp_path / "copy"))
    (folder / "nodes/node/labels.bin").unlink()
    os.mkfifo(folder / "nodes/node/labels.bin")
    with pytest.raises(FormatError, match="not a regular file"):
        open_dataset(folder)
    assert [damage.file for damage in verify(folder)] == ["nodes/node/labels.bin"]


def test_a_read_only_dataset_opens(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "graph").path
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        dataset = open_dataset(folder)
        assert dataset.split("train") is not None
        assert verify(folder) == []
    finally:
        for path in paths:
            path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "graph").path
    (folder / "nodes/node/labels.bin").chmod(0)
    with pytest.raises(DiskhopError, match=r"labels.bin: cannot be read"):
        open_dataset(folder)
