"""The registry of models of typed graphs. A new model is one file and one line here.

Layers that derive from PyG's are imported where they are made, since PyG takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diskhop.config.options import require_known
from diskhop.config.typed import ATTEND, RELATION_SUMS, SUM
from diskhop.errors import ConfigError
from diskhop.nn.activation import Activation, dropout_only, elu, relu
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.nn.norms import NORMS
from diskhop.nn.typed.network import MakeTypedLayer, SimpleHgnNetwork, TypedNetwork
from diskhop.nn.typed.schema import TypedSchema
from diskhop.nn.typed.simple_hgn import SimpleHgnLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOptions:
    """Options of a typed model.

    hidden: width of the hidden layers.
    layers: number of layers, one per hop.
    heads: attention heads (rgat, hgt, simple-hgn).
    dropout: rate of hidden values, and of attention (rgat, simple-hgn).
    input_dropout: rate of features.
    norm: name in NORMS.
    num_bases: matrices that those of relations combine (rgcn, rgat); 0: none.
    num_blocks: diagonal blocks of a relation's matrix (rgcn); 0: whole matrices.
    relations: how a target's relations are combined (hetero-sage): sum or attend.
    edge_dim: width of the edge types' embeddings (simple-hgn).
    """

    hidden: int = 128
    layers: int = 2
    heads: int = 8
    dropout: float = 0.5
    input_dropout: float = 0.0
    norm: str = "none"
    num_bases: int = 0
    num_blocks: int = 0
    relations: str = SUM
    edge_dim: int = 64


_Make = Callable[[TypedSchema, TypedOptions, Products], MakeTypedLayer]


@dataclass(frozen=True, slots=True)
class TypedModel:
    """A model of typed graphs.

    make_layer: returns what makes its layers.
    has_heads: whether its layers have attention heads.
    activation, rectifies_inputs, head: see TypedNetwork.
    network: class of the network.
    """

    make_layer: _Make
    has_heads: bool = False
    activation: Activation = relu
    rectifies_inputs: bool = False
    head: bool = False
    network: type[TypedNetwork] = TypedNetwork


def _hetero_sage(schema: TypedSchema, options: TypedOptions, products: Products) -> MakeTypedLayer:
    from diskhop.nn.typed.hetero_sage import HeteroSageLayer

    attends = options.relations == ATTEND
    return lambda in_dim, out_dim, _: HeteroSageLayer(schema, in_dim, out_dim, products, attends=attends)


def _rgcn(schema: TypedSchema, options: TypedOptions, products: Products) -> MakeTypedLayer:
    from diskhop.nn.typed.rgcn import RgcnLayer

    def make(in_dim: int, out_dim: int, index: int) -> RgcnLayer:
        # The outputs' number need not be a multiple of the blocks: as published, blocks are of hidden layers.
        num_blocks = options.num_blocks if index < options.layers - 1 else 0
        return RgcnLayer(schema, in_dim, out_dim, products, num_bases=options.num_bases, num_blocks=num_blocks)

    return make


def _rgat(schema: TypedSchema, options: TypedOptions, products: Products) -> MakeTypedLayer:
    from diskhop.nn.typed.rgat import RgatLayer

    return lambda in_dim, out_dim, index: RgatLayer(
        schema,
        in_dim,
        out_dim,
        products,
        heads=options.heads if index < options.layers - 1 else 1,
        num_bases=options.num_bases,
        dropout=options.dropout,
    )


def _hgt(schema: TypedSchema, options: TypedOptions, products: Products) -> MakeTypedLayer:
    from diskhop.nn.typed.hgt import HgtLayer

    return lambda in_dim, out_dim, _: HgtLayer(schema, in_dim, out_dim, products, heads=options.heads)


def _simple_hgn(schema: TypedSchema, options: TypedOptions, products: Products) -> MakeTypedLayer:
    return lambda in_dim, out_dim, index: SimpleHgnLayer(
        schema,
        in_dim,
        out_dim,
        products,
        heads=options.heads if index < options.layers - 1 else 1,
        edge_dim=options.edge_dim,
        residual=index > 0,
        dropout=options.dropout,
    )


TYPED_MODELS: dict[str, TypedModel] = {
    "hetero-sage": TypedModel(_hetero_sage),
    "rgcn": TypedModel(_rgcn),
    "rgat": TypedModel(_rgat, has_heads=True, activation=elu),
    # Its layers have an activation and a residual connection of their own.
    "hgt": TypedModel(_hgt, has_heads=True, activation=dropout_only, rectifies_inputs=True, head=True),
    "simple-hgn": TypedModel(_simple_hgn, has_heads=True, activation=elu, network=SimpleHgnNetwork),
}


def build_typed_model(
    name: str,
    schema: TypedSchema,
    target: str,
    num_outputs: int,
    options: TypedOptions,
    products: Products = DEFAULT_PRODUCTS,
    others: Sequence[str] = (),
) -> TypedNetwork:
    """Make a model with random parameters from torch's generator. Raises ConfigError for options that do not fit.

    target: node type that outputs are for. others: further ones, see TypedNetwork.
    """
    require_known("model", name, TYPED_MODELS)
    require_known("norm", options.norm, NORMS)
    require_known("relations", options.relations, RELATION_SUMS)
    for node_type in (target, *others):
        _check(name, schema, node_type, options)
    model = TYPED_MODELS[name]
    return model.network(
        schema,
        model.make_layer(schema, options, products),
        options.hidden,
        num_outputs,
        options.layers,
        target,
        products,
        others=others,
        activation=model.activation,
        rectifies_inputs=model.rectifies_inputs,
        head=model.head,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )


def _check(name: str, schema: TypedSchema, target: str, options: TypedOptions) -> None:
    require_known("node type", target, schema.node_types)
    if not schema.into(target):
        raise ConfigError(
            f"no edge type leads to node type '{target}', so that a model has no neighbours to sum; import its edges "
            "in the other direction too"
        )
    if TYPED_MODELS[name].has_heads and options.hidden % options.heads:
        fits = max(1, options.hidden // options.heads) * options.heads
        raise ConfigError(
            f"--hidden must be a multiple of {options.heads} heads, got {options.hidden}; for example --hidden {fits}"
        )
    if options.num_bases and options.num_blocks:
        raise ConfigError("a relation's matrix is of bases or of blocks: remove --num-bases or --num-blocks")
    if options.num_blocks and options.hidden % options.num_blocks:
        raise ConfigError(f"--hidden must be a multiple of {options.num_blocks} blocks, got {options.hidden}")
