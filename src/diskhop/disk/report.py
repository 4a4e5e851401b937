"""The report of `diskhop doctor`: what a disk and its engine can do."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop._native import why_no_uring
from diskhop.budget import format_bytes
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import DEFAULT_LIMITS, ProbeLimits, folder_of, probe, scratch_file
from diskhop.errors import DiskhopError
from diskhop.io.engine import open_engine, uring_next_step

_BUFFERED = "runs read through the page cache, which --memory does not bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskReport:
    """Capabilities of the disk that holds `path`.

    path: the folder that was examined.
    engine: the I/O engine in use, uring or threads.
    engine_reason: why this engine, in one line.
    engine_next_step: what to do for a better one; '' if there is none.
    kernel: name and release of the operating system's kernel.
    direct: whether direct I/O works; None if no file could be created to find out.
    offset_alignment: alignment of file offsets for direct I/O in bytes, 1 without direct I/O, None if unknown.
    memory_alignment: alignment of memory for direct I/O in bytes, likewise.
    free_bytes: free space on the disk.
    total_bytes: size of the disk.
    memory_bytes: physical memory of this machine.
    model: measured or assumed cost of reads.
    """

    path: Path
    engine: str
    engine_reason: str
    engine_next_step: str
    kernel: str
    direct: bool | None
    offset_alignment: int | None
    memory_alignment: int | None
    free_bytes: int
    total_bytes: int
    memory_bytes: int
    model: DiskModel

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        device = self.model.to_dict()
        device["break_even_gap_bytes"] = self.model.break_even_gap_bytes
        return {
            "path": str(self.path),
            "engine": self.engine,
            "engine_reason": self.engine_reason,
            "engine_next_step": self.engine_next_step,
            "kernel": self.kernel,
            "direct": self.direct,
            "offset_alignment": self.offset_alignment,
            "memory_alignment": self.memory_alignment,
            "free_bytes": self.free_bytes,
            "total_bytes": self.total_bytes,
            "memory_bytes": self.memory_bytes,
            "device": device,
        }

    def to_rows(self) -> list[tuple[str, str]]:
        """Return the report as (name, value) rows for people."""
        model = self.model
        direct = {True: "yes", False: "no: the file system refuses it", None: "unknown: no file can be created here"}
        alignment = ""
        if self.direct:
            alignment = f" (alignment: offsets {self.offset_alignment} bytes, memory {self.memory_alignment} bytes)"

        def to_do(text: str) -> list[tuple[str, str]]:
            return [("  to do", text)] if text else []

        small, deep = model.read_bytes[0], model.read_depths[-1]
        reads_per_second = 1 / model.predict_seconds(small, deep)
        return [
            ("kernel", self.kernel),
            ("engine", f"{self.engine} ({self.engine_reason})"),
            *to_do(f"{self.engine_next_step}; until then, runs read by threads" if self.engine_next_step else ""),
            ("direct I/O", direct[self.direct] + alignment),
            *to_do(f"put datasets on another disk; until then, {_BUFFERED}" if self.direct is False else ""),
            ("disk model", f"{model.source}: {model.note}"),
            (
                "one read",
                f"{model.overhead_seconds * 1e6:.1f} us + {format_bytes(round(model.bytes_per_second))}/s",
            ),
            ("break-even gap", format_bytes(model.break_even_gap_bytes)),
            ("random reads", f"{reads_per_second:,.0f} per second ({small} bytes each, depth {deep})"),
            ("sequential reads", f"{format_bytes(round(model.sequential_read_bytes_per_second))}/s"),
            ("sequential writes", f"{format_bytes(round(model.sequential_write_bytes_per_second))}/s"),
            ("disk", f"{format_bytes(self.free_bytes)} free of {format_bytes(self.total_bytes)}"),
            ("memory", f"{format_bytes(self.memory_bytes)}"),
        ]


def report_disk(path: Path, *, engine: str = "auto", limits: ProbeLimits = DEFAULT_LIMITS) -> DiskReport:
    """Examine the disk that holds `path`. It is measured again, so that a model from a busy hour is replaced.

    Raises ConfigError if path is missing.
    """
    folder = folder_of(path)
    opened = open_engine(engine, 1)
    usage = shutil.disk_usage(folder)
    direct = offset_alignment = memory_alignment = None
    with contextlib.suppress(DiskhopError, OSError), scratch_file(folder) as (file, _):
        direct, offset_alignment, memory_alignment = file.direct, file.offset_alignment, file.memory_alignment
    return DiskReport(
        path=folder,
        engine=opened.engine.name,
        engine_reason=opened.reason,
        engine_next_step=uring_next_step(why_no_uring()) if engine == "auto" else "",
        kernel=f"{platform.system()} {platform.release()}",
        direct=direct,
        offset_alignment=offset_alignment,
        memory_alignment=memory_alignment,
        free_bytes=usage.free,
        total_bytes=usage.total,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        model=probe(folder, engine=engine, measure_again=True, limits=limits),
    )
