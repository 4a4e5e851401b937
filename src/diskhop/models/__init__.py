"""The models: PyG's layers, each on what it needs of a sampled batch. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from diskhop.config import TrainConfig, require_known
from diskhop.models.aggregate import Block
from diskhop.models.gat import GatLayer
from diskhop.models.gcn import GcnLayer
from diskhop.models.matmul import fastest_products
from diskhop.models.network import NORMS, MakeLayer, Network
from diskhop.models.products import Products, require_products
from diskhop.models.sage import SageLayer

__all__ = ["LAYERS", "Block", "GatLayer", "GcnLayer", "Network", "SageLayer", "build_model", "fastest_products"]


def _gat(config: TrainConfig) -> MakeLayer:
    def make(in_dim: int, out_dim: int, is_last: bool) -> GatLayer:
        # One head gives the classes, as published for Cora: 8 averaged heads, PyG's choice, cost 1.5 points there.
        heads = 1 if is_last else config.heads
        return GatLayer(in_dim, out_dim, heads=heads, dropout=config.dropout, products=_products(config))

    return make


def _products(config: TrainConfig) -> Products:
    return Products(config.matmul, config.precision)


LAYERS: dict[str, Callable[[TrainConfig], MakeLayer]] = {
    "sage": lambda config: lambda in_dim, out_dim, is_last: SageLayer(in_dim, out_dim, _products(config)),
    "gcn": lambda config: lambda in_dim, out_dim, is_last: GcnLayer(in_dim, out_dim, _products(config)),
    "gat": _gat,
}


def build_model(config: TrainConfig, in_dim: int, out_dim: int) -> Network:
    """Make the model that a configuration names, its parameters drawn from torch's generator."""
    require_known("model", config.model, LAYERS)
    require_known("norm", config.norm, NORMS)
    require_products(config.matmul, config.precision)
    return Network(
        LAYERS[config.model](config),
        in_dim,
        config.hidden,
        out_dim,
        config.layers,
        activation=functional.elu_ if config.model == "gat" else torch.relu_,
        norm=config.norm,
        residual=config.residual,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        normalize_input=config.normalize_input,
        products=_products(config),
    )
