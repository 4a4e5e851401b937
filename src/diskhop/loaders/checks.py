"""Types of arguments that loaders take. Each check raises a ConfigError that names the argument."""

from __future__ import annotations

import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from diskhop.budget import Budget, parse_bytes
from diskhop.config.options import require
from diskhop.system.memory import default_memory_bytes


def require_flags(**flags: Any) -> None:
    """Refuse flags that are neither True nor False."""
    for name, value in flags.items():
        require(isinstance(value, bool | np.bool_), name, "True or False", value, f"for example {name}=True")


def require_texts(**texts: Any) -> None:
    """Refuse names that are not text; None: not given."""
    for name, value in texts.items():
        is_text = value is None or isinstance(value, str)
        require(is_text, name, "text", value, f"leave {name} out, and it is chosen")


def path_of(name: str, value: Any) -> str | None:
    """Return a path as text; None: not given."""
    is_path = value is None or isinstance(value, str | os.PathLike)
    require(is_path, name, "the path of a folder", value, f"for example {name}='derived'")
    return None if value is None else str(value)


def require_function(name: str, value: Any) -> None:
    """Refuse what cannot be called; None: not given."""
    require(value is None or callable(value), name, "a function", value, f"for example {name}=lambda batch: batch")


def require_dtype(name: str, value: Any) -> None:
    """Refuse what is no dtype of torch; None: not given."""
    is_dtype = value is None or isinstance(value, torch.dtype)
    require(is_dtype, name, "a dtype of torch", value, f"for example {name}=torch.float32")


def budget_of(memory: Any) -> Budget:
    """Return a budget as it is, or one of a size; None: half of the free memory."""
    if isinstance(memory, Budget):
        return memory
    memory_bytes = size_of("memory", memory)
    return Budget(default_memory_bytes() if memory_bytes is None else memory_bytes)


def size_of(name: str, value: Any) -> int | None:
    """Return a size in bytes, given as a number or as text; None: not given."""
    if value is None:
        return None
    if isinstance(value, str):
        return parse_bytes(value)
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    is_whole = is_whole or (isinstance(value, float) and value.is_integer())
    require(is_whole and 0 <= value < 2**63, name, "bytes or a size as text", value, f"for example {name}='2GB'")
    return int(value)


def whole_numbers(name: str, values: Any, example: str) -> list[int]:
    """Return a list of whole numbers as int. example: a value that works, for the message."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    is_whole = is_list and all(isinstance(each, numbers.Integral) and not isinstance(each, bool) for each in values)
    require(is_whole, name, "a list of whole numbers", values, f"for example {name}={example}")
    return [int(each) for each in values]
