"""The device of a run: which one it is, and what is said when its memory is too small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from diskhop.budget import format_bytes
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import AUTO
from diskhop.config.train import CPU, TrainConfig
from diskhop.errors import TrainingError
from diskhop.nn.devices import CUDA, choose_device, read_cuda
from diskhop.pipeline.device_report import describe_copies
from diskhop.pipeline.transfer import RING_BYTES
from diskhop.plans import SampledPlan
from diskhop.runs.choices import Choice, Choices
from diskhop.runtime.ranks import Ranks


def choose_run_device(choices: Choices) -> None:
    """Refuse a device that cannot be used, and say which one 'auto' is."""
    wanted = choices.complete.get("device", CPU)
    if wanted != CPU:
        chosen = choose_device(wanted, read_cuda())
        if wanted == AUTO:
            choices.made.append(Choice("device", chosen.name, chosen.reason))


def device_of(config: TrainConfig | EmbedConfig) -> torch.device | None:
    """Return the device that a run computes on; None for the CPU. Raises ConfigError for one that cannot be used."""
    if config.device == CPU:
        return None
    name = choose_device(config.device, read_cuda()).name
    return None if name == CPU else torch.device(name)


def device_of_rank(wanted: str, ranks: Ranks) -> str:
    """Return the device of one of several ranks: the GPUs of a machine are divided among them, unless one is named."""
    if wanted not in (AUTO, CUDA):
        return wanted
    num_devices = read_cuda().num_devices
    return f"{CUDA}:{ranks.local_rank % num_devices}" if num_devices else wanted


def device_row_bytes(config: TrainConfig) -> int:
    """Return the bytes of its device that feature rows of a run may take."""
    return 0 if device_of(config) is None else config.device_memory_bytes


def held_by_device(device: torch.device | None) -> dict[str, int]:
    """Return the bytes of the budget that copies to a device take, by name."""
    return {} if device is None else {"transfer buffers": RING_BYTES}


def with_device(plan: SampledPlan, device: torch.device | None) -> SampledPlan:
    """Return a plan that says how its batches come to the device of a run; None: they stay in memory."""
    if device is None:
        return plan
    return replace(plan, reasons=(*plan.reasons, f"Device {device}: {describe_copies(device, plan.batch_bytes)}"))


@contextmanager
def device_errors(device: torch.device | None, config: TrainConfig) -> Iterator[None]:
    """Say in one line that a batch does not fit the memory of a device."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        assert device is not None, "torch says it of devices only"
        fewer = max(1, config.batch_size // 2)
        raise TrainingError(
            f"{device}: a training step with batches of {config.batch_size} does not fit its memory"
            f"{_describe_memory(device)}; use --batch-size {fewer}, a smaller --hidden, or --device cpu"
        ) from error


def _describe_memory(device: torch.device) -> str:
    if device.type != CUDA:
        return ""
    free, total = torch.cuda.mem_get_info(device)
    peak = torch.cuda.max_memory_reserved(device)
    return f" ({format_bytes(total)}, {format_bytes(free)} free; this run had {format_bytes(peak)} of it)"
