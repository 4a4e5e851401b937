"""Damage of any file is found, and named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.files import SMALL_FILE_BYTES, read_manifest
from diskhop.dataset.manifest import CHECKSUMS_NAME, EdgeType, FileEntry, Manifest, NodeType
from diskhop.dataset.verify import describe, verify
from diskhop.errors import DiskhopError, FormatError
from diskhop.io.checksums import BLOCK_BYTES, sum_file
from tests.graphs import folder_bytes, make_dataset

GOLDEN = Path(__file__).parents[1] / "golden"


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def forge(folder: Path, manifest: Manifest, changed: Mapping[str, NDArray[Any]]) -> None:
    """Change files as a writer without our rules would: every checksum is right."""
    for relative, array in changed.items():
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        array.tofile(folder / relative)
    files, blocks = {}, [np.zeros(0, np.uint64)]
    for relative in sorted({*manifest.files, *changed}):
        files[relative], sums = summed(folder / relative)
        blocks.append(sums)
    np.concatenate(blocks).tofile(folder / CHECKSUMS_NAME)
    checksums, _ = summed(folder / CHECKSUMS_NAME)
    (folder / "manifest.json").write_bytes(replace(manifest, files=files, checksums=checksums).to_bytes())


def summed(path: Path) -> tuple[FileEntry, NDArray[np.uint64]]:
    sums = sum_file(np.fromfile(path, np.uint8))
    return FileEntry(num_bytes=sums.num_bytes, xxh3_64=f"{sums.digest:016x}"), sums.blocks


@pytest.mark.parametrize(
    ("file", "place", "value", "words"),
    [
        ("splits/train.bin", 2, 12, "splits/train.bin: has node 12, must be from 0 to 11; import the graph again"),
        ("splits/train.bin", 5, -1, "splits/train.bin: has node -1, must be from 0 to 11"),
        ("splits/train.bin", 0, 2**62, "splits/train.bin: has node 4611686018427387904"),
        ("labels.bin", 11, 3, "labels.bin: has class 3, must be from -1 to 2; import the graph again"),
        ("labels.bin", 0, -2, "labels.bin: has class -2, must be from -1 to 2"),
    ],
)
def test_numbers_out_of_range_under_right_checksums_are_refused_when_read(
    tmp_path: Path, file: str, place: int, value: int, words: str
) -> None:
    folder = Path(shutil.copytree(GOLDEN / "plain", tmp_path / "copy"))
    relative = f"nodes/node/{file}"
    numbers = np.fromfile(folder / relative, np.int64)
    numbers[place] = value
    forge(folder, read_manifest(folder), {relative: numbers})
    assert verify(folder) == []
    dataset = open_dataset(folder)
    with pytest.raises(FormatError) as caught:
        _ = dataset.labels if file == "labels.bin" else dataset.split("train")
    assert words in str(caught.value)
    with pytest.raises(FormatError):
        describe(dataset)


def test_a_type_without_nodes_is_described(tmp_path: Path) -> None:
    edges = EdgeType(source="node", destination="node", count=0, index_dtype="uint32")
    manifest = Manifest(
        name="empty",
        node_types={"node": NodeType(count=0)},
        edge_types={"edge": edges},
        files={},
        checksums=FileEntry(num_bytes=0, xxh3_64="0" * 16),
    )
    lists: dict[str, NDArray[Any]] = {
        "edges/edge/indptr.bin": np.zeros(1, np.int64),
        "edges/edge/indices.bin": np.zeros(0, np.uint32),
    }
    forge(tmp_path, manifest, lists)
    described = describe(open_dataset(tmp_path))["edges"]["edge"]
    assert (described["mean_in_degree"], described["max_in_degree"], described["without_in_edges"]) == (0.0, 0, 0)


def bytes_from_disk() -> int:
    """Return the bytes that the disks delivered to this process so far."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        pytest.skip("the kernel does not tell what a process reads")
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def test_verify_reads_the_disk_and_not_what_memory_remembers_of_it(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "graph", num_nodes=3000, num_edges=10, dim=250).path
    features = folder / "nodes/node/features.bin"
    with features.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = bytes_from_disk()
        num_bytes = len(file.read())
        if bytes_from_disk() - before < num_bytes:
            pytest.skip("this file system does not tell what it reads")
    before = bytes_from_disk()
    features.read_bytes()
    assert bytes_from_disk() - before < num_bytes, "the second read is served from memory"
    before = bytes_from_disk()
    assert verify(folder) == []
    assert bytes_from_disk() - before >= num_bytes


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
            if relative.endswith("/features.bin") and changed is not None and len(changed) > len(content):
                # Rows that an update appends belong to the next generation, and an unfinished one leaves them.
                open_dataset(folder)
                assert verify(folder) == []
                continue
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
        _ = dataset.labels


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
