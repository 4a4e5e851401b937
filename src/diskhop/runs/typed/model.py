"""The model of a typed run: a network, and rows of the node types without features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from diskhop.config.sampled import LEARNED
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_link import AnyTypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import MadeFeatures, made_features
from diskhop.embedding.rows.module import StoredRows
from diskhop.nn.matmul.products import Products, require_products
from diskhop.nn.typed.by_type import ByType, parameter_name
from diskhop.nn.typed.embeddings import LearnedRows
from diskhop.nn.typed.models import TypedOptions, build_typed_model
from diskhop.nn.typed.network import TypedNetwork, TypeRows
from diskhop.nn.typed.schema import TypedSchema
from diskhop.runs.learned_rows import LearnedPlace, place_learned


@dataclass(frozen=True, slots=True)
class RunTypes:
    """Where the rows of each node type come from.

    stored: columns of the features of the types that have some.
    learned: number of nodes of the types whose rows are learned.
    place: of the learned rows.
    made: features that stand in for those of other types.
    schema: types as the network knows them.
    """

    stored: Mapping[str, int]
    learned: Mapping[str, int]
    place: LearnedPlace
    made: Mapping[str, MadeFeatures]
    schema: TypedSchema

    @property
    def held(self) -> dict[str, int]:
        """Bytes of the budget that learned rows take, by name."""
        return self.place.held()


def types_of_run(merged: Dataset, config: AnyTypedConfig) -> RunTypes:
    """Return where rows come from."""
    types = merged.types
    assert types is not None
    stored, learned, made = {}, {}, {}
    for name, nodes in merged.nodes.items():
        if nodes.feature_table() is not None:
            stored[name] = nodes.feature_dim
        elif config.features in ("", LEARNED):
            learned[name] = nodes.num_nodes
        else:
            made[name] = made_features(config.features, merged.path, nodes.num_nodes, config.seed)
    dims = {name: stored.get(name, 0) or (made[name].dim if name in made else 0) for name in types.node_types}
    place = place_learned(learned, config.hidden, config.memory_bytes, config.accumulate)
    return RunTypes(stored, learned, place, made, TypedSchema(dims, tuple(edges.ends for edges in types.edges)))


class TypedModel(nn.Module):
    """A network over a batch by types, which also has the rows of types without features."""

    def __init__(self, network: TypedNetwork, types: RunTypes, config: AnyTypedConfig) -> None:
        super().__init__()
        self._rate = config.embedding_lr
        self.network = network
        self.learned = ByType(
            {name: _learned_rows(types.place, name, config.seed, key) for key, name in enumerate(types.learned)}
        )
        self.held = types.held

    def forward(self, x: Mapping[str, TypeRows], inputs: Any) -> Tensor:
        """Return outputs of the seeds. x: rows of the types that are not learned. inputs: a TypedInputs."""
        return self.outputs(x, inputs)[self.network.target]

    def outputs(self, x: Mapping[str, TypeRows], inputs: Any) -> dict[str, Tensor]:
        """Return outputs of the seeds by type; see TypedNetwork."""
        rows = dict(x)
        for name, learned in self.learned.items():
            # These are in memory, wherever the network computes.
            rows[name] = learned(inputs.parts[name].node_ids).to(inputs.block.device)
        return self.network.outputs(rows, inputs.block)

    def step_rows(self, factor: float, weight: float) -> None:
        """See StepsRows."""
        for learned in self.learned.values():
            learned.step(factor * self._rate, weight)


def _learned_rows(place: LearnedPlace, name: str, seed: int, key: int) -> nn.Module:
    layout = place.layouts[name]
    if place.is_on_disk:
        return StoredRows(name, layout, place.cache_bytes[name], seed=seed, key=key)
    return LearnedRows(layout.num_rows, layout.dim, seed=seed, key=key, is_summed=place.is_summed)


def learned_name(node_type: str) -> str:
    """Return the name of a type's learned rows in a TypedModel."""
    return f"learned.{parameter_name(node_type)}"


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
