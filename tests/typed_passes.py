"""Networks over relations of small graphs, computed in passes, and by PyG's layers in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import HeteroData
from torch_geometric.nn import RGCNConv

import diskhop
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merge import MergeTools
from diskhop.nn.typed.hetero_sage import HeteroSageLayer
from diskhop.nn.typed.models import TypedOptions, build_typed_model
from diskhop.nn.typed.network import TypedNetwork
from diskhop.nn.typed.schema import TypedSchema
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.typed.first_rows import GivenRows
from diskhop.predicting.typed.relations import sums_relations
from diskhop.predicting.typed.streamed import TypedStreamedRun
from diskhop.protocols import neighbor_spec
from diskhop.sampling.samplers import merged_graph
from tests.graphs import threads_engine
from tests.streamed_networks import in_work_folder

# Rows of "b" are learned. Nothing leads to "c", whose rows are the same in every layer.
FEATURE_DIMS = {"a": 7, "b": 0, "c": 3}
RELATIONS = (("a", "cites", "a"), ("b", "writes", "a"), ("c", "has", "a"), ("a", "by", "b"), ("a", "likes", "a"))
TARGET = "a"


@dataclass(frozen=True, eq=False)
class Relations:
    """A graph, with its features, learned rows and edges by relation (2, edges)."""

    dataset: Dataset
    rows: dict[str, Tensor]
    edges: dict[tuple[str, str, str], Tensor]

    @property
    def learned(self) -> GivenRows:
        return GivenRows({"b": self.rows["b"]}, {})


def make_relations(folder: Path, counts: dict[str, int], num_edges: int, hidden: int, seed: int = 0) -> Relations:
    """A random graph with a hub, empty lists and repeated edges; one relation has no edges."""
    rng = np.random.default_rng(seed)
    data, edges, rows = HeteroData(), {}, {}
    for name, dim in FEATURE_DIMS.items():
        rows[name] = torch.from_numpy(rng.normal(size=(counts[name], dim or hidden)).astype(np.float32))
        if dim:
            rows[name] = rows[name].half().float()
            data[name].x = rows[name].half()
        else:
            data[name].num_nodes = counts[name]
    for ends in RELATIONS:
        count = 0 if ends[1] == "likes" else num_edges
        pairs = np.stack([rng.integers(0, counts[ends[0]], count), rng.integers(0, counts[ends[2]], count)])
        pairs[1, ::3] = counts[ends[2]] // 2
        edges[ends] = torch.from_numpy(pairs)
        data[ends].edge_index = edges[ends]
    dataset = diskhop.from_pyg(data, folder / "graph")
    tools = MergeTools(scratch=folder / "derived", engine=threads_engine(), budget=Budget(1 << 28))
    return Relations(merged_graph(dataset, [neighbor_spec([-1])], tools), rows, edges)


def build_relation_network(
    graph: Relations, model: str, num_outputs: int, hidden: int, **options: Any
) -> Callable[[], TypedNetwork]:
    """Return a function that makes a network with torch's parameters, in any process."""
    types = graph.dataset.types
    assert types is not None
    schema = TypedSchema(
        {name: FEATURE_DIMS[name] for name in types.node_types}, tuple(edges.ends for edges in types.edges)
    )
    given = TypedOptions(hidden=hidden, norm="layer", **options)
    return partial(build_typed_model, model, schema, TARGET, num_outputs, given)


def make_relation_network(graph: Relations, model: str, num_outputs: int, hidden: int, **options: Any) -> TypedNetwork:
    """A network with random parameters, in evaluation mode."""
    torch.manual_seed(0)
    network = build_relation_network(graph, model, num_outputs, hidden, **options)()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    assert graph.dataset.types is not None
    assert sums_relations(network, graph.dataset.types)
    return network.eval()


def in_passes(
    graph: Relations,
    network: TypedNetwork,
    work: Path,
    *,
    wanted: Sequence[int] = (2,),
    build: Callable[[], TypedNetwork] | None = None,
    **options: Any,
) -> dict[int, NDArray[np.float32]]:
    """The outputs of layers for all target nodes. build: see SharedNetwork. options: see in_work_folder()."""
    shared = SharedNetwork(network, build)
    make_run = partial(TypedStreamedRun, dataset=graph.dataset, shared=shared, given=graph.learned)
    return in_work_folder(make_run, work, wanted=wanted, **options)


def by_pyg(graph: Relations, network: TypedNetwork) -> list[NDArray[np.float64]]:
    """The outputs of all layers for the target by PyG's layers over the whole graph, float64."""
    h = {name: rows.double() for name, rows in graph.rows.items()}
    for name, linear in network.inputs.items():
        h[name] = functional.linear(h[name], linear.weight.double(), linear.bias.double())
    outputs = []
    with torch.no_grad():
        for number, conv in enumerate(network.convs):
            outs = _sage(conv, h, graph) if isinstance(conv, HeteroSageLayer) else _rgcn(conv, h, graph)
            if number < len(network.convs) - 1:
                norms: Any = network.norms[number]
                outs = {
                    name: functional.layer_norm(
                        rows, rows.shape[1:], norms[name].weight.double(), norms[name].bias.double(), norms[name].eps
                    ).relu()
                    for name, rows in outs.items()
                }
            h = {**h, **outs}
            outputs.append(h[TARGET].numpy())
    return outputs


def _sage(conv: HeteroSageLayer, h: dict[str, Tensor], graph: Relations) -> dict[str, Tensor]:
    outs: dict[str, Tensor] = {}
    for ends, edges in graph.edges.items():
        module: Any = copy.deepcopy(conv.convs[ends]).double()
        out = module((h[ends[0]], h[ends[2]]), edges)
        outs[ends[2]] = outs[ends[2]] + out if ends[2] in outs else out
    return outs


def _rgcn(conv: Any, h: dict[str, Tensor], graph: Relations) -> dict[str, Tensor]:
    starts = dict(zip(h, np.cumsum([0, *map(len, h.values())]).tolist(), strict=False))
    order = conv._schema.relations
    pairs = [graph.edges[ends] + torch.tensor([[starts[ends[0]]], [starts[ends[2]]]]) for ends in order]
    kinds = [torch.full((graph.edges[ends].shape[1],), number) for number, ends in enumerate(order)]
    out = RGCNConv.forward(
        copy.deepcopy(conv).double(), torch.cat([*h.values()]), torch.cat(pairs, 1), torch.cat(kinds)
    )
    found = {name: out[starts[name] : starts[name] + len(rows)] for name, rows in h.items()}
    return {name: found[name] for name in {ends[2] for ends in order}}
