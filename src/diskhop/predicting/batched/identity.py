"""A text that determines what a model computes: its modules, their settings and source, and a checksum of its weights.

Tables of an interrupted prediction are reused only if it is the same.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from diskhop.predicting.batched.unroll import Unrolled

_PLAIN = (int, float, str, bool, torch.dtype, types.NoneType)


def describe_model(model: Unrolled) -> str:
    """Describe a model's layers and head in a few lines each."""
    modules = [each for layer in model.layers for each in (layer.module, layer.after) if each is not None]
    if model.head is not None:
        modules.append(model.head)
    return "\n".join(
        line for number, module in enumerate(modules) for line in describe_module(f"module {number}", module)
    )


def describe_module(label: str, module: nn.Module) -> Iterator[str]:
    """Yield lines about a module, and one about its weights."""
    for name, each in module.named_modules():
        source = _source_hash(type(each))  # type: ignore[arg-type]  # mypy takes the class for unhashable
        settings = {key: _shown(value) for key, value in vars(each).items() if key != "training" and _shown(value)}
        yield f"{label} {name}: {type(each).__qualname__} {source} {settings}"
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    yield f"{label} weights: {digest.hexdigest()}"


def _shown(value: Any) -> str:
    """Return a setting as text; '' for what is no setting."""
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value) if isinstance(value, _PLAIN) or is_dataclass(value) else ""


@cache
def _source_hash(kind: type) -> str:
    try:
        return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # made in a session
        return ""
