"""Embeddings of node types without features: only rows of a batch change, and runs repeat."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from diskhop.nn.typed import embeddings
from diskhop.nn.typed.embeddings import GradientRows, LearnedRows, NodeEmbeddings, sums_bytes

LR = 0.1


def test_only_rows_of_the_batch_are_updated_by_adagrad() -> None:
    table = NodeEmbeddings(50, 6, seed=1)
    before = table.values.copy()
    ids = np.array([4, 9, 4, 30], np.int64)
    rows = table.rows(ids)
    np.testing.assert_array_equal(rows.detach(), before[ids])
    weights = torch.randn(4, 6)
    torch.autograd.backward((rows * weights).sum())
    table.step(LR)
    grads = {4: weights[0] + weights[2], 9: weights[1], 30: weights[3]}
    for row, grad in grads.items():
        expected = before[row] - LR * grad.numpy() / np.sqrt(grad.square().mean().item())
        np.testing.assert_allclose(table.values[row], expected, rtol=1e-5, atol=1e-6)
    rest = np.setdiff1d(np.arange(50), ids)
    np.testing.assert_array_equal(table.values[rest], before[rest])
    after = table.values.copy()
    table.step(LR)  # nothing was read since
    np.testing.assert_array_equal(table.values, after)


def test_rows_without_a_gradient_leave_no_trace() -> None:
    table = NodeEmbeddings(5, 3, seed=0)
    with torch.no_grad():
        assert not table.rows(np.arange(5)).requires_grad
    unused = table.rows(np.arange(5))
    before = table.values.copy()
    table.step(LR)
    assert unused.grad is None
    np.testing.assert_array_equal(table.values, before)


def test_gradients_of_a_step_are_summed_in_the_order_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_UPDATED_ROWS", 7)
    monkeypatch.setattr(embeddings, "PIECE_BYTES", 3 * 4 * 6)
    rows, expected = LearnedRows(50, 6, seed=1, is_summed=True), NodeEmbeddings(50, 6, seed=1)
    random, changed = np.random.default_rng(0), set()
    for _ in range(3):  # steps
        sums = torch.zeros(50, 6)
        for _ in range(4):
            ids = random.choice(50, 20)
            weights = torch.from_numpy(random.normal(size=(20, 6)).astype(np.float32))
            torch.autograd.backward((rows(ids) * weights).sum())
            pieces = rows.take_batch()
            assert [len(ids) for ids, _ in pieces] == [3] * 6 + [2]
            for piece in pieces:
                rows.add_piece(piece)
            for row, grad in zip(ids.tolist(), weights, strict=True):
                sums[row] += grad
            changed |= set(ids.tolist())
        rows.end_step()
        rows.step(LR, 3.0)
        read = torch.from_numpy(np.flatnonzero(sums.any(1).numpy()))
        torch.autograd.backward(expected.rows(read.numpy()), sums[read])
        for each in expected.take_gradients():
            expected.add_gradients((each[0], each[1] / 3.0))
        expected.step(LR)
        np.testing.assert_array_equal(rows.state_dict()["values"], expected.values)
    assert len(changed) == 50


def test_sums_of_gradients_are_taken_a_few_rows_at_a_time() -> None:
    sums = GradientRows(40_000, 64)
    sums.add(np.arange(40_000), torch.ones(40_000, 64))
    pieces = [(len(ids), ids.nbytes + grads.nbytes) for ids, grads in sums.take()]
    assert sum(num_rows for num_rows, _ in pieces) == 40_000
    assert list(sums.take()) == []
    assert 40_000 * (4 * 64 + 1) + max(num_bytes for _, num_bytes in pieces) < sums_bytes(40_000, 64)


def test_initial_values_repeat_and_differ_by_seed_key_and_block() -> None:
    first = NodeEmbeddings(70_000, 4, seed=3, key=1)
    np.testing.assert_array_equal(first.values, NodeEmbeddings(70_000, 4, seed=3, key=1).values)
    np.testing.assert_array_equal(first.values[:100], NodeEmbeddings(100, 4, seed=3, key=1).values)
    for other in (NodeEmbeddings(100, 4, seed=4, key=1), NodeEmbeddings(100, 4, seed=3, key=0)):
        assert not np.array_equal(first.values[:100], other.values)
    assert not np.array_equal(first.values[:4000], first.values[65536:69536])
    assert abs(first.values.std() - 0.5) < 0.01


def test_a_module_of_rows_resumes() -> None:
    first = LearnedRows(40, 8, seed=0)
    rows = first(np.array([1, 2], np.int64))
    torch.autograd.backward(rows.sum())
    first.step(LR)
    state = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    assert set(state) == {"values", "squares"}
    again = LearnedRows(40, 8, seed=9)
    again.load_state_dict(state)
    for each in (first, again):
        with torch.no_grad():
            assert torch.equal(each(np.arange(40)), state["values"])
        torch.autograd.backward(each(np.array([1, 39], np.int64)).square().sum() * 3)
        each.step(LR, weight=3)
    assert all(torch.equal(first.state_dict()[name], tensor) for name, tensor in again.state_dict().items())
