"""Adam (Kingma and Ba, algorithm 1), by torch's fused kernel.

torch.optim.Adam does the same steps, but imports torch's compiler when it is made: 1.5 seconds and 130 MB of memory in
every process that trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
_FACTS = ("step", "exp_avg", "exp_avg_sq")


class Adam:
    """An optimiser with torch's defaults. A parameter without a gradient stays as it is.

    parameters: float32 tensors. lr: learning rate of the next steps; may be set. weight_decay: added to gradients, as a
    factor of the parameters.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0) -> None:
        self.lr = lr
        self._parameters = list(parameters)
        self._weight_decay = weight_decay
        self._facts: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        numbers = [number for number, each in enumerate(self._parameters) if each.grad is not None]
        facts = [self._facts_of(number) for number in numbers]
        first, second = _BETAS
        adam(
            [self._parameters[number] for number in numbers],
            [gradient for number in numbers if (gradient := self._parameters[number].grad) is not None],
            [each["exp_avg"] for each in facts],
            [each["exp_avg_sq"] for each in facts],
            [],
            [each["step"] for each in facts],
            fused=True,
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=self.lr,
            weight_decay=self._weight_decay,
            eps=_EPSILON,
            maximize=False,
        )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for each in self._parameters:
            each.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name, 'number of the parameter.name', as torch.optim.Adam names it; in memory."""
        return {
            f"{number}.{name}": value.cpu() for number, facts in self._facts.items() for name, value in facts.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what tensors() returned of an optimiser with the same parameters."""
        found: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            number, _, fact = name.partition(".")
            on = self._parameters[int(number)].device
            found.setdefault(int(number), {})[fact] = value.to(on, copy=True)
        self._facts = found

    def _facts_of(self, number: int) -> dict[str, Tensor]:
        """Return the state of a parameter, zeros before its first step."""
        if number not in self._facts:
            parameter = self._parameters[number].detach()
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            averages = torch.zeros_like(parameter), torch.zeros_like(parameter)
            self._facts[number] = dict(zip(_FACTS, (step, *averages), strict=True))
        return self._facts[number]
