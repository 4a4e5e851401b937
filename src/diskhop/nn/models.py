"""The registry of models: LAYERS on sampled batches, HOP_MODELS on rows of hop tables.

A new model is one file and one line here.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from diskhop.config.hop import HopConfig
from diskhop.config.options import require_known
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.config.typed import TypedConfig
from diskhop.nn.activation import elu, relu
from diskhop.nn.hop.hoga import Hoga
from diskhop.nn.hop.layers import HopNetwork
from diskhop.nn.hop.sgc import Sgc
from diskhop.nn.hop.sign import Sign
from diskhop.nn.layers.aggregate import Block
from diskhop.nn.layers.gat import GatLayer
from diskhop.nn.layers.gcn import GcnLayer
from diskhop.nn.layers.network import MakeLayer, Network
from diskhop.nn.layers.sage import SageLayer
from diskhop.nn.matmul.choice import fastest_products
from diskhop.nn.matmul.products import Products, require_products
from diskhop.nn.norms import NORMS
from diskhop.nn.typed.models import TYPED_MODELS

__all__ = [
    "HOP_MODELS",
    "LAYERS",
    "NORMALISING",
    "Block",
    "GatLayer",
    "GcnLayer",
    "Hoga",
    "HopNetwork",
    "Network",
    "SageLayer",
    "Sgc",
    "Sign",
    "build_hop_model",
    "build_model",
    "config_kind",
    "fastest_products",
    "hidden_dim",
    "hops_read",
    "num_hop_tables",
]


def _gat(config: SampledConfig, products: Products) -> MakeLayer:
    def make(in_dim: int, out_dim: int, is_last: bool) -> GatLayer:
        # The last layer has one head, as published for Cora: 8 averaged heads, PyG's choice, cost 1.5 points there.
        heads = 1 if is_last else config.heads
        return GatLayer(in_dim, out_dim, heads=heads, dropout=config.dropout, products=products)

    return make


LAYERS: dict[str, Callable[[SampledConfig, Products], MakeLayer]] = {
    "sage": lambda _, products: lambda in_dim, out_dim, is_last: SageLayer(in_dim, out_dim, products),
    "gcn": lambda _, products: lambda in_dim, out_dim, is_last: GcnLayer(in_dim, out_dim, products),
    "gat": _gat,
}


def _sgc(config: HopConfig, products: Products, in_dim: int, num_tables: int, num_outputs: int) -> Sgc:
    return Sgc(in_dim, num_outputs, dropout=config.dropout, products=products)


def _sign(config: HopConfig, products: Products, in_dim: int, num_tables: int, num_outputs: int) -> Sign:
    return Sign(
        in_dim,
        num_tables,
        config.hidden,
        num_outputs,
        config.layers,
        norm=config.norm,
        dropout=config.dropout,
        products=products,
    )


def _hoga(config: HopConfig, products: Products, in_dim: int, num_tables: int, num_outputs: int) -> Hoga:
    return Hoga(
        in_dim,
        num_tables,
        config.hidden,
        num_outputs,
        config.layers,
        heads=config.heads,
        norm=config.norm,
        dropout=config.dropout,
        shared_map=config.shared_map,
        products=products,
    )


# (config, products, in_dim, num_tables, num_outputs) -> a module that maps (tables, batch, in_dim) to logits.
HOP_MODELS: dict[str, Callable[[HopConfig, Products, int, int, int], nn.Module]] = {
    "sgc": _sgc,
    "sign": _sign,
    "hoga": _hoga,
}

# Models that divide sums by the degrees of both ends of an edge.
NORMALISING = ("gcn",)


def hops_read(model: str, num_tables: int) -> range:
    """Return the numbers of the tables that a hop model reads: the last for sgc, all for the others."""
    return range(num_tables - 1 if model == "sgc" else 0, num_tables)


def num_hop_tables(config: HopConfig) -> int:
    """Return the number of hop tables of a configuration: the features, and each operator's hops."""
    return len(config.operators) * config.hops + 1


def hidden_dim(config: HopConfig) -> int:
    """Return the width of a hop model's last hidden layer. A linear map of sign's takes those of all hops in a row."""
    is_linear = config.model == "sign" and config.layers == 1
    return config.hidden * (num_hop_tables(config) if is_linear else 1)


def config_kind(model: str) -> type[TrainConfig]:
    """Return the configuration class of a model. Raises ConfigError for an unknown model."""
    require_known("model", model, (*LAYERS, *HOP_MODELS, *TYPED_MODELS))
    if model in TYPED_MODELS:
        return TypedConfig
    return HopConfig if model in HOP_MODELS else SampledConfig


def build_hop_model(config: HopConfig, in_dim: int, num_tables: int, num_outputs: int) -> HopNetwork:
    """Make the hop model that a configuration names, with random parameters from torch's generator."""
    require_known("model", config.model, HOP_MODELS)
    model = HOP_MODELS[config.model](config, _products(config), in_dim, num_tables, num_outputs)
    return HopNetwork(model, input_dropout=config.input_dropout, normalize_input=config.normalize_input)


def build_model(config: SampledConfig, in_dim: int, out_dim: int) -> Network:
    """Make the model that a configuration names, with random parameters from torch's generator."""
    require_known("model", config.model, LAYERS)
    products = _products(config)
    return Network(
        LAYERS[config.model](config, products),
        in_dim,
        config.hidden,
        out_dim,
        config.layers,
        activation=elu if config.model == "gat" else relu,
        norm=config.norm,
        residual=config.residual,
        self_term=config.self_term,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        normalize_input=config.normalize_input,
        products=products,
    )


def _products(config: TrainConfig) -> Products:
    require_known("norm", config.norm, NORMS)
    products = Products(config.matmul, config.precision)
    require_products(products)
    return products
