"""The models: PyG's layers, each on what it needs of a sampled batch. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable

from diskhop.config import TrainConfig, require_known
from diskhop.models.activation import elu, relu
from diskhop.models.aggregate import Block
from diskhop.models.gat import GatLayer
from diskhop.models.gcn import GcnLayer
from diskhop.models.matmul import fastest_products
from diskhop.models.network import MakeLayer, Network
from diskhop.models.norms import NORMS
from diskhop.models.products import Products, require_products
from diskhop.models.sage import SageLayer

__all__ = ["LAYERS", "Block", "GatLayer", "GcnLayer", "Network", "SageLayer", "build_model", "fastest_products"]


def _gat(config: TrainConfig, products: Products) -> MakeLayer:
    def make(in_dim: int, out_dim: int, is_last: bool) -> GatLayer:
        # One head gives the classes, as published for Cora: 8 averaged heads, PyG's choice, cost 1.5 points there.
        heads = 1 if is_last else config.heads
        return GatLayer(in_dim, out_dim, heads=heads, dropout=config.dropout, products=products)

    return make


LAYERS: dict[str, Callable[[TrainConfig, Products], MakeLayer]] = {
    "sage": lambda _, products: lambda in_dim, out_dim, is_last: SageLayer(in_dim, out_dim, products),
    "gcn": lambda _, products: lambda in_dim, out_dim, is_last: GcnLayer(in_dim, out_dim, products),
    "gat": _gat,
}


def build_model(config: TrainConfig, in_dim: int, out_dim: int) -> Network:
    """Make the model that a configuration names, its parameters drawn from torch's generator."""
    require_known("model", config.model, LAYERS)
    require_known("norm", config.norm, NORMS)
    products = Products(config.matmul, config.precision)
    require_products(products)
    return Network(
        LAYERS[config.model](config, products),
        in_dim,
        config.hidden,
        out_dim,
        config.layers,
        activation=elu if config.model == "gat" else relu,
        norm=config.norm,
        residual=config.residual,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        normalize_input=config.normalize_input,
        products=products,
    )
