"""Chunks are as long as a batch where labels are mixed, and so short where they are sorted that batches are mixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.runs.nodes.chunk_length import longest_mixed_chunk
from tests.examples import examples


@examples(30)
@given(seed=st.integers(0, 10**6), batch_size=st.integers(1, 500), num_classes=st.integers(1, 50))
def test_labels_in_random_order_have_chunks_of_a_batch(seed: int, batch_size: int, num_classes: int) -> None:
    labels = np.random.default_rng(seed).integers(0, num_classes, 20_000)
    assert longest_mixed_chunk(labels, batch_size) == batch_size


@pytest.mark.parametrize(("batch_size", "chunk_rows"), [(1000, 8), (4000, 32), (8000, 64), (50, 2)])
def test_sorted_labels_have_chunks_that_a_batch_has_many_of(batch_size: int, chunk_rows: int) -> None:
    labels = np.sort(np.random.default_rng(0).integers(0, 40, 100_000))
    assert longest_mixed_chunk(labels, batch_size) == chunk_rows


@pytest.mark.parametrize("labels", [np.zeros(1000, np.int64), np.sort(np.arange(90))])
def test_one_class_or_one_batch_needs_no_mixing(labels: np.ndarray) -> None:
    assert longest_mixed_chunk(labels, 100) == 100


def test_the_first_task_stands_for_all() -> None:
    labels = np.stack([np.repeat([0.0, 1.0], 5000), np.tile([0.0, 1.0], 5000)], axis=1).astype(np.float32)
    assert longest_mixed_chunk(labels, 1000) < 32
    assert longest_mixed_chunk(labels[:, ::-1], 1000) == 1000
