"""Attention in the core is the formula and PyG's layer, with the same bits at any number of threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATConv

from diskhop._native import attend as native_attend
from diskhop._native import attend_backward_attention, attend_backward_rows
from diskhop.nn.layers import gat
from diskhop.nn.layers.aggregate import LayerBlock
from diskhop.nn.layers.attention import Dropout, attend, attend_then_map, attention, saves_to_attend_first
from diskhop.nn.layers.gat import GatLayer
from diskhop.nn.reproducible import torch_threads
from tests.examples import examples

SLOPE = 0.2
# Float32 against float64: sums of up to some hundred terms of size 1.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Case:
    layer: LayerBlock
    heads: int
    dim: int
    seed: int

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)

    def scores(self) -> Tensor:
        return 3 * self.random(self.layer.num_sources, 2 * self.heads)


def make_layer(num_targets: int, num_sources: int, degrees: list[int], seed: int) -> LayerBlock:
    """Sources are drawn with repetition, a target's own row among them."""
    indptr = np.concatenate([[0], np.cumsum(degrees[:num_targets])]).astype(np.int32)
    sources = np.random.default_rng(seed).integers(0, num_sources, indptr[-1], dtype=np.int32)
    return LayerBlock(torch.from_numpy(indptr), torch.from_numpy(sources), num_sources)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_targets = draw(st.integers(1, 8))
    num_sources = num_targets + draw(st.integers(0, 6))
    degree = st.one_of(st.integers(0, 4), st.integers(0, 120))
    degrees = draw(st.lists(degree, min_size=num_targets, max_size=num_targets))
    seed = draw(st.integers(0, 2**20))
    heads = draw(st.one_of(st.integers(1, 8), st.just(19)))
    return Case(make_layer(num_targets, num_sources, degrees, seed), heads, draw(st.integers(1, 70)), seed)


def slots_of(layer: LayerBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Source and target of each slot, and whether the softmax has it."""
    sources: list[int] = []
    targets: list[int] = []
    has: list[bool] = []
    for target in range(layer.num_targets):
        edges = layer.sources[layer.indptr[target] : layer.indptr[target + 1]].tolist()
        sources += [*edges, target]
        targets += [target] * (len(edges) + 1)
        has += [*(source != target for source in edges), True]
    return torch.tensor(sources), torch.tensor(targets), torch.tensor(has)


def attention_by_formula(both_scores: Tensor, layer: LayerBlock) -> Tensor:
    source_scores, target_scores = both_scores.chunk(2, dim=1)
    sources, targets, has = slots_of(layer)
    scores = functional.leaky_relu(source_scores[sources] + target_scores[targets], SLOPE)
    powers = (scores - scores.detach().amax()).exp() * has[:, None]
    return powers / torch.zeros_like(source_scores).index_add(0, targets, powers)[targets]


def attend_by_formula(weights: Tensor, rows: Tensor, layer: LayerBlock) -> Tensor:
    """rows: (sources, heads, dim)."""
    sources, targets, _ = slots_of(layer)
    out = rows.new_zeros(layer.num_targets, *rows.shape[1:])
    return out.index_add(0, targets, weights[:, :, None] * rows[sources]).flatten(1)


def leaves(dtype: torch.dtype, *tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]


def by_head(rows: Tensor, num_heads: int) -> Tensor:
    return rows.view(len(rows), num_heads, -1)


def assert_close(ours: Tensor | None, exact: Tensor | None, what: str | None = None) -> None:
    torch.testing.assert_close(ours, exact, atol=TOLERANCE, rtol=TOLERANCE, msg=what)


@examples(60)
@given(case=cases())
def test_attention_is_the_formula(case: Case) -> None:
    (ours,), (exact,) = leaves(torch.float32, case.scores()), leaves(torch.float64, case.scores())
    weights = attention(ours, case.layer, SLOPE, Dropout())
    expected = attention_by_formula(exact, case.layer)
    assert_close(weights.double(), expected)
    grad = case.random(*weights.shape)
    (gradient,) = torch.autograd.grad(weights, ours, grad.float())
    (other,) = torch.autograd.grad(expected, exact, grad)
    torch.testing.assert_close(gradient.double(), other, atol=1e-4, rtol=1e-5)


@examples(60)
@given(case=cases())
def test_sums_are_the_formula_before_and_after_the_map(case: Case) -> None:
    layer, heads, dim = case.layer, case.heads, case.dim
    sources, _, _ = slots_of(layer)
    in_dim = case.seed % 40 + 1
    inputs = (
        case.random(len(sources), heads).abs() / 10,
        case.random(layer.num_sources, in_dim),
        case.random(heads * dim, in_dim) / in_dim,
    )
    grad = case.random(layer.num_targets, heads * dim)
    exact = leaves(torch.float64, *inputs)
    mapped = by_head(exact[1] @ exact[2].t(), heads)
    expected = attend_by_formula(exact[0], mapped, layer)
    expected_grads = torch.autograd.grad(expected, exact, grad)

    before = leaves(torch.float32, *inputs)
    after = leaves(torch.float32, *inputs)
    for ours, out in (
        (before, attend(before[0], before[1] @ before[2].t(), layer, 1.0)),
        (after, attend_then_map(after[0], after[1], after[2], layer, 1.0)),
    ):
        torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-5)
        for gradient, other in zip(torch.autograd.grad(out, ours, grad.float()), expected_grads, strict=True):
            torch.testing.assert_close(gradient.double(), other, atol=1e-3, rtol=1e-4)


def test_rows_of_bfloat16_are_added_in_float32() -> None:
    layer = make_layer(5, 9, [3, 0, 50, 1, 7], seed=1)
    weights = torch.rand(len(layer.sources) + 5, 2)
    rows = torch.randn(9, 2 * 23).bfloat16().requires_grad_()
    wide = rows.detach().float().requires_grad_()
    out, expected = attend(weights, rows, layer, 1.5), attend(weights, wide, layer, 1.5)
    assert torch.equal(out, expected)
    (gradient,) = torch.autograd.grad(out.sum(), rows)
    (other,) = torch.autograd.grad(expected.sum(), wide)
    assert torch.equal(gradient, other.bfloat16())


@pytest.mark.parametrize("attends_first", [False, True])
@pytest.mark.parametrize("heads", [1, 3, 4, 8])
def test_parameters_values_and_gradients_are_those_of_pyg(
    heads: int, attends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gat, "saves_to_attend_first", lambda *_: attends_first)
    layer = make_layer(20, 45, [0, 1, 60, *range(17)], seed=heads)
    assert (layer.sources == layer.target_of_edge()).any()
    in_dim, dim = 24, 10
    ours = GatLayer(in_dim, heads * dim, heads=heads, dropout=0.0)
    theirs = GATConv(in_dim, dim, heads=heads)
    with torch.no_grad():
        theirs.bias.uniform_()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())

    x = torch.randn(45, in_dim)
    our_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    out = ours(our_x, layer)
    expected = theirs((their_x, their_x[:20]), layer.edge_index(), size=(45, 20))
    assert_close(out, expected)
    grad = torch.randn_like(out) / out.numel() ** 0.5
    out.backward(grad)
    expected.backward(grad)
    assert_close(our_x.grad, their_x.grad)
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(parameter.grad, other.grad, name)


def big_layer() -> LayerBlock:
    """Large enough for several threads; one target has a tenth of the edges."""
    degrees = np.random.default_rng(0).integers(0, 20, 3000)
    degrees[7] = 3000
    return make_layer(3000, 7000, degrees.tolist(), seed=3)


@pytest.mark.parametrize("width", ["own", "shared"])
def test_no_bit_depends_on_the_threads(width: str) -> None:
    layer, heads, dim = big_layer(), 4, 40
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(7000, heads * dim if width == "own" else dim, generator=generator)
    grad = torch.randn(3000, heads * dim, generator=generator)
    scores = torch.randn(7000, 2 * heads, generator=generator)
    results = []
    for num_threads in (1, 2, 5):
        with torch_threads(num_threads):
            ours = scores.clone().requires_grad_()
            weights = attention(ours, layer, SLOPE, Dropout(0.3, seed=5))
            lists = (layer.indptr, layer.sources, 0, 3000, weights.detach(), 1.0)
            out, grad_rows, grad_weights = torch.empty_like(grad), torch.zeros_like(rows), torch.empty_like(weights)
            native_attend(*lists, rows, out, num_threads)
            attend_backward_rows(*lists, grad, grad_rows, num_threads)
            attend_backward_attention(*lists, rows, grad, grad_weights, num_threads)
            results.append((weights, out, grad_rows, grad_weights, *torch.autograd.grad(weights, ours, grad_weights)))
    for result in results[1:]:
        for ours_, first in zip(result, results[0], strict=True):
            assert torch.equal(ours_, first)


def test_dropout_drops_slots_at_random_and_backward_drops_the_same() -> None:
    layer, heads = big_layer(), 3
    _, _, has = slots_of(layer)
    rows = torch.randn(7000, heads * 4).requires_grad_()
    scores = torch.randn(7000, 2 * heads).requires_grad_()
    dropout = Dropout(0.6, seed=11)
    weights = attention(scores, layer, SLOPE, dropout)
    is_dropped = weights.signbit()
    num_slots = is_dropped.numel()
    assert abs(is_dropped.double().mean().item() - 0.6) < 5 * (0.24 / num_slots) ** 0.5
    # Heads, and neighbouring slots, are dropped independently.
    for one, other in ((is_dropped[:, 0], is_dropped[:, 1]), (is_dropped[1:, 0], is_dropped[:-1, 0])):
        assert abs((one & other).double().mean().item() - 0.36) < 5 * (0.24 / len(one)) ** 0.5

    assert torch.equal(weights, attention(scores, layer, SLOPE, dropout))
    other_seed = attention(scores, layer, SLOPE, Dropout(0.6, seed=12))
    assert not torch.equal(weights, other_seed)
    assert torch.equal(weights.abs(), other_seed.abs())

    out = attend(weights, rows, layer, dropout.scale)
    exact_scores, exact_rows = scores.detach().double().requires_grad_(), rows.detach().double().requires_grad_()
    softmax = attention_by_formula(exact_scores, layer)
    kept = softmax * ~is_dropped / 0.4
    expected = attend_by_formula(kept, by_head(exact_rows, heads), layer)
    assert_close(out.double(), expected)
    grad = torch.randn_like(out)
    ours = torch.autograd.grad(out, (scores, rows), grad)
    others = torch.autograd.grad(expected, (exact_scores, exact_rows), grad.double())
    for gradient, exact in zip(ours, others, strict=True):
        torch.testing.assert_close(gradient.double(), exact, atol=1e-4, rtol=1e-5)
    assert not has.all()
    assert (weights[~has] == 0).all()


def test_dropout_follows_torchs_generator_and_the_mode() -> None:
    layer = make_layer(30, 60, [9] * 30, seed=0)
    x = torch.randn(60, 7)
    conv = GatLayer(7, 8, heads=2, dropout=0.5)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = conv(x, layer)
        return out

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    conv.eval()
    assert torch.equal(run(1), run(2))
    state = torch.get_rng_state()
    conv(x, layer)
    assert torch.equal(torch.get_rng_state(), state)


def test_dropping_everything_leaves_the_bias() -> None:
    layer = make_layer(3, 5, [2, 0, 4], seed=0)
    conv = GatLayer(4, 6, heads=2, dropout=1.0)
    assert torch.equal(conv(torch.randn(5, 4), layer), conv.bias.expand(3, 6))


def test_scores_far_apart_and_values_that_are_no_numbers() -> None:
    layer = LayerBlock(torch.tensor([0, 2], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32), 3)

    def run(*scores: float) -> list[float]:
        both_scores = torch.tensor([[score, 0.0] for score in scores])
        return attention(both_scores, layer, 1.0, Dropout()).flatten().tolist()

    assert run(0.0, 1e30, -1e30) == [1.0, 0.0, 0.0]
    assert run(3e38, 3e38, 3e38) == pytest.approx([1 / 3] * 3)
    assert np.isnan(run(0.0, float("nan"), 0.0)).all()
    assert np.isnan(run(0.0, float("inf"), 0.0)).any()


@pytest.mark.parametrize(
    ("num_targets", "num_sources", "num_slots", "heads", "out_dim", "is_first"),
    [
        # The first layer of a sampled batch; Cora's first layer, where all neighbours are read; nothing saved.
        (46_000, 178_000, 288_000, 4, 128, True),
        (1_500, 2_500, 10_000, 8, 64, False),
        (100, 100, 500, 1, 1000, False),
    ],
)
def test_the_map_comes_last_where_that_is_less_work(
    num_targets: int, num_sources: int, num_slots: int, heads: int, out_dim: int, is_first: bool
) -> None:
    indptr = torch.zeros(num_targets + 1, dtype=torch.int32)
    sources = torch.zeros(num_slots - num_targets, dtype=torch.int32)
    assert saves_to_attend_first(LayerBlock(indptr, sources, num_sources), heads, out_dim) is is_first


def test_sources_outside_and_wrong_sizes_are_refused() -> None:
    layer = make_layer(3, 5, [2, 2, 2], seed=0)
    good = torch.zeros(5, 4)
    bad_source = LayerBlock(layer.indptr, torch.tensor([0, 1, 2, 3, 4, 5], dtype=torch.int32), 5)
    with pytest.raises(IndexError, match="source 5 is outside the 5 rows"):
        attention(good, bad_source, SLOPE, Dropout())
    negative = LayerBlock(layer.indptr, torch.tensor([0, 1, 2, 3, 4, -1], dtype=torch.int32), 5)
    with pytest.raises(IndexError, match="source -1 is outside"):
        attend(torch.zeros(9, 2), torch.zeros(5, 4), negative, 1.0)
    with pytest.raises(ValueError, match="a column for each head"):
        attention(torch.zeros(5, 3), layer, SLOPE, Dropout())
    with pytest.raises(ValueError, match="a row for each slot"):
        attend(torch.zeros(8, 2), torch.zeros(5, 4), layer, 1.0)
    with pytest.raises(ValueError, match="columns of the rows"):
        attend(torch.zeros(9, 2), torch.zeros(5, 3), layer, 1.0)
    with pytest.raises(ValueError, match="from 0 to 1"):
        attention(good, layer, SLOPE, Dropout(1.5))
