"""Verification of every byte of a packed layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from diskhop.dataset.damage import MISMATCH, Damage
from diskhop.dataset.files import checksum_of, drop_cached_pages
from diskhop.errors import FormatError, ReadError
from diskhop.io.values import read_values
from diskhop.runtime.progress import Progress, silent
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned, check_bytes, check_head
from diskhop.stores.packed.layout import HELD_FILE, Layout, PackedEpoch, epoch_file, read_layout
from diskhop.stores.packed.pack_file import list_bytes, open_pack_file

_SHARED = "the rows that batches share do not match their checksum"
_BETWEEN = "is not zeros, where nothing is stored"


def verify_layout(path: Path, progress: Progress = silent) -> list[Damage]:
    """Read every byte and return what is damaged. Raises FormatError for a damaged manifest."""
    layout = read_layout(path)
    damages = [*_verify_held(layout)]
    total_bytes, done_bytes = sum(epoch.num_bytes for epoch in layout.epochs), 0
    for epoch in layout.epochs:
        damages += _verify_epoch(layout, epoch)
        done_bytes += epoch.num_bytes
        progress("verify", done_bytes, total_bytes)
    return damages


def _verify_held(layout: Layout) -> Iterator[Damage]:
    path, held_bytes = layout.path / HELD_FILE, layout.num_held * layout.row_bytes
    try:
        layout.held_ids()
    except (FormatError, ReadError) as error:
        file, _, reason = str(error).partition(": ")
        yield Damage(Path(file).name, 0, 8 * layout.num_held, reason)
    drop_cached_pages(path)
    if not path.exists() or path.stat().st_size != held_bytes or checksum_of(path) != layout.held_checksum:
        yield Damage(HELD_FILE, 0, held_bytes, MISMATCH)


def _verify_epoch(layout: Layout, epoch: PackedEpoch) -> Iterator[Damage]:
    name = epoch_file(epoch.epoch)
    path = layout.path / name
    drop_cached_pages(path)
    settings = {"epoch": epoch.epoch, "seeds_hash": epoch.seeds_hash, "rows in memory": layout.held_hash}
    try:
        layout.check_epoch(epoch)
        source = open_pack_file(path, {**layout.samples, **settings})
    except (FormatError, ReadError) as error:
        yield Damage(name, 0, epoch.num_bytes, str(error).removeprefix(f"{path}: "))
        return
    try:
        shared_bytes = source.num_shared * layout.row_bytes
        if checksum_of(path, shared_bytes) != epoch.shared_checksum:
            yield Damage(name, 0, shared_bytes, _SHARED)
        yield from _verify_zeros(path, shared_bytes, aligned(shared_bytes))
        for chunk in source.chunks:
            yield from _verify_chunk(path, chunk)
        end = max((chunk.end for chunk in source.chunks), default=aligned(shared_bytes))
        yield from _verify_zeros(path, end + list_bytes(len(source.chunks)), epoch.num_bytes - BLOCK_BYTES)
    finally:
        source.close()


def _verify_chunk(path: Path, chunk: Chunk) -> Iterator[Damage]:
    head = read_values(path, np.uint8, chunk.head_bytes, chunk.offset)
    try:
        body_sum, rows_sum = check_head(chunk, head[:BLOCK_BYTES], path)
        check_bytes(chunk, "body", head[BLOCK_BYTES:], body_sum, path)
        check_bytes(
            chunk, "packed rows", read_values(path, np.uint8, chunk.rows_bytes, chunk.rows_offset), rows_sum, path
        )
    except FormatError as error:
        reason = str(error).removeprefix(f"{path}: ")
        yield Damage(path.name, chunk.offset, chunk.end - chunk.offset, reason)
        return
    yield from _verify_zeros(path, chunk.rows_offset + chunk.rows_bytes, chunk.end)


def _verify_zeros(path: Path, begin: int, end: int) -> Iterator[Damage]:
    if read_values(path, np.uint8, end - begin, begin).any():
        yield Damage(path.name, begin, end - begin, _BETWEEN)
