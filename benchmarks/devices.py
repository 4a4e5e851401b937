"""Tools of the benchmarks of devices: whether a GPU is there, the time of its work, and the rates of its copies."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from diskhop.system.transfers import transfers
from turns import Turn, peak_rss_bytes

# Calls per measurement: a kernel is launched while the one before runs, as in training.
_CALLS = 10
NO_GPU = "no GPU was there: nothing is measured (--device cpu runs the code, and measures nothing of interest)"

# A moment of a device's current stream: an event of a GPU, or seconds of the host's clock.
Moment: TypeAlias = torch.cuda.Event | float


class Times(NamedTuple):
    """Seconds of one call: the median and the range of several measurements."""

    median: float
    least: float
    most: float

    def rate(self, num_bytes: int) -> float:
        """Return bytes per second by the median."""
        return num_bytes / self.median

    def __str__(self) -> str:
        return f"{1000 * self.median:9.3f} ms  ({1000 * self.least:.3f} to {1000 * self.most:.3f})"


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all these benchmarks have."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes: half a minute on a GPU")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")


def is_there(device: torch.device) -> bool:
    """Return whether a device can be used."""
    return device.type == "cpu" or torch.cuda.is_available()


def name_of(device: torch.device) -> str:
    """Return the name of the card."""
    return "no GPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def moment(device: torch.device) -> Moment:
    """Return when the current stream of a device has done the work so far."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(start: Moment, end: Moment) -> float:
    """Return the seconds of a device between two moments; waits for the second."""
    if isinstance(start, float) or isinstance(end, float):
        assert isinstance(start, float) and isinstance(end, float), "of one device"  # noqa: PT018
        return end - start
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1000


def time_calls(call: Callable[[], object], device: torch.device, repeats: int, calls: int = _CALLS) -> Times:
    """Time a call by the device's clock, once it has run: kernels are compiled then. calls: per measurement."""
    calls = 1 if device.type == "cpu" else calls
    call()
    seconds = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = moment(device)
        for _ in range(calls):
            call()
        seconds.append(seconds_between(start, moment(device)) / calls)
    return Times(statistics.median(seconds), min(seconds), max(seconds))


def copy_rate(device: torch.device, num_bytes: int, repeats: int) -> float:
    """Return bytes per second, read and written, of a copy within a device's memory."""
    source = torch.ones(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return time_calls(lambda: target.copy_(source), device, repeats).rate(2 * num_bytes)


def host_copy_rate(device: torch.device, num_bytes: int, repeats: int) -> float:
    """Return bytes per second of a copy from pinned memory to a device, in one piece."""
    source = torch.ones(num_bytes // 4, pin_memory=device.type == "cuda")
    target = torch.empty(num_bytes // 4, device=device)
    return time_calls(lambda: target.copy_(source, non_blocking=True), device, repeats).rate(num_bytes)


def take_turn_on(device: torch.device, work: Callable[..., None], *arguments: Any) -> Turn:
    """Run work(*arguments, stages) in this process, which has started CUDA; see turns.take_turn().

    Peaks are of the turn: resident memory, which includes what libraries keep, and `device bytes` of the stages.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # some virtual machines keep the peak of all turns so far
        Path("/proc/self/clear_refs").write_text("5")
    before, begin = transfers(), time.perf_counter()
    stages: dict[str, float] = {}
    work(*arguments, stages)
    after = transfers()
    stages["device bytes"] = 0 if device.type == "cpu" else torch.cuda.max_memory_allocated(device)
    return Turn(
        seconds=time.perf_counter() - begin,
        peak_rss_bytes=peak_rss_bytes(),
        bytes_read=after.bytes_read - before.bytes_read,
        bytes_written=after.bytes_written - before.bytes_written,
        stages=stages,
    )
