"""The model of a typed run: a network, and rows of the node types without features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.module_dict import ModuleDict

from diskhop.budget import format_bytes
from diskhop.config.train import LEARNED
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_link import AnyTypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import MadeFeatures, made_features
from diskhop.errors import ConfigError
from diskhop.nn.matmul.products import Products, require_products
from diskhop.nn.typed.embeddings import COPIES, LearnedRows, embedding_bytes
from diskhop.nn.typed.models import TypedOptions, build_typed_model
from diskhop.nn.typed.network import TypedNetwork
from diskhop.nn.typed.schema import TypedSchema

_MOST_LEARNED_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class RunTypes:
    """Where the rows of each node type come from.

    stored: columns of the features of the types that have some.
    learned: number of nodes of the types whose rows are learned.
    made: features that stand in for those of other types.
    schema: types as the network knows them.
    """

    stored: Mapping[str, int]
    learned: Mapping[str, int]
    made: Mapping[str, MadeFeatures]
    schema: TypedSchema

    def held(self, hidden: int) -> dict[str, int]:
        """Bytes of the budget that learned rows take, by name."""
        num_bytes = sum(embedding_bytes(count, hidden) for count in self.learned.values())
        if not num_bytes:
            return {}
        return {"learned features": num_bytes, "checkpoints of learned features": COPIES * num_bytes}


def types_of_run(merged: Dataset, config: AnyTypedConfig) -> RunTypes:
    """Return where rows come from. Raises ConfigError if learned rows are most of the memory."""
    types = merged.types
    assert types is not None
    stored, learned, made = {}, {}, {}
    for name, nodes in merged.nodes.items():
        if nodes.features() is not None:
            stored[name] = nodes.feature_dim
        elif config.features in ("", LEARNED):
            learned[name] = nodes.num_nodes
        else:
            made[name] = made_features(config.features, merged.path, nodes.num_nodes, config.seed)
    dims = {name: stored.get(name, 0) or (made[name].dim if name in made else 0) for name in types.node_types}
    found = RunTypes(stored, learned, made, TypedSchema(dims, tuple(edges.ends for edges in types.edges)))
    needed = sum(found.held(config.hidden).values())
    if needed > _MOST_LEARNED_SHARE * config.memory_bytes:
        raise ConfigError(
            f"rows of {', '.join(learned)}, which have no features, would take {format_bytes(needed)} to learn, of "
            f"--memory {format_bytes(config.memory_bytes)}: use --features random, a smaller --hidden, or --memory "
            f"{-(-int(needed / _MOST_LEARNED_SHARE) // 1_000_000)}MB"
        )
    return found


class TypedModel(nn.Module):
    """A network over a batch by types, which also has the rows of types without features."""

    def __init__(self, network: TypedNetwork, types: RunTypes, config: AnyTypedConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self._rate = config.embedding_lr
        self.network = network
        self.learned = ModuleDict(
            {
                name: LearnedRows(count, hidden, seed=config.seed, key=key)
                for key, (name, count) in enumerate(types.learned.items())
            }
        )
        self.held = types.held(hidden)

    def forward(self, x: Mapping[str, Tensor], inputs: Any) -> Tensor:
        """Return outputs of the seeds. x: rows of the types that are not learned. inputs: a TypedInputs."""
        return self.outputs(x, inputs)[self.network.target]

    def outputs(self, x: Mapping[str, Tensor], inputs: Any) -> dict[str, Tensor]:
        """Return outputs of the seeds by type; see TypedNetwork."""
        rows = dict(x)
        for name, learned in self.learned.items():
            rows[name] = learned(inputs.parts[name].node_ids)
        return self.network.outputs(rows, inputs.block)

    def step_rows(self, factor: float, weight: float) -> None:
        """See StepsRows."""
        for learned in self.learned.values():
            learned.step(factor * self._rate, weight)


def learned_name(node_type: str) -> str:
    """Return the name of a type's learned rows among the parameters of a TypedModel."""
    return f"learned.{ModuleDict.to_internal_key(node_type)}.values"


def make_model(merged: Dataset, config: TypedConfig) -> TypedModel:
    """Make the model of a configuration, with random parameters from torch's generator."""
    return make_typed(merged, config, (config.target,), merged.nodes[config.target].num_outputs)


def make_typed(merged: Dataset, config: AnyTypedConfig, targets: Sequence[str], num_outputs: int) -> TypedModel:
    """Make a model with this number of outputs for the nodes of some types; see make_model()."""
    found = types_of_run(merged, config)
    return TypedModel(make_network(found, config, targets, num_outputs), found, config)


def make_network(found: RunTypes, config: AnyTypedConfig, targets: Sequence[str], num_outputs: int) -> TypedNetwork:
    """Make the network of a model; see make_typed()."""
    products = Products(config.matmul, config.precision)
    require_products(products)
    options = TypedOptions(
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        norm=config.norm,
        num_bases=config.num_bases,
        num_blocks=config.num_blocks,
        relations=config.relations,
    )
    first, *others = targets
    return build_typed_model(config.model, found.schema, first, num_outputs, options, products, others)
