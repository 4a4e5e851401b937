"""Hop models give what their papers' formulas give, and are chosen and refused by configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.hop.hoga import Hoga
from diskhop.nn.hop.layers import HiddenLayer
from diskhop.nn.hop.sgc import Sgc
from diskhop.nn.hop.sign import Sign
from diskhop.nn.matmul.backends import BACKENDS
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.nn.norms import NORMS
from tests.hop_formulas import hoga_by_formula, sign_by_formula

IN_DIM, HIDDEN, OUT_DIM, TABLES, ROWS = 5, 8, 3, 4, 7
MODELS: dict[str, Callable[[Products], nn.Module]] = {
    "sgc": lambda products: Sgc(IN_DIM, OUT_DIM, products=products),
    "sign": lambda products: Sign(IN_DIM, TABLES, HIDDEN, OUT_DIM, 2, norm="batch", dropout=0.5, products=products),
    "hoga": lambda products: Hoga(IN_DIM, TABLES, HIDDEN, OUT_DIM, 2, heads=2, dropout=0.5, products=products),
}


def hop_rows(num_rows: int = ROWS, num_tables: int = TABLES) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_tables, num_rows, IN_DIM, generator=generator)


@pytest.mark.parametrize("heads", [1, 4])
def test_hoga_is_its_formula_with_gradients(heads: int) -> None:
    torch.manual_seed(0)
    hoga = Hoga(IN_DIM, TABLES, HIDDEN, OUT_DIM, 1, heads=heads)
    ours, truth = hoga(hop_rows()), hoga_by_formula(hoga, hop_rows(), heads)
    torch.testing.assert_close(ours, truth)
    gradients = [torch.autograd.grad(value.square().sum(), list(hoga.parameters())) for value in (ours, truth)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_hoga_with_one_map_embeds_every_hop_by_it() -> None:
    torch.manual_seed(0)
    shared = Hoga(IN_DIM, TABLES, HIDDEN, OUT_DIM, 2, norm="layer", shared_map=True)
    own = Hoga(IN_DIM, TABLES, HIDDEN, OUT_DIM, 2, norm="layer")
    (of_all,) = shared.hops
    own.load_state_dict(
        {
            **{name: value for name, value in shared.state_dict().items() if not name.startswith("hops.")},
            **{f"hops.{hop}.{name}": value for hop in range(TABLES) for name, value in of_all.state_dict().items()},
        }
    )
    torch.testing.assert_close(shared(hop_rows()), own(hop_rows()))


def test_what_hop_0_adds_to_the_papers_readout_is_the_same_for_all_hops() -> None:
    torch.manual_seed(0)
    hops, score = torch.randn(TABLES, HIDDEN), torch.randn(2 * HIDDEN)
    beside_self = torch.cat([hops[:1].expand(TABLES - 1, -1), hops[1:]], dim=1)
    torch.testing.assert_close(torch.softmax(beside_self @ score, 0), torch.softmax(hops[1:] @ score[HIDDEN:], 0))


def test_sign_is_a_linear_layer_a_hop_then_a_perceptron_over_all() -> None:
    torch.manual_seed(0)
    sign = Sign(IN_DIM, TABLES, HIDDEN, OUT_DIM, 2)
    torch.testing.assert_close(sign(hop_rows()), sign_by_formula(sign, hop_rows()))


def test_sgc_reads_the_last_table_alone() -> None:
    sgc = Sgc(IN_DIM, OUT_DIM)
    x = hop_rows()
    x[:-1] = torch.nan
    torch.testing.assert_close(sgc(x), functional.linear(x[-1], sgc.linear.weight, sgc.linear.bias))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_hidden_layer_drops_and_rectifies_whatever_its_norm(norm: str, dropout: float) -> None:
    torch.manual_seed(0)
    layer = HiddenLayer(IN_DIM, 64, norm, dropout, DEFAULT_PRODUCTS)
    x = hop_rows(64)[0]
    expected = functional.relu(layer.norm(layer.linear(x))) / (1 - dropout)
    out = layer(x)
    is_kept = out != 0
    torch.testing.assert_close(out[is_kept], expected[is_kept])
    assert abs(float(is_kept.sum() / (expected > 0).sum()) - (1 - dropout)) < 0.05
    torch.testing.assert_close(layer.eval()(x), functional.relu(layer.norm(layer.linear(x))))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("matmul", BACKENDS)
def test_backends_give_the_same_values(name: str, matmul: str) -> None:
    values = []
    for backend in ("blas", matmul):
        torch.manual_seed(0)
        values.append(MODELS[name](Products(backend)).eval()(hop_rows()))
    torch.testing.assert_close(*values, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_is_near(name: str) -> None:
    values = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        values.append(MODELS[name](Products("blas", precision)).eval()(hop_rows()).float())
    torch.testing.assert_close(*values, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_one_node_can_be_trained_on(name: str) -> None:
    model = MODELS[name](DEFAULT_PRODUCTS)
    model(hop_rows(1)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
