"""Memory that a model takes next to its input, measured on a training step and on batches of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.adam import Adam
from diskhop.nn.dry_run import LiveTensors
from diskhop.nn.reproducible import separate_generators
from diskhop.system.memory import resident_bytes
from diskhop.system.peak import PeakWatch

# Of tensors: a program has so much more that a rough estimate of them does.
_FEW_BYTES = 8_000_000


class StepMemory:
    """Runs batches through one model, as a run does, and keeps the most memory that any of them took.

    Tensors that are alive are counted, and so is the growth of resident memory, which has the kernels' own memory and
    what the C library keeps. The larger counts: memory that was free before a step does not grow by it.

    allowed_bytes: what the process may take. A batch that would exceed it is estimated by a smaller one.

    parameter_bytes: bytes of the model's parameters.
    peak_bytes: most bytes at once of model, gradients, optimiser, activations and kernels, without the input.
    tensor_bytes: bytes of the tensors of the last batch that was run, with its input.
    """

    def __init__(self, allowed_bytes: int) -> None:
        self._allowed_bytes = allowed_bytes
        self.parameter_bytes = 0
        self.peak_bytes = 0
        self.tensor_bytes = 0
        self._before_bytes = resident_bytes("VmRSS")
        self._model: nn.Module | None = None

    def train(
        self, make_model: Callable[[], nn.Module], lr: float, inputs: Sequence[Any], device: torch.device | None = None
    ) -> None:
        """Take a step; see measure_step_seconds(). The first of the inputs is the batch's features."""
        model = self._model_of(make_model, device).train()
        with self._counting(model, inputs[0], device):
            optimizer = Adam(model.parameters(), lr)
            scores = model(*inputs)
            labels = torch.zeros(len(scores), dtype=torch.int64, device=device)
            torch.autograd.backward(functional.cross_entropy(scores, labels))
            optimizer.step()
            optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(
        self, make_model: Callable[[], nn.Module], _lr: float, inputs: Sequence[Any], device: torch.device | None = None
    ) -> None:
        """Apply the model to a batch of evaluation; see train()."""
        model = self._model_of(make_model, device).eval()
        with self._counting(model, inputs[0], device):
            model(*inputs)

    def run(self, work: Callable[[], object]) -> None:
        """Do other work, such as steps of a model without modules, and count what resident memory grows by."""
        with PeakWatch() as watch:
            work()
        self.peak_bytes = max(self.peak_bytes, watch.peak_bytes - self._before_bytes)

    def is_known(self, times: float) -> bool:
        """Return whether a batch that many times as large as the last one need not be run, and count it if so.

        It would exceed what is allowed, or takes so little that the estimate is exact enough.
        """
        tensor_bytes, resident = int(times * self.tensor_bytes), resident_bytes("VmRSS")
        if _FEW_BYTES < tensor_bytes <= self._allowed_bytes - resident:
            return False
        self.peak_bytes = max(self.peak_bytes, resident - self._before_bytes + tensor_bytes)
        return True

    def _model_of(self, make_model: Callable[[], nn.Module], device: torch.device | None) -> nn.Module:
        if self._model is None:
            with separate_generators():
                self._model = make_model().to(device)
            self.parameter_bytes = sum(each.nbytes for each in self._model.parameters())
        return self._model

    @contextmanager
    def _counting(
        self, model: nn.Module, features: Tensor | Mapping[str, Tensor], device: torch.device | None
    ) -> Iterator[None]:
        """Count what is done meanwhile. features: the input, of one type of nodes or by type."""
        inputs = [features] if isinstance(features, Tensor) else list(features.values())
        live = LiveTensors([*model.parameters(), *model.buffers(), *inputs])
        with separate_generators(), PeakWatch() as watch, live if device is None else nullcontext():
            yield
        own_bytes = sum(each.nbytes for each in inputs if each.device.type == "cpu")
        self.tensor_bytes = live.peak_bytes + own_bytes
        grown_bytes = watch.peak_bytes - self._before_bytes - own_bytes
        self.peak_bytes = max(self.peak_bytes, grown_bytes, self.parameter_bytes + live.peak_bytes)
