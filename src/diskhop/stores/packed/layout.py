"""A packed layout: a folder of epochs packed ahead, possibly on another machine (DiskGNN, section 4).

layout.json     which batches, and the files, with a checksum; written last
held_ids.bin    int64, ascending: the rows that stay in memory; held.bin: those rows, one after the other
epoch-N.bin     the batches of an epoch (pack_file.py)
took.json       time and bytes of each step, as in result.json, of the process that finished it; may be missing
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from diskhop.batches.trace import TraceSettings, settings_as_json
from diskhop.derived.clean import LAYOUT_FILE
from diskhop.errors import FormatError, ReadError
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.packed.pack_file import PackFile, open_pack_file, settings_of

VERSION = 2
HELD_IDS_FILE, HELD_FILE, STEPS_FILE = "held_ids.bin", "held.bin", "took.json"
_REMEDY = "remove its folder and pack again"
# Settings that differ from epoch to epoch.
_OF_AN_EPOCH = ("epoch", "seeds_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEpoch:
    """One epoch of a layout.

    epoch, seeds_hash: number of the epoch, and xxh3 of its seed nodes.
    num_batches: batches, from the first one on.
    segment: batches that share rows.
    most_own_rows: rows of the buffer that a batch takes at most.
    num_bytes: bytes of the file.
    bytes_needed: bytes of rows that are not resident, and of blocks.
    shared_checksum: xxh3 of the rows that batches share, which `diskhop verify` compares: a batch reads some of them.
    """

    epoch: int
    seeds_hash: str
    num_batches: int
    segment: int
    most_own_rows: int
    num_bytes: int
    bytes_needed: int
    shared_checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The content of layout.json.

    path: folder of the layout.
    samples: settings of the batches as in a trace, except for epoch and seed nodes.
    row_bytes: bytes of a row.
    num_held, held_hash, held_checksum: number of resident rows, xxh3 of their ids, and xxh3 of the rows.
    epochs: the packed epochs.
    """

    path: Path
    samples: dict[str, Any]
    row_bytes: int
    num_held: int
    held_hash: str
    held_checksum: int
    epochs: tuple[PackedEpoch, ...]

    @property
    def most_own_rows(self) -> int:
        """Rows of the buffer that a batch takes at most."""
        return max(epoch.most_own_rows for epoch in self.epochs)

    @property
    def num_bytes(self) -> int:
        """Bytes on disk of the packed epochs and the resident rows."""
        return sum(epoch.num_bytes for epoch in self.epochs) + self.num_held * self.row_bytes

    @property
    def has_shared_rows(self) -> bool:
        """Whether batches of any epoch share rows on the disk."""
        return self.longest_segment > 1

    @property
    def longest_segment(self) -> int:
        """Batches that share rows at most."""
        return max(epoch.segment for epoch in self.epochs)

    def check(self, table: Table) -> None:
        """Raise FormatError for rows of another size than its dataset's, and for files of another length."""
        if self.row_bytes != table.row_bytes:
            raise FormatError(
                f"{self.path / LAYOUT_FILE}: has rows of {self.row_bytes} bytes, not {table.row_bytes}; {_REMEDY}"
            )
        for epoch in self.epochs:
            self.check_epoch(epoch)

    def check_epoch(self, epoch: PackedEpoch) -> None:
        """Raise FormatError for a file of another length."""
        file = self.epoch_path(epoch.epoch)
        num_bytes = file.stat().st_size if file.exists() else 0
        if num_bytes != epoch.num_bytes:
            raise FormatError(f"{file}: has {num_bytes} bytes, not {epoch.num_bytes}; {_REMEDY}")

    def find_epoch(self, settings: TraceSettings) -> PackedEpoch | None:
        """Return the epoch with these batches; None if it is not here."""
        wanted = settings_as_json(settings)
        if self.samples != {name: value for name, value in wanted.items() if name not in _OF_AN_EPOCH}:
            return None
        return next((each for each in self.epochs if (each.epoch, each.seeds_hash) == _epoch_of(wanted)), None)

    def differing(self, settings: TraceSettings) -> str:
        """Describe how its batches differ from others, for people."""
        wanted = samples_of(settings)
        for name in {**wanted, **self.samples}:
            if self.samples.get(name) != wanted.get(name):
                return f"{name} {self.samples.get(name)}, not {wanted.get(name)}"
        return f"epochs {', '.join(str(each.epoch) for each in self.epochs)} of other seeds"

    def find(self, settings: TraceSettings, numbers: Sequence[int]) -> PackFile | None:
        """Open the file with these batches; None if any of them is not here. Raises ReadError and FormatError."""
        epoch = self.find_epoch(settings)
        if epoch is None or max(numbers, default=0) >= epoch.num_batches:
            return None
        return open_pack_file(self.epoch_path(epoch.epoch), settings_of(settings, self.held_hash))

    def epoch_path(self, epoch: int) -> Path:
        """Return the file of an epoch's batches."""
        return self.path / epoch_file(epoch)

    def steps(self) -> list[dict[str, Any]]:
        """Return the steps of making it; empty if they are unknown."""
        with contextlib.suppress(OSError, ValueError):
            steps = json.loads((self.path / STEPS_FILE).read_bytes())
            return steps if isinstance(steps, list) else []
        return []

    def held_ids(self) -> NodeIds:
        """Return the ids of the resident rows, int64, ascending. Raises ReadError and FormatError."""
        path = self.path / HELD_IDS_FILE
        ids = _read_whole(path, 8 * self.num_held).view("<i8")
        if hash_held(ids) != self.held_hash:
            raise FormatError(f"{path}: damaged: its checksum is {hash_held(ids)}, not {self.held_hash}; {_REMEDY}")
        return ids

    def read_held(self, out: Bytes) -> None:
        """Read the resident rows. Raises ReadError and FormatError."""
        path = self.path / HELD_FILE
        flat = out.reshape(-1)
        _read_whole(path, len(flat), flat)
        actual = xxhash.xxh3_64_intdigest(flat.data)
        if actual != self.held_checksum:
            raise FormatError(
                f"{path}: damaged: its checksum is {actual:016x}, not {self.held_checksum:016x}; {_REMEDY}"
            )


def epoch_file(epoch: int) -> str:
    """Return the name of an epoch's file."""
    return f"epoch-{epoch}.bin"


def hash_held(ids: NodeIds) -> str:
    """Return the xxh3 of ids as 16 hex digits."""
    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(ids, '<i8').data):016x}"


def samples_of(settings: TraceSettings) -> dict[str, Any]:
    """Return the settings of batches, except for the epoch."""
    return {name: value for name, value in settings_as_json(settings).items() if name not in _OF_AN_EPOCH}


def encode_layout(layout: Layout) -> bytes:
    """Return the content of layout.json."""
    content = {name: value for name, value in asdict(layout).items() if name != "path"}
    content["epochs"] = [asdict(epoch) for epoch in layout.epochs]
    return encode_manifest(content, VERSION)


def open_layout(path: Path, table: Table) -> Layout:
    """Read a layout, checked as Layout.check() does. Raises ReadError and FormatError."""
    layout = read_layout(path)
    layout.check(table)
    return layout


def read_layout(path: Path) -> Layout:
    """Read a layout's manifest; it may be another dataset's. Raises ReadError and FormatError."""
    content = read_manifest(path / LAYOUT_FILE, VERSION, "a packed layout", _REMEDY)
    epochs = tuple(PackedEpoch(**epoch) for epoch in content.pop("epochs"))
    return Layout(path=path, epochs=epochs, **content)


def _epoch_of(wanted: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(wanted[name] for name in _OF_AN_EPOCH)


def _read_whole(path: Path, num_bytes: int, out: Bytes | None = None) -> Bytes:
    out = np.empty(num_bytes, np.uint8) if out is None else out
    try:
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != num_bytes:
                raise FormatError(f"{path}: has another length than {num_bytes} bytes; {_REMEDY}")
            done = 0
            while done < num_bytes:
                if not (got := file.readinto(out[done:].data)):
                    raise FormatError(f"{path}: became shorter while it was read; {_REMEDY}")
                done += got
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    return out
