"""The device model of the disk below a path: measured once, in about ten seconds, then remembered.

The cache is one JSON file for all devices, see machine_cache.py.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import BufferPool, Engine, File
from diskhop.budget import format_bytes
from diskhop.disk.measure import (
    SEQUENTIAL_BYTES,
    SEQUENTIAL_DEPTH,
    group_of,
    measure_read_seconds,
    random_offsets,
    sequential_offsets,
    write_file,
)
from diskhop.disk.model import GRID_BYTES, GRID_DEPTHS, DiskModel, assumed_device_model, fit_device_model
from diskhop.errors import ConfigError, DiskhopError, FormatError
from diskhop.io.engine import open_engine
from diskhop.system.machine_cache import machine_cache_path, read_machine_cache, write_machine_cache

__all__ = [
    "DeviceReport",
    "DiskModel",
    "assumed_device_model",
    "cache_path",
    "probe",
    "remembered_model",
    "report_device",
]

_CACHE_NAME = "devices.json"
_CACHE_FORMAT = 1
# Large enough that a disk's own cache does not serve it, small enough to be written in a second.
_PROBE_FILE_BYTES = 1 << 30
_SMALLEST_FILE_BYTES = 64 << 20
_BUFFER_BYTES = 32 << 20
_WRITE_SECONDS = 2.0
_SEQUENTIAL_SECONDS = 0.3
# Each cell is timed in passes some seconds apart, and the fastest counts: what else the machine does only adds.
_NUM_PASSES = 5
_PASS_SECONDS = 0.02


def cache_path() -> Path:
    """Where measured models are kept."""
    return machine_cache_path(_CACHE_NAME)


def probe(
    path: Path, *, engine: str = "auto", existing_file: Path | None = None, measure_again: bool = False
) -> DiskModel:
    """Return the model of the device below `path`, a folder or a file: remembered, else measured, else assumed.

    Measures on existing_file, if it is long enough: what is to be read tells more than what was just written, and the
    disk is spared a gigabyte of writes, of which some recover for minutes. Else on a temporary file beside path. Never
    raises for what the disk is or refuses: an assumed model says so in its note. Raises ConfigError if path is missing.
    """
    folder = _folder_of(path)
    opened = open_engine(engine, 1)
    key = _device_key(folder, opened.engine.name)
    if not measure_again and (known := _read_cache().get(key)) is not None:
        return known
    if existing_file is not None and existing_file.stat().st_size >= _SMALLEST_FILE_BYTES:
        with contextlib.suppress(DiskhopError, OSError):
            return _remember(key, _measure_existing_file(existing_file, opened.engine.name))
    try:
        with _scratch_file(folder) as (file, descriptor):
            return _remember(key, _measure_new_file(file, descriptor, folder, opened.engine.name))
    except (DiskhopError, OSError) as error:
        return assumed_device_model(opened.engine.name, f"could not be measured: {error}")


def remembered_model(folder: Path, engine: str) -> DiskModel:
    """The model of the device of a folder where it was measured before, else assumed: for what cannot wait for more."""
    known = _read_cache().get(_device_key(folder.resolve(), engine))
    return known or assumed_device_model(engine, "was not measured yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """What to expect of this machine's disk below `path`.

    alignments: of direct I/O's offsets and memory; 1 where there is none, None where no file could be made to see.
    """

    path: Path
    engine: str
    engine_reason: str
    direct: bool | None
    offset_alignment: int | None
    memory_alignment: int | None
    free_bytes: int
    total_bytes: int
    memory_bytes: int
    model: DiskModel

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        device = self.model.to_dict()
        device["break_even_gap_bytes"] = self.model.break_even_gap_bytes
        return {
            "path": str(self.path),
            "engine": self.engine,
            "engine_reason": self.engine_reason,
            "direct": self.direct,
            "offset_alignment": self.offset_alignment,
            "memory_alignment": self.memory_alignment,
            "free_bytes": self.free_bytes,
            "total_bytes": self.total_bytes,
            "memory_bytes": self.memory_bytes,
            "device": device,
        }

    def to_rows(self) -> list[tuple[str, str]]:
        """The same for people: what, and how much of it."""
        model = self.model
        direct = {True: "yes", False: "no: the file system refuses it", None: "unknown: no file can be made here"}
        alignment = ""
        if self.direct:
            alignment = f", offsets by {self.offset_alignment}, memory by {self.memory_alignment} bytes"
        small, deep = model.read_bytes[0], model.read_depths[-1]
        reads_per_second = 1 / model.predict_seconds(small, deep)
        return [
            ("engine", f"{self.engine} ({self.engine_reason})"),
            ("direct I/O", direct[self.direct] + alignment),
            ("device model", f"{model.source}: {model.note}"),
            (
                "one read",
                f"{model.overhead_seconds * 1e6:.1f} us + bytes at {format_bytes(round(model.bytes_per_second))}/s",
            ),
            ("break-even gap", format_bytes(model.break_even_gap_bytes)),
            ("random reads", f"{reads_per_second:,.0f} a second of {small} bytes at depth {deep}"),
            ("sequential reads", f"{format_bytes(round(model.sequential_read_bytes_per_second))}/s"),
            ("sequential writes", f"{format_bytes(round(model.sequential_write_bytes_per_second))}/s"),
            ("disk", f"{format_bytes(self.free_bytes)} free of {format_bytes(self.total_bytes)}"),
            ("memory", f"{format_bytes(self.memory_bytes)}"),
        ]


def report_device(path: Path, *, engine: str = "auto") -> DeviceReport:
    """Look at the machine and at the disk below `path`, measured anew: a model remembered from a busy hour is replaced.

    Raises ConfigError if path is missing.
    """
    folder = _folder_of(path)
    opened = open_engine(engine, 1)
    usage = shutil.disk_usage(folder)
    direct = offset_alignment = memory_alignment = None
    with contextlib.suppress(DiskhopError, OSError), _scratch_file(folder) as (file, _):
        direct, offset_alignment, memory_alignment = file.direct, file.offset_alignment, file.memory_alignment
    return DeviceReport(
        path=folder,
        engine=opened.engine.name,
        engine_reason=opened.reason,
        direct=direct,
        offset_alignment=offset_alignment,
        memory_alignment=memory_alignment,
        free_bytes=usage.free,
        total_bytes=usage.total,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        model=probe(folder, engine=engine, measure_again=True),
    )


def _folder_of(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(f"{path}: does not exist; name a folder on the disk to look at")
    return path.resolve() if path.is_dir() else path.resolve().parent


@contextlib.contextmanager
def _scratch_file(folder: Path) -> Iterator[tuple[File, int]]:
    """A file without a name, and another descriptor of it: gone with the process, however that ends."""
    descriptor, name = tempfile.mkstemp(prefix=".diskhop-probe-", dir=folder)
    try:
        try:
            file = File(name, "write")
        finally:
            Path(name).unlink()
        yield file, descriptor
    finally:
        os.close(descriptor)


def _measure_new_file(file: File, descriptor: int, folder: Path, engine: str) -> DiskModel:
    wanted_bytes = min(_PROBE_FILE_BYTES, shutil.disk_usage(folder).free // 8 >> 23 << 23)
    if wanted_bytes < _SMALLEST_FILE_BYTES:
        raise ConfigError(f"{folder}: too little free space to measure the disk")
    buffer = BufferPool(0).take(_BUFFER_BYTES)
    buffer[:] = np.frombuffer(np.random.default_rng(0).bytes(_BUFFER_BYTES), np.uint8)
    writer = Engine(engine, SEQUENTIAL_DEPTH)
    file_bytes, seconds = write_file(writer, file, buffer, wanted_bytes, _WRITE_SECONDS)
    note = f"with a file of {format_bytes(file_bytes)}"
    return _measure_reads(file, descriptor, file_bytes, engine, file_bytes / seconds, note)


def _measure_existing_file(path: Path, engine: str) -> DiskModel:
    file = File(str(path), "read")
    with path.open("rb") as stream:
        file_bytes = file.num_bytes >> 20 << 20
        # Nothing may be written, so that a write's bandwidth stays unknown; a read's bounds it in practice.
        note = f"reads of {path.name} (writes assumed as fast)"
        return _measure_reads(file, stream.fileno(), file_bytes, engine, None, note)


def _measure_reads(
    file: File, descriptor: int, file_bytes: int, engine: str, write_bytes_per_second: float | None, note: str
) -> DiskModel:
    rng = np.random.default_rng(0)
    buffer = BufferPool(0).take(_BUFFER_BYTES)
    buffer[:] = 0
    passes = np.zeros((_NUM_PASSES, len(GRID_BYTES), len(GRID_DEPTHS)))
    for number in range(_NUM_PASSES):
        for column, depth in enumerate(GRID_DEPTHS):
            reader = Engine(engine, depth)
            for row, num_bytes in enumerate(GRID_BYTES):
                _drop_cached_pages(file, descriptor)
                offsets = random_offsets(file_bytes, num_bytes, group_of(reader.depth, num_bytes), rng)
                passes[number, row, column] = measure_read_seconds(
                    reader, file, buffer, num_bytes, _PASS_SECONDS, offsets
                )
    _drop_cached_pages(file, descriptor)
    reader = Engine(engine, SEQUENTIAL_DEPTH)
    in_order = sequential_offsets(file_bytes, SEQUENTIAL_BYTES, group_of(reader.depth, SEQUENTIAL_BYTES))
    seconds = min(
        measure_read_seconds(reader, file, buffer, SEQUENTIAL_BYTES, _SEQUENTIAL_SECONDS / _NUM_PASSES, in_order)
        for _ in range(_NUM_PASSES)
    )
    read_bytes_per_second = SEQUENTIAL_BYTES / seconds
    return fit_device_model(
        passes.min(axis=0).tolist(),
        read_bytes=GRID_BYTES,
        read_depths=GRID_DEPTHS,
        sequential_read_bytes_per_second=read_bytes_per_second,
        sequential_write_bytes_per_second=write_bytes_per_second or read_bytes_per_second,
        engine=engine,
        direct=file.direct,
        note=note,
    )


def _drop_cached_pages(file: File, descriptor: int) -> None:
    """Buffered reads must come from the disk; direct ones do anyway."""
    if not file.direct:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _device_key(folder: Path, engine: str) -> str:
    """What a measured model holds for: the device itself, where the kernel names it, the engine and the kernel."""
    device = folder.stat().st_dev
    parts = [f"{os.major(device)}:{os.minor(device)}"]
    block = Path("/sys/dev/block") / parts[0]
    # A partition's identity is its disk's, one folder up.
    for name in ("size", "wwid", "device/wwid", "device/serial", "device/model", "serial", "../serial", "../wwid"):
        with contextlib.suppress(OSError):
            parts.append((block.resolve() / name).read_text().strip())
    return "|".join([*parts, engine, platform.release()])


def _read_cache() -> dict[str, DiskModel]:
    stored = read_machine_cache(_CACHE_NAME)
    try:
        if stored["format"] != _CACHE_FORMAT:
            return {}
        return {str(key): DiskModel.from_dict(model) for key, model in stored["devices"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, FormatError):
        return {}


def _remember(key: str, model: DiskModel) -> DiskModel:
    devices = {**_read_cache(), key: model}
    stored = {"format": _CACHE_FORMAT, "devices": {name: known.to_dict() for name, known in devices.items()}}
    write_machine_cache(_CACHE_NAME, stored)
    return model
