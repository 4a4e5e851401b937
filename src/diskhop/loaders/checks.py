"""Types of arguments that loaders take. Each check raises a ConfigError that names the argument."""

from __future__ import annotations

import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from diskhop.budget import parse_bytes
from diskhop.config.options import require


def require_flags(**flags: Any) -> None:
    """Refuse flags that are neither True nor False."""
    for name, value in flags.items():
        require(isinstance(value, bool | np.bool_), name, "True or False", value, f"for example {name}=True")


def require_texts(**texts: Any) -> None:
    """Refuse names that are not text; None: not given."""
    for name, value in texts.items():
        is_text = value is None or isinstance(value, str)
        require(is_text, name, "text", value, f"leave {name} out, and it is chosen")


def require_path(name: str, value: Any) -> None:
    """Refuse what is no path; None: not given."""
    is_path = value is None or isinstance(value, str | os.PathLike)
    require(is_path, name, "the path of a folder", value, f"for example {name}='derived'")


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
