"""Lines of `diskhop doctor` about GPUs: their memory, and the rate of copies through the ring of a run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from diskhop.budget import format_bytes
from diskhop.nn.devices import AUTO, CPU, choose_device, cuda_next_step, read_cuda
from diskhop.pipeline.transfer import RING_BYTES, DeviceCopies

_COPIED_BYTES = 64 << 20
_NUM_COPIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A GPU.

    device: as --device names it.
    card: its name.
    total_bytes, free_bytes: its memory.
    copy_bytes_per_second: rate of copies from memory to it, through pinned buffers.
    """

    device: str
    card: str
    total_bytes: int
    free_bytes: int
    copy_bytes_per_second: float

    def describe(self) -> str:
        """Describe it in one line."""
        rate = format_bytes(round(self.copy_bytes_per_second))
        memory = f"{format_bytes(self.total_bytes)}, {format_bytes(self.free_bytes)} free"
        return f"{self.device}: {self.card}, {memory}; batches are copied there at {rate}/s (measured)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport:
    """The GPUs that torch can use.

    reason: why there are none, or how many there are.
    next_step: what to do where there are none; '' where there are some.
    """

    gpus: tuple[DeviceReport, ...]
    reason: str
    next_step: str

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {
            "gpus": [asdict(each) for each in self.gpus],
            "gpu_reason": self.reason,
            "gpu_next_step": self.next_step,
        }

    def to_rows(self) -> list[tuple[str, str]]:
        """Return the report as (name, value) rows for people."""
        if self.gpus:
            return [("GPU", each.describe()) for each in self.gpus]
        to_do = f"with a GPU in this machine: {self.next_step}; until then, runs use the CPU"
        return [("GPU", f"no GPU: {self.reason}"), ("  to do", to_do)]


def report_devices() -> DevicesReport:
    """Measure every GPU."""
    cuda = read_cuda()
    chosen = choose_device(AUTO, cuda)
    if chosen.name == CPU:
        return DevicesReport(gpus=(), reason=chosen.reason, next_step=cuda_next_step(cuda))
    devices = (torch.device("cuda", index) for index in range(cuda.num_devices))
    reason = f"{cuda.num_devices} of CUDA {cuda.build}"
    return DevicesReport(gpus=tuple(map(_report, devices)), reason=reason, next_step="")


def measure_copy_rate(device: torch.device, num_bytes: int = _COPIED_BYTES) -> float:
    """Return the bytes per second of copies from memory to a device, as batches are copied: the best of three."""
    copies, source = DeviceCopies(device), torch.ones(num_bytes, dtype=torch.uint8)
    best = float("inf")
    for _ in range(_NUM_COPIES):
        started = time.perf_counter()
        copies.copy(source)
        arrival = copies.finish()
        if arrival.sent is not None:
            arrival.sent.synchronize()
        best = min(best, time.perf_counter() - started)
    return num_bytes / best


def describe_copies(device: torch.device, batch_bytes: int) -> str:
    """Say in one line how batches come to a device, and predict how long one takes. batch_bytes: of a large batch."""
    rate = measure_copy_rate(device)
    predicted = f"up to {batch_bytes / rate * 1000:.2g} ms each predicted, at {format_bytes(round(rate))}/s measured"
    buffers = f"{format_bytes(RING_BYTES)} of pinned buffers"
    return f"each batch is copied through {buffers}, while the model computes ({predicted})"


def _report(device: torch.device) -> DeviceReport:
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return DeviceReport(
        device=str(device),
        card=torch.cuda.get_device_name(device),
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        copy_bytes_per_second=measure_copy_rate(device),
    )
