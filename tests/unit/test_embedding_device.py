"""Embeddings on a device: draws have NumPy's bits, and steps are those of autograd; kernels equal their references.

Tolerances: none for draws. Gradients and updates of a step: 1e-4 relative and 2e-5 absolute against float64. Kernels
against the reference in float32: 1e-4 relative and 1e-5 absolute, since products add in another order.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diskhop.embedding.device.draws import DeviceNegatives, device_order, negative_draws
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable, KernelGradients
from diskhop.embedding.partitions.edges import EdgeRows, shuffled
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.contrast import LeftOut, is_left_out
from diskhop.embedding.step.known_edges import KnownBatch
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import Table
from diskhop.nn.kernels.philox import bounded_words_reference
from diskhop.nn.kernels.philox_stream import Stream
from diskhop.nn.kernels.row_adagrad import update_rows_reference
from diskhop.nn.kernels.triton_philox import bounded_words_by_triton
from diskhop.nn.kernels.triton_row_adagrad import update_rows_by_triton
from diskhop.protocols import Purpose
from tests.devices import BY_INTERPRETER, as_on_a_device
from tests.examples import examples
from tests.unit.test_embedding_step import DIM, adagrad, make_batch, make_options, make_tables, no_draws, oracle

CPU = torch.device("cpu")
# Powers of two reject nothing, one above a half of 2^32 nearly half of all words.
HIGHS = (1, 2, 7, 1000, 1 << 20, 3 * (1 << 29) + 5, (1 << 31) - 1, 1 << 31)


def there(table: Table | None) -> DeviceTable | None:
    return None if table is None else DeviceTable(torch.from_numpy(table.values), torch.from_numpy(table.squares))


def edges_there(edges: EdgeRows, *, has_relations: bool) -> DeviceEdges:
    relations = torch.from_numpy(edges.relations) if has_relations and edges.relations is not None else None
    return DeviceEdges(torch.from_numpy(edges.sources), relations, torch.from_numpy(edges.destinations))


@examples(40)
@given(
    seed=st.integers(0, 2**63 - 1),
    key=st.tuples(st.integers(0, 2**40), st.integers(0, 2**63)),
    draws=st.lists(st.tuples(st.sampled_from(HIGHS), st.integers(0, 30)), max_size=4),
)
def test_draws_are_numpys(seed: int, key: tuple[int, int], draws: list[tuple[int, int]]) -> None:
    expected = np.random.Generator(np.random.Philox(key=[seed, Purpose.NEGATIVES], counter=[0, 0, *key]))
    found = negative_draws(seed, key, CPU)
    for high, count in draws:
        np.testing.assert_array_equal(found.integers(high, (count,)).numpy(), expected.integers(high, size=count))


@pytest.mark.parametrize("num_edges", [0, 1, 700])
def test_the_order_of_edges_is_the_cores(num_edges: int) -> None:
    for key in ((0, 0, 0), (2**63 - 1, 7, 3)):
        np.testing.assert_array_equal(device_order(num_edges, *key, CPU).numpy(), shuffled(num_edges, *key))


@pytest.mark.parametrize("degree_share", [0.0, 0.4])
def test_negatives_are_those_drawn_in_memory(degree_share: float) -> None:
    layout = PartitionLayout(1000, 6, 4, 1)
    sampler = NegativeSampler(layout, (4, 1, 2), degree_share, seed=5)
    bases = {1: 2048, 2: 0, 4: 1024}
    edges, _ = make_batch(make_options())
    expected = sampler.draw((2, 4, 9), edges, (3, 7 << 32 | 2), bases.__getitem__)
    drawn = DeviceNegatives(sampler, bases.__getitem__, CPU)
    ends = torch.from_numpy(edges.sources), torch.from_numpy(edges.destinations)
    np.testing.assert_array_equal(drawn.draw((2, 4, 9), *ends, (3, 7 << 32 | 2)).numpy(), expected)


@pytest.mark.parametrize("loss", ["softmax", "contrastive", "logistic", "margin"])
@pytest.mark.parametrize("model", ["dot", "distmult", "complex", "transe"])
def test_a_step_by_torch_is_what_autograd_and_adagrad_do(model: str, loss: str) -> None:
    check(model, loss, state_dim=1 if loss == "softmax" else DIM, kernels=False)


@pytest.mark.fast(4)
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
@pytest.mark.parametrize("is_reciprocal", [False, True])
@pytest.mark.parametrize("loss", ["softmax", "contrastive"])
@pytest.mark.parametrize("model", ["dot", "distmult", "complex", "transe"])
def test_a_step_by_kernels_is_what_autograd_and_adagrad_do(model: str, loss: str, is_reciprocal: bool) -> None:
    check(model, loss, state_dim=DIM if is_reciprocal else 1, kernels=True, reciprocal=is_reciprocal)


def check(model: str, loss: str, state_dim: int, *, kernels: bool, **changes: object) -> None:
    options = make_options(model=model, loss=loss, n3=0.1, l2=0.05, **changes)
    nodes, relations = make_tables(options, state_dim)
    edges, negatives = make_batch(options)
    tables = [table for table in (nodes, relations) if table is not None]
    squares = [table.squares.copy() for table in tables]
    expected, gradients = oracle(options, nodes, relations, edges, negatives)
    with as_on_a_device(kernels=kernels):
        nodes_there = there(nodes)
        assert nodes_there is not None
        step = DeviceStep(options, nodes_there, there(relations))
        assert isinstance(step._gradients, KernelGradients) == kernels
        batch = edges_there(edges, has_relations=SCORES[model].uses_relations)
        found = step.run(batch, torch.from_numpy(negatives), no_draws)
    assert found == pytest.approx(expected, rel=1e-5)
    for table, square, (values, grad) in zip(tables, squares, gradients, strict=True):
        wanted, wanted_squares = adagrad(values, grad, square, options.lr)
        torch.testing.assert_close(torch.from_numpy(table.values).double(), wanted, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(torch.from_numpy(table.squares).double(), wanted_squares, rtol=1e-4, atol=1e-5)


@examples(30)
@given(
    num_edges=st.integers(0, 6),
    num_negatives=st.integers(1, 9),
    most_known=st.sampled_from([0, 1, 5, 40]),
    seed=st.integers(0, 999),
)
def test_known_answers_are_found_among_negatives(
    num_edges: int, num_negatives: int, most_known: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    known = [np.sort(rng.choice(50, rng.integers(0, most_known + 1), replace=False)) for _ in range(num_edges)]
    answers, negatives = rng.integers(0, 50, num_edges), rng.integers(0, 50, num_negatives)
    ends = np.cumsum([len(each) for each in known], dtype=np.int64)
    begins = ends - [len(each) for each in known]
    found = is_left_out(
        LeftOut(
            *map(torch.from_numpy, (answers, negatives, np.concatenate([[], *known]).astype(np.int64), begins, ends))
        )
    )
    expected = [
        [node == answer or node in own for node in negatives] for answer, own in zip(answers, known, strict=True)
    ]
    assert found.tolist() == expected


def test_rows_that_are_fixed_stay() -> None:
    options = make_options()
    edges, negatives = make_batch(options)
    edges = EdgeRows(edges.sources % 20 + 10, edges.relations, edges.destinations % 20 + 10)
    nodes, relations = make_tables(options, 1)
    before = nodes.values.copy()
    with as_on_a_device(kernels=False):
        nodes_there = there(nodes)
        assert nodes_there is not None
        step = DeviceStep(options, nodes_there, there(relations))
        step.run(edges_there(edges, has_relations=True), torch.from_numpy(negatives), no_draws, [range(10)])
    np.testing.assert_array_equal(nodes.values[:10], before[:10])
    assert not np.array_equal(nodes.values[10:], before[10:])


@examples(10)
@given(
    words=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
    first=st.integers(0, 2**40),
    num_blocks=st.integers(0, 150),
    high=st.sampled_from(HIGHS[1:]),
)
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
def test_words_have_the_bits_of_the_reference(words: list[int], first: int, num_blocks: int, high: int) -> None:
    stream = Stream((words[0], words[1]), (words[2], words[3], words[4], words[5]))
    found = bounded_words_by_triton(stream, first, num_blocks, high, CPU)
    assert torch.equal(found, bounded_words_reference(stream, first, num_blocks, high, CPU))


@examples(10)
@given(seed=st.integers(0, 999), num_rows=st.integers(0, 30), dim=st.sampled_from([1, 3, 16, 37]), by_row=st.booleans())
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
def test_updated_rows_are_the_references(seed: int, num_rows: int, dim: int, by_row: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(9, dim, generator=generator)
    squares = torch.rand(9, 1 if by_row else dim, generator=generator)
    # Few rows, one of them a hub.
    rows = torch.randint(0, 9, (num_rows,), generator=generator) * torch.randint(0, 2, (num_rows,), generator=generator)
    grads = torch.randn(num_rows, dim, generator=generator)
    ours, theirs = (values.clone(), squares.clone()), (values.clone(), squares.clone())
    update_rows_by_triton(*ours, rows, grads, 0.1, 1e-10)
    update_rows_reference(*theirs, rows, grads, 0.1, 1e-10)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def known_of(rows: torch.Tensor, num_edges: int, num_nodes: int, draws: torch.Generator) -> KnownBatch:
    """Return up to 40 known answers of each side and edge, of any nodes."""
    counts = torch.randint(0, min(40, num_nodes) + 1, (2, num_edges), generator=draws)
    lists = [[torch.randperm(num_nodes, generator=draws)[:count].sort()[0] for count in side] for side in counts]
    ends = counts.cumsum(1)
    return KnownBatch(rows, (torch.cat(lists[0]), torch.cat(lists[1])), ends - counts, ends)


@examples(6)
@given(
    seed=st.integers(0, 999),
    model=st.sampled_from(["dot", "distmult", "complex", "transe"]),
    loss=st.sampled_from(["softmax", "contrastive"]),
    half=st.sampled_from([1, 3, 16, 19]),
    num_edges=st.integers(1, 20),
    chunk_size=st.sampled_from([1, 7, 18]),
    num_negatives=st.sampled_from([1, 5, 33]),
    num_nodes=st.sampled_from([1, 2, 50]),
    knows=st.booleans(),
)
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
def test_gradients_are_the_references(
    seed: int,
    model: str,
    loss: str,
    half: int,
    num_edges: int,
    chunk_size: int,
    num_negatives: int,
    num_nodes: int,
    knows: bool,
) -> None:
    """With one node, all negatives are left out; widths without relations may be odd. knows: answers are left out."""
    sizes = {"batch_size": 20, "chunk_size": chunk_size, "num_negatives": num_negatives}
    options = make_options(model=model, loss=loss, **sizes, n3=0.01, masks_known=knows)
    draws = torch.Generator().manual_seed(seed)
    dim = 2 * half - (1 if model == "dot" else 0)
    nodes, relations = torch.randn(num_nodes, dim, generator=draws), torch.randn(3, dim, generator=draws)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=draws)
    kinds = torch.randint(0, 3, (num_edges,), generator=draws, dtype=torch.int32)
    negatives = torch.randint(0, num_nodes, (2, -(-num_edges // chunk_size), num_negatives), generator=draws)
    has_relations = model != "dot"
    rows = torch.cat([ends.flatten(), negatives.flatten()])
    known = known_of(rows, num_edges, num_nodes, draws) if knows else None
    found = []
    for kernels in (True, False):
        tables = [DeviceTable(each.clone(), torch.ones(len(each), 1)) for each in (nodes, relations)]
        with as_on_a_device(kernels=kernels):
            step = DeviceStep(options, tables[0], tables[1] if has_relations else None)
            edges = DeviceEdges(ends[0], kinds if has_relations else None, ends[1])
            loss_of_step = step.run(edges, negatives, no_draws, known=known)
            assert isinstance(step._gradients, KernelGradients) == kernels
            found.append((loss_of_step, *(each.values for each in tables)))
    (loss_found, *ours), (expected, *theirs) = found
    assert loss_found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
def test_the_benchmark_of_a_device_times_every_kernel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    sizes = {"nodes": 30, "dim": 4, "batch": 8, "chunk": 4, "negatives": 3, "phase": 2, "repeats": 1}
    arguments = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    benchmark = importlib.import_module("device_embeddings")
    with as_on_a_device(kernels=True), monkeypatch.context() as patch:
        patch.setattr(benchmark, "runs_kernels", lambda _: True)
        benchmark.main([*arguments, "--device", "cpu", "--models", "complex"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1] for line in lines[1:-1]] == [
        "order of a phase", "batch and negatives", "gradient calculation, torch", "Adagrad of nodes, torch",
        "gradient calculation, Triton", "Adagrad of nodes, Triton", "batch time",
    ]  # fmt: skip
    assert lines[-1].endswith("edges/s")
