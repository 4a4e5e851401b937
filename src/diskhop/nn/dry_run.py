"""Memory and time of a training step, measured before training (PP-GNN, section 5)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diskhop.nn.adam import Adam
from diskhop.nn.reproducible import separate_generators

# A parameter, its gradient, and two values of Adam.
_TENSORS_PER_PARAMETER, _PARAMETER_BYTES = 4, 4
# The first step allocates memory and compiles code. Other programs can only add time: the minimum counts.
_MOST_STEPS, _ENOUGH_SECONDS = 8, 1.5


def measure_step(make_model: Callable[[], nn.Module], x: Tensor) -> int:
    """Measure the peak bytes of tensors during a step on one batch, with parameters, gradients and Adam's state.

    x: (tables, batch, dim), not counted. Tensors are counted, not resident memory, so equal shapes give equal results.
    Torch's generator keeps its state.
    """
    with separate_generators():
        model = make_model().train()
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        live = LiveTensors([*model.parameters(), *model.buffers(), x])
        with live:
            scores = model(x)
            labels = torch.zeros(len(scores), dtype=torch.int64)
            torch.autograd.backward(functional.cross_entropy(scores, labels))
    return _TENSORS_PER_PARAMETER * _PARAMETER_BYTES * num_parameters + live.peak_bytes


def measure_step_seconds(
    make_model: Callable[[], nn.Module], lr: float, inputs: Sequence[Any], device: torch.device | None = None
) -> float:
    """Measure the seconds of a step of Adam on one batch, the fastest of some: forward, backward and update.

    inputs: arguments of the model, which returns scores, float32 (nodes, outputs). device: where these are, and the
    model computes; None: in memory. Uses torch's current number of threads. Torch's generator keeps its state.
    """
    with separate_generators():
        model = make_model().train().to(device)
        optimizer = Adam(model.parameters(), lr)
        seconds: list[float] = []
        began = time.perf_counter()
        while len(seconds) < 2 or (len(seconds) < _MOST_STEPS and time.perf_counter() - began < _ENOUGH_SECONDS):
            started = time.perf_counter()
            optimizer.zero_grad()
            scores = model(*inputs)
            labels = torch.zeros(len(scores), dtype=torch.int64, device=device)
            torch.autograd.backward(functional.cross_entropy(scores, labels))
            optimizer.step()
            if device is not None and device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


class LiveTensors(TorchDispatchMode):
    """Counts the memory of tensors from their creation until nothing refers to it.

    known: tensors that are not counted.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first operation imports torch's compiler: 1.5 seconds, and 100 MB of memory.
        return False

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._live_bytes = 0
        self._counted = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, then count the new tensors among its results."""
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._counted:
            return
        self._counted.add(storage._cdata)
        self._live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)
        weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _forget(self, which: int, num_bytes: int) -> None:
        self._counted.discard(which)
        self._live_bytes -= num_bytes
