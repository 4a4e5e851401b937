"""Embeddings on a GPU against those in memory. Skipped where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop.embedding.device.draws import DeviceNegatives, device_order
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable
from diskhop.embedding.partitions.edges import EdgeRows, shuffled
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import Step
from diskhop.runs.start import run_config
from tests.embedding import committed_bytes, embed_config, small_triples
from tests.unit.test_embedding_step import NUM_EDGES, make_batch, make_options, make_tables, no_draws

DEVICE = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here: pytest -m gpu runs these where one is"),
]


def test_draws_have_the_bits_of_those_in_memory() -> None:
    np.testing.assert_array_equal(device_order(50_000, 3, 1, 2, DEVICE).cpu().numpy(), shuffled(50_000, 3, 1, 2))
    layout = PartitionLayout(3_000_000, 6, 4, 1)
    sampler = NegativeSampler(layout, (0, 1, 2), 0.3, seed=5)
    ends = np.random.default_rng(0).integers(0, 1_000_000, (2, 1000))
    expected = sampler.draw((2, 10, 700), EdgeRows(ends[0], None, ends[1]), (3, 7), lambda each: each << 20)
    drawn = DeviceNegatives(sampler, lambda each: each << 20, DEVICE)
    sources, destinations = torch.from_numpy(ends).to(DEVICE)
    found = drawn.draw((2, 10, 700), sources, destinations, (3, 7))
    np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize("loss", ["softmax", "contrastive", "logistic"])
@pytest.mark.parametrize("model", ["dot", "distmult", "complex", "transe"])
def test_a_step_is_the_one_in_memory_and_repeats_itself(model: str, loss: str) -> None:
    options = make_options(model=model, loss=loss, n3=0.1)
    edges, negatives = make_batch(options)
    if model == "dot":
        edges = EdgeRows(edges.sources, None, edges.destinations)
    nodes, relations = make_tables(options, 1)
    before = [each for each in (nodes, relations) if each is not None]
    found = []
    for _ in range(2):
        copies = [
            DeviceTable(torch.from_numpy(each.values).to(DEVICE), torch.from_numpy(each.squares).to(DEVICE))
            for each in before
        ]
        step = DeviceStep(options, copies[0], copies[1] if len(copies) > 1 else None)
        kinds = None if edges.relations is None else torch.from_numpy(edges.relations).to(DEVICE)
        there = DeviceEdges(
            torch.from_numpy(edges.sources).to(DEVICE), kinds, torch.from_numpy(edges.destinations).to(DEVICE)
        )
        loss_there = step.run(there, torch.from_numpy(negatives).to(DEVICE), no_draws)
        found.append([each.values.cpu() for each in copies])
    assert loss_there / NUM_EDGES == pytest.approx(
        Step(options, nodes, relations).run(edges, negatives, no_draws) / NUM_EDGES, rel=1e-4
    )
    for first, second, table in zip(*found, before, strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, torch.from_numpy(table.values), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{"prefetch_slot": "spare"}, {"prefetch_slot": "leaving"}, {"mask_known": True}],
    ids=["spare slot", "leaving slot", "known edges"],
)
def test_a_run_is_close_to_the_one_in_memory_and_repeats_itself(tmp_path: Path, changes: dict[str, Any]) -> None:
    dataset = small_triples(tmp_path / "triples")
    options = {"partitions": 6, **changes}
    run_config(dataset, embed_config(**options), tmp_path / "memory")
    for name in ("device", "again"):
        run_config(dataset, embed_config(**options, device="cuda:0", device_memory_bytes=100_000_000), tmp_path / name)
    found, expected = committed_bytes(tmp_path / "device"), committed_bytes(tmp_path / "memory")
    assert committed_bytes(tmp_path / "again") == found
    for name in [name for name in found if name.startswith("partition")]:
        ours, theirs = (np.frombuffer(each[name], np.float32) for each in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
