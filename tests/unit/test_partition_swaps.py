"""Claims about what moves partitions while others are trained: memory, negatives, and whether it is hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diskhop.budget import Budget
from diskhop.config.embed import LEAVING, SPARE
from diskhop.disk.model import assumed_disk_model
from diskhop.planning.embeddings.costs import predict_embedding, with_swaps_explained
from diskhop.planning.embeddings.partitions import plan_embedding
from diskhop.planning.embeddings.size import EmbedSize
from diskhop.plans import EmbedPlan
from diskhop.policies.orderings import legend_states
from diskhop.policies.schedule import Schedule
from diskhop.runs.embedding.defaults import load_embed_preset
from diskhop.runs.embedding.phases import phases_of
from tests.embedding import embed_config

SIZE = EmbedSize(num_nodes=100_000, num_edges=1_000_000, num_relations=0, block_bytes=1, measure_bytes=1)
# As fast at reading as at writing: a swap takes two partitions' bytes.
DISK = replace(assumed_disk_model(), sequential_read_bytes_per_second=1e9, sequential_write_bytes_per_second=1e9)


def plan_of(prefetch_slot: str, memory_bytes: int = 400_000_000) -> EmbedPlan:
    config = embed_config(
        model="dot", partitions=8, partition_order="legend", prefetch_slot=prefetch_slot, memory_bytes=memory_bytes
    )
    return plan_embedding(config, SIZE, Budget(memory_bytes))


def test_a_slot_that_is_left_needs_no_spare_one() -> None:
    spare, leaving = plan_of(SPARE), plan_of(LEAVING)
    assert (spare.num_slots, leaving.num_slots) == (4, 3)
    assert spare.overlap
    assert leaving.overlap
    assert spare.trained_meanwhile == 1
    assert 2 * leaving.prefetchable * leaving.loads <= leaving.trained_meanwhile * 64 <= 3 * leaving.loads


def test_without_memory_for_a_spare_slot_the_other_way_is_named() -> None:
    reserved = plan_of(SPARE).reserved
    plan = plan_of(SPARE, sum(reserved.values()) - reserved["edges"] - 1)
    assert (plan.num_slots, plan.overlap) == (3, False)
    assert any("and so would --prefetch-slot leaving" in reason for reason in plan.reasons)


def test_while_a_slot_is_reused_negatives_come_from_partitions_that_stay() -> None:
    schedule = Schedule.of_one(legend_states(8))
    for spare, leaving in zip(*(phases_of(schedule, 0, reuses_slots=reuses) for reuses in (False, True)), strict=True):
        assert spare[0] == leaving[0]
        assert spare[1].buckets == leaving[1].buckets
        assert set(leaving[1].partitions) == set(spare[1].partitions) - set(spare[1].gone)


@pytest.mark.parametrize("prefetch_slot", [SPARE, LEAVING])
def test_enough_edges_hide_a_swap(prefetch_slot: str) -> None:
    """Theorem 3: a swap is hidden if the edges trained meanwhile take as long as writing and reading a partition."""
    plan, config = plan_of(prefetch_slot), embed_config(partitions=8, prefetch_slot=prefetch_slot)
    num_swaps = plan.loads * (plan.prefetchable if prefetch_slot == LEAVING else 1)
    per_second = SIZE.num_edges * plan.trained_meanwhile / num_swaps / (2 * plan.partition_bytes / 1e9)
    for rate, verdict in ((0.99 * per_second, ": hidden"), (3 * per_second, ": 3.0 times as many edges would hide it")):
        predicted = predict_embedding(plan, config, SIZE.num_edges, rate, DISK)
        assert with_swaps_explained(plan, config, predicted, DISK).reasons[-1].endswith(verdict)
        exposed_seconds = predicted.epoch_seconds - predicted.compute_seconds
        if prefetch_slot == LEAVING and verdict == ": hidden":
            assert exposed_seconds == pytest.approx((1 - plan.prefetchable) * predicted.io_seconds)


def test_swaps_that_hide_nothing_are_not_explained() -> None:
    plan, config = replace(plan_of(SPARE), overlap=False), embed_config(partitions=8)
    predicted = predict_embedding(plan, config, SIZE.num_edges, 1e6, DISK)
    assert with_swaps_explained(plan, config, predicted, DISK) is plan


def test_the_preset_has_the_settings_of_the_paper() -> None:
    options = load_embed_preset("legend", None)
    config = embed_config(**options, partitions=8)
    assert (config.lr, config.batch_size, config.chunk_size, config.negatives) == (0.1, 100_000, 10_000, 1000)
    assert (config.dim, config.adagrad, config.buffer, config.reuses_slots) == (100, "element", 3, True)
    assert load_embed_preset("legend", "complex") == {**options, "model": "complex"}
