"""Nodes that a user names, as ids or a mask in any kind of array."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds


def node_array(name: str, nodes: Any) -> NDArray[Any]:
    """Return ids as int64, or a mask as booleans, both one-dimensional. Raises ConfigError for anything else.

    name: the argument, for messages. Bytes are refused: they may be a mask or ids.
    """
    array = _as_numpy(name, nodes)
    if array.ndim != 1:
        raise ConfigError(
            f"{name} must have one dimension, got shape {array.shape}; pass a list of ids, as {name}=[0, 1], or a mask"
        )
    if array.dtype == np.bool_:
        return array
    if len(array) == 0:
        return np.empty(0, np.int64)
    if array.dtype == np.uint8:
        raise ConfigError(
            f"{name} of uint8 may be a mask or ids; pass a mask as bool ({name}.bool() or {name}.astype(bool)), "
            "ids as int64"
        )
    if array.dtype.kind not in "iu":
        raise ConfigError(
            f"{name} must be whole numbers or a mask of booleans, got {array.dtype} {reprlib.repr(array.tolist())}; "
            f"for example {name}=[0, 1]"
        )
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ConfigError(f"{name} has id {array.max()}, which no node has; ids are less than 2^63")
    return array.astype(np.int64, copy=False)


def require_distinct(name: str, ids: NodeIds) -> None:
    """Raise ConfigError if ids has one twice, or none at all. name: the argument."""
    if len(ids) == 0:
        raise ConfigError(f"{name} is empty, and must have at least one entry; for example {name}=[0]")
    ascending = np.sort(ids)
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(repeated) == 0:
        return
    hint = f"pass each once, as in numpy.unique({name})"
    if ascending[0] >= 0 and ascending[-1] <= 1:
        hint = f"if it is a mask, pass it as bool, as in {name}.astype(bool)"
    raise ConfigError(
        f"{name} must name each node at most once, but id {repeated[0]} is there twice "
        f"({len(repeated)} of {len(ids)} ids are repeated); {hint}"
    )


def require_no_mask(name: str, ids: NodeIds, num_nodes: int) -> None:
    """Raise ConfigError for no ids, and for zeros and ones, one for each node, which are a mask. name: the argument."""
    if len(ids) == 0:
        raise ConfigError(f"{name} is empty, and must have at least one entry; for example {name}=[0]")
    if len(ids) == num_nodes > 2 and int(ids.min()) >= 0 and int(ids.max()) <= 1:
        raise ConfigError(
            f"{name} has {len(ids)} zeros and ones, one for each node, which may be a mask or ids; pass a mask as "
            f"bool, as in {name}.astype(bool)"
        )


def _as_numpy(name: str, nodes: Any) -> NDArray[Any]:
    if isinstance(nodes, str):
        raise ConfigError(f"{name} must be ids or a mask, got {nodes!r}; pass ids, as in dataset.split('train')")
    if isinstance(nodes, torch.Tensor):
        if nodes.layout != torch.strided or nodes.dtype == torch.bfloat16:
            raise ConfigError(f"{name} must be a dense tensor of int64 or bool, got {nodes.layout}, {nodes.dtype}")
        array: NDArray[Any] = nodes.detach().cpu().numpy()
        return array
    if isinstance(nodes, set | frozenset | dict):
        raise ConfigError(
            f"{name} must be a list, an array or a tensor, got {type(nodes).__name__}; pass a list of ids"
        )
    try:
        return np.asarray(nodes)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{name} must be one-dimensional ids or a mask, got {reprlib.repr(nodes)}; for example {name}=[0, 1]"
        ) from None
