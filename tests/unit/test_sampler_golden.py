"""Draws and stored batches never change silently: stored traces and published figures depend on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import keyed_permutation
from diskhop.batches.record import decode_batch, encode_batch
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology
from tests.unit.sampling_oracle import assert_same_batch

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((FOLDER / "sampled_batch.json").read_text())
IMPORTANCE = json.loads((FOLDER / "importance_batches.json").read_text())


def test_the_golden_batch_is_drawn_and_stored_as_ever() -> None:
    indptr = np.cumsum([0, *map(len, GOLDEN["lists"])], dtype=np.int64)
    topology = Topology(Path("indices.bin"), indptr, np.concatenate(GOLDEN["lists"]).astype(np.uint32))
    batch = open_sampler(topology, neighbor_spec(GOLDEN["fanouts"]), GOLDEN["seed"]).sample(
        np.array(GOLDEN["seeds"]), purpose=Purpose(GOLDEN["purpose"]), epoch=GOLDEN["epoch"], number=GOLDEN["number"]
    )
    for name in ("node_ids", "indptr", "sources", "edge_positions"):
        assert getattr(batch, name).tolist() == GOLDEN[name], name
    assert list(batch.num_sampled_nodes) == GOLDEN["num_sampled_nodes"]
    assert list(batch.num_sampled_edges) == GOLDEN["num_sampled_edges"]
    assert encode_batch(batch, topology.num_nodes).hex() == GOLDEN["encoded_hex"]
    assert_same_batch(decode_batch(bytes.fromhex(GOLDEN["encoded_hex"])), batch)


@pytest.mark.parametrize("name", IMPORTANCE)
def test_the_golden_batches_of_samplers_that_choose_nodes_are_drawn_as_ever(name: str) -> None:
    golden = IMPORTANCE[name]
    indptr = np.cumsum([0, *map(len, GOLDEN["lists"])], dtype=np.int64)
    topology = Topology(Path("indices.bin"), indptr, np.concatenate(GOLDEN["lists"]).astype(np.uint32))
    spec = importance_spec(golden["kind"], golden["fanouts"], **golden["settings"])
    batch = open_sampler(topology, spec, GOLDEN["seed"]).sample(
        np.array(GOLDEN["seeds"]), purpose=Purpose(GOLDEN["purpose"]), epoch=GOLDEN["epoch"], number=GOLDEN["number"]
    )
    assert batch.edge_positions.tolist() == golden["edge_positions"]
    bits = None if batch.edge_weights is None else batch.edge_weights.view(np.uint32).tolist()
    assert bits == golden["weight_bits"]


def test_the_golden_permutation_is_as_ever() -> None:
    golden = GOLDEN["permutation"]
    order = keyed_permutation(golden["num_items"], golden["seed"], golden["purpose"], golden["epoch"])
    assert order.tolist() == golden["order"]
