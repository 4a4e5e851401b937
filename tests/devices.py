"""The code of other devices, run on the CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from diskhop.pipeline.transfer import PinnedRing

# Pytest sets the variable where there is no GPU.
BY_INTERPRETER = [
    pytest.mark.kernels,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1",
        reason="on a machine with a GPU, TRITON_INTERPRET=1 pytest -m kernels runs the kernels on the CPU",
    ),
]


@contextmanager
def as_on_a_device(*, kernels: bool) -> Iterator[None]:
    """Compute on the CPU as on a device without the core. kernels: by Triton's, which its interpreter runs here."""
    import diskhop.nn.kernels.choice as choice

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("runs_core", lambda _: False), ("runs_kernels", lambda _: kernels)):
            replace_everywhere(patch, getattr(choice, name), value)
        yield


def deliver_on_the_cpu(patch: pytest.MonkeyPatch) -> list[PinnedRing]:
    """Deliver on the CPU, as on a device, the batches of runs with device='cuda:7'; lists their rings, of 500 bytes."""
    import diskhop.runs.kinds  # noqa: F401 - every module that delivers
    from diskhop.pipeline.transfer import DeviceCopies
    from diskhop.runs.devices import choose_run_device, device_of

    made: list[PinnedRing] = []

    class Copies(DeviceCopies):
        def __init__(self, device: torch.device) -> None:
            made.append(PinnedRing(device, buffer_bytes=500))
            super().__init__(device, made[-1])

    replacements: list[tuple[Any, Any]] = [
        (DeviceCopies, Copies),
        (choose_run_device, lambda *_: None),
        (device_of, _cpu_of),
    ]
    for own, value in replacements:
        replace_everywhere(patch, own, value, "diskhop.runs.")
    patch.setattr("diskhop.loaders.hops.device_of", lambda wanted: wanted)
    return made


def _cpu_of(config: Any) -> torch.device | None:
    return torch.device("cpu") if config.device == "cuda:7" else None


def replace_everywhere(patch: pytest.MonkeyPatch, own: Any, value: Any, prefix: str = "diskhop.") -> None:
    """Replace a function or class in all modules that have it by its name."""
    name: str = own.__name__
    for module in list(sys.modules.values()):
        if module.__name__.startswith(prefix) and getattr(module, name, None) is own:
            patch.setattr(module, name, value)
