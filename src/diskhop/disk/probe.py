"""The disk model for a path: measured once, in about ten seconds, then cached.

The *probe* times reads of every size and depth of a grid on an existing or a temporary file. All measured models are
cached in one JSON file (system/machine_cache.py), keyed by device, engine and kernel version.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.budget import format_bytes
from diskhop.disk.measure import (
    SEQUENTIAL_BYTES,
    SEQUENTIAL_DEPTH,
    measure_read_seconds,
    random_offsets,
    reads_per_ticket,
    sequential_offsets,
    write_file,
)
from diskhop.disk.model import GRID_BYTES, GRID_DEPTHS, DiskModel, assumed_disk_model, fit_disk_model
from diskhop.errors import ConfigError, DiskhopError, FormatError
from diskhop.io.engine import open_engine
from diskhop.system.machine_cache import machine_cache_path, read_machine_cache, write_machine_cache

_CACHE_NAME = "devices.json"
_CACHE_FORMAT = 1
_SMALLEST_FILE_BYTES = 64 << 20
_BUFFER_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLimits:
    """The extent of a probe.

    file_bytes: length of the temporary file: too large for the disk's own cache, small enough to write in a second.
    num_passes: how often each cell of the grid is timed, seconds apart. The fastest counts: other load only adds time.
    read_seconds: duration of one timing of a cell.
    sequential_seconds: duration of the timing of sequential reads, all passes together.
    write_seconds: time limit for writing the temporary file.
    grid_bytes: read sizes to measure, ascending.
    grid_depths: depths to measure, ascending.
    """

    file_bytes: int = 1 << 30
    num_passes: int = 5
    read_seconds: float = 0.02
    sequential_seconds: float = 0.3
    write_seconds: float = 2.0
    grid_bytes: tuple[int, ...] = GRID_BYTES
    grid_depths: tuple[int, ...] = GRID_DEPTHS


DEFAULT_LIMITS = ProbeLimits()


def cache_path() -> Path:
    """Return the path of the file with the measured models."""
    return machine_cache_path(_CACHE_NAME)


def probe(
    path: Path,
    *,
    engine: str = "auto",
    existing_file: Path | None = None,
    measure_again: bool = False,
    limits: ProbeLimits = DEFAULT_LIMITS,
) -> DiskModel:
    """Return the model of the disk that holds `path`, a folder or a file: cached, else measured, else assumed.

    Measures on existing_file if it is at least 64 MiB long. That is more representative than a new file, and saves a
    gigabyte of writes, from which some disks take minutes to recover. Otherwise measures on a temporary file next to
    path. Never raises for the state of the disk: an assumed model says so in its note. Raises ConfigError if path is
    missing.
    """
    folder = folder_of(path)
    opened = open_engine(engine, 1)
    key = _device_key(folder, opened.engine.name)
    if not measure_again and (known := _read_cache().get(key)) is not None:
        return known
    if existing_file is not None and existing_file.stat().st_size >= _SMALLEST_FILE_BYTES:
        with contextlib.suppress(DiskhopError, OSError):
            return _remember(key, _measure_existing_file(existing_file, opened.engine.name, limits))
    try:
        with scratch_file(folder) as (file, descriptor):
            return _remember(key, _measure_new_file(file, descriptor, folder, opened.engine.name, limits))
    except (DiskhopError, OSError) as error:
        return assumed_disk_model(opened.engine.name, f"could not be measured: {error}")


def remembered_model(folder: Path, engine: str) -> DiskModel:
    """Return the cached model of a folder's disk, or an assumed one, without measuring."""
    known = _read_cache().get(_device_key(folder.resolve(), engine))
    return known or assumed_disk_model(engine, "was not measured yet")


def folder_of(path: Path) -> Path:
    """Return the folder of a path, which must exist: itself, or that of a file. Raises ConfigError."""
    if not path.exists():
        raise ConfigError(f"{path}: does not exist; name a folder on the disk to examine, such as .")
    return path.resolve() if path.is_dir() else path.resolve().parent


@contextlib.contextmanager
def scratch_file(folder: Path) -> Iterator[tuple[File, int]]:
    """Open a file without a name, with a second descriptor: it disappears with the process, however that ends."""
    descriptor, name = tempfile.mkstemp(prefix=".diskhop-probe-", dir=folder)
    try:
        try:
            file = File(name, "write")
        finally:
            Path(name).unlink()
        yield file, descriptor
    finally:
        os.close(descriptor)


def _measure_new_file(file: File, descriptor: int, folder: Path, engine: str, limits: ProbeLimits) -> DiskModel:
    wanted_bytes = min(limits.file_bytes, shutil.disk_usage(folder).free // 8 >> 23 << 23)
    if wanted_bytes < _SMALLEST_FILE_BYTES:
        raise ConfigError(f"{folder}: too little free space to measure the disk; free at least 512 MiB")
    buffer = BufferPool(0).take(_BUFFER_BYTES)
    buffer[:] = np.frombuffer(np.random.default_rng(0).bytes(_BUFFER_BYTES), np.uint8)
    writer = Engine(engine, SEQUENTIAL_DEPTH)
    file_bytes, seconds = write_file(writer, file, buffer, wanted_bytes, limits.write_seconds)
    note = f"with a file of {format_bytes(file_bytes)}"
    return _measure_reads(file, descriptor, file_bytes, engine, file_bytes / seconds, note, limits)


def _measure_existing_file(path: Path, engine: str, limits: ProbeLimits) -> DiskModel:
    file = File(str(path), "read")
    with path.open("rb") as stream:
        file_bytes = file.num_bytes >> 20 << 20
        # Nothing may be written here, so the write bandwidth stays unknown; reads bound it in practice.
        note = f"reads of {path.name} (writes assumed as fast)"
        return _measure_reads(file, stream.fileno(), file_bytes, engine, None, note, limits)


def _measure_reads(
    file: File,
    descriptor: int,
    file_bytes: int,
    engine: str,
    write_bytes_per_second: float | None,
    note: str,
    limits: ProbeLimits,
) -> DiskModel:
    rng = np.random.default_rng(0)
    buffer = BufferPool(0).take(_BUFFER_BYTES)
    buffer[:] = 0
    passes = np.zeros((limits.num_passes, len(limits.grid_bytes), len(limits.grid_depths)))
    for number in range(limits.num_passes):
        for column, depth in enumerate(limits.grid_depths):
            reader = Engine(engine, depth)
            for row, num_bytes in enumerate(limits.grid_bytes):
                _drop_cached_pages(file, descriptor)
                offsets = random_offsets(file_bytes, num_bytes, reads_per_ticket(reader.depth, num_bytes), rng)
                passes[number, row, column] = measure_read_seconds(
                    reader, file, buffer, num_bytes, limits.read_seconds, offsets
                )
    _drop_cached_pages(file, descriptor)
    read_bytes_per_second = SEQUENTIAL_BYTES / _measure_sequential_seconds(file, file_bytes, buffer, engine, limits)
    return fit_disk_model(
        passes.min(axis=0).tolist(),
        read_bytes=limits.grid_bytes,
        read_depths=limits.grid_depths,
        sequential_read_bytes_per_second=read_bytes_per_second,
        sequential_write_bytes_per_second=write_bytes_per_second or read_bytes_per_second,
        engine=engine,
        direct=file.direct,
        note=note,
    )


def _measure_sequential_seconds(
    file: File, file_bytes: int, buffer: NDArray[np.uint8], engine: str, limits: ProbeLimits
) -> float:
    """Return seconds per sequential read of SEQUENTIAL_BYTES, the fastest of all passes."""
    reader = Engine(engine, SEQUENTIAL_DEPTH)
    offsets = sequential_offsets(file_bytes, SEQUENTIAL_BYTES, reads_per_ticket(reader.depth, SEQUENTIAL_BYTES))
    seconds = limits.sequential_seconds / limits.num_passes
    return min(
        measure_read_seconds(reader, file, buffer, SEQUENTIAL_BYTES, seconds, offsets) for _ in range(limits.num_passes)
    )


def _drop_cached_pages(file: File, descriptor: int) -> None:
    """Drop a file from the page cache, so that buffered reads come from the disk; direct reads always do."""
    if not file.direct:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _device_key(folder: Path, engine: str) -> str:
    """Return the cache key of a model: block device, engine, kernel version."""
    return "|".join([*_device_identity(folder.stat().st_dev), engine, platform.release()])


@functools.cache
def _device_identity(device: int) -> tuple[str, ...]:
    """Return a block device's number, and what the kernel identifies its disk by."""
    number = f"{os.major(device)}:{os.minor(device)}"
    block = (Path("/sys/dev/block") / number).resolve()
    parts = [number]
    # A partition is identified by its disk, one folder up.
    for name in ("size", "wwid", "device/wwid", "device/serial", "device/model", "serial", "../serial", "../wwid"):
        with contextlib.suppress(OSError):
            parts.append((block / name).read_text().strip())
    return tuple(parts)


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
