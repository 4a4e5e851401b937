"""Kinds of PyG's modules. PyG takes seconds to import, and no module is of it before somebody else has imported it."""

from __future__ import annotations

import sys

from torch import nn


def is_normalizing(module: nn.Module) -> bool:
    """Return whether a module is a convolution that normalises, and can be given edge weights instead."""
    if "torch_geometric" not in sys.modules:
        return False
    from torch_geometric.nn import GCNConv, LGConv

    return isinstance(module, GCNConv | LGConv) and bool(module.normalize)


def is_basic_gnn(module: object) -> bool:
    """Return whether an object is a BasicGNN."""
    if "torch_geometric" not in sys.modules:
        return False
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    return isinstance(module, BasicGNN)


def has_own_forward(model: nn.Module) -> bool:
    """Return whether a BasicGNN's class replaces `forward`."""
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    return type(model).forward is not BasicGNN.forward
