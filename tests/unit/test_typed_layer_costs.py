"""The memory that predictions reserve for a typed layer is enough for batches of any composition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from diskhop.dataset.type_map import EdgeEnds, MergedEdges, TypeMap
from diskhop.nn.dry_run import LiveTensors
from diskhop.nn.reproducible import reproducible
from diskhop.nn.typed.block import RelationLists, TypedLayerBlock
from diskhop.nn.typed.models import TYPED_MODELS, TypedOptions, build_typed_model
from diskhop.nn.typed.schema import TypedSchema
from diskhop.predicting.typed.layers import TypedLayer

# Many relations from one type, one each from others, and one that leads away.
INTO: tuple[EdgeEnds, ...] = tuple((name, f"to-{number}", "p") for number, name in enumerate("aaaaaapbc"))
TYPES = TypeMap(
    dict.fromkeys("pabc", 100_000),
    tuple(MergedEdges("__".join(ends), ends, 1000) for ends in (*INTO, ("p", "from", "a"))),
)
# Nodes of each type in addition to the rows, edges of each relation, and rows.
BATCHES: dict[str, tuple[dict[str, int], dict[int, int], int]] = {
    "sources of one relation": ({"b": 20_000}, {7: 30_000}, 100),
    "sources of many relations": ({"a": 6000}, dict.fromkeys(range(6), 6000), 100),
    "edges": ({"a": 300}, dict.fromkeys(range(6), 10_000), 100),
    "rows without edges": ({"a": 10}, {}, 20_000),
    "all": ({"a": 5000, "b": 5000, "c": 5000}, {0: 5000, 6: 3000, 7: 5000, 8: 5000}, 5000),
}


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    ("model", "options"),
    [*((name, {}) for name in TYPED_MODELS), ("rgcn", {"num_bases": 3}), ("rgcn", {"num_blocks": 4})],
)
def test_no_batch_takes_more_memory_than_its_layer_was_measured_to_take(model: str, options: dict[str, Any]) -> None:
    schema = TypedSchema(dict.fromkeys("pabc", 16), tuple(edges.ends for edges in TYPES.edges))
    network = build_typed_model(
        model, schema, "p", 7, TypedOptions(hidden=64, layers=4, heads=4, norm="layer", **options)
    )
    layer = TypedLayer(2, "p", network.eval(), TYPES)
    cost = layer.measure()
    for name, (others, edges, num_rows) in BATCHES.items():
        num_sources = {node_type: others.get(node_type, 0) for node_type in TYPES.node_types} | {"p": num_rows}
        lists = {}
        for number, ends in enumerate(INTO):
            num_edges = edges.get(number, 0)
            indptr = torch.from_numpy(np.linspace(0, num_edges, num_rows + 1).astype(np.int32))
            sources = torch.randint(max(1, num_sources[ends[0]]), (num_edges,), dtype=torch.int32)
            lists[ends] = RelationLists(indptr, sources)
        num_targets = dict.fromkeys("abc", 0) | {"p": num_rows}
        rows = {node_type: torch.randn(count, cost.in_dim) for node_type, count in num_sources.items()}
        live = LiveTensors([*rows.values(), *network.parameters()])
        with reproducible(1), live:
            layer._rows(rows, TypedLayerBlock(num_sources, num_targets, lists))
        reserved_bytes = cost.bytes_of(sum(edges.values()), sum(num_sources.values()), num_rows)
        assert live.peak_bytes <= reserved_bytes, name
