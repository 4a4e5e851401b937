"""Linear layers give the same values whatever multiplies; what is chosen is measured, sound, and remembered."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from diskhop.errors import ConfigError
from diskhop.io.machine_cache import machine_cache_path
from diskhop.models import matmul
from diskhop.models.activation import relu
from diskhop.models.backends import BACKENDS, Blas
from diskhop.models.matmul import bfloat16_ratio, choose_matmul
from diskhop.models.products import PRECISIONS, Linear, Products, require_products
from diskhop.models.rectifier import Rectifier

SHAPES = [(1, 1, 1), (3, 5, 7), (200, 47, 16), (3000, 256, 256), (5, 1433, 16)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The choice is tested, not the figures.
    monkeypatch.setattr(matmul, "_ROWS", 64)
    monkeypatch.setattr(matmul, "_NUM_PASSES", 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_and_its_gradients_are_those_of_float64(
    backend: str, precision: str, shape: tuple[int, int, int], has_bias: bool
) -> None:
    num_rows, in_dim, out_dim = shape
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (
        torch.randn(size, generator=generator) for size in ((num_rows, in_dim), (out_dim, in_dim), (num_rows, out_dim))
    )
    bias = torch.randn(out_dim, generator=generator) if has_bias else None

    def run(linear: Any, *operands: Tensor | None) -> list[Tensor]:
        leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in operands]
        out = linear(*leaves)
        torch.autograd.backward(out, grad.to(out.dtype))
        return [out.detach(), *(leaf.grad for leaf in leaves if leaf is not None and leaf.grad is not None)]

    exact = run(functional.linear, *(None if tensor is None else tensor.double() for tensor in (x, weight, bias)))
    found = run(Products(backend, precision).linear, x, weight, bias)
    assert [tensor.dtype for tensor in found] == [PRECISIONS[precision], *[torch.float32] * (len(found) - 1)]
    tolerance = 1e-5 if precision == "float32" else 2e-2
    for ours, truth in zip(found, exact, strict=True):
        assert float((ours - truth).abs().max()) <= tolerance * max(float(truth.abs().max()), in_dim**0.5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_mkl_in_turns_gives_the_same_bits_by_any_number_of_threads(precision: str) -> None:
    products = Products("mkl", precision)
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (torch.randn(*s, generator=generator) for s in ((5003, 100), (60, 100), (5003, 60)))

    def run(threads: int) -> list[Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            leaves = [leaf.to(products.dtype).requires_grad_() for leaf in (x, weight)]
            out = products.linear(leaves[0], leaves[1])
            torch.autograd.backward(out, grad.to(out.dtype))
        finally:
            torch.set_num_threads(before)
        return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    first = run(1)
    assert len(first) == 3
    for threads in (1, 2, 4):
        assert all(map(torch.equal, first, run(threads)))


def test_large_results_take_turns_in_the_same_memory() -> None:
    products = Products()
    first, second = (products.empty(5000, 100, torch.float32) for _ in range(2))
    places = {first.data_ptr(), second.data_ptr()}
    assert first.is_contiguous()
    assert len(places) == 2
    del first, second
    # Another batch is of about the same size.
    assert products.empty(4990, 100, torch.float32).data_ptr() in places


def test_a_network_can_be_copied_and_pickled() -> None:
    layer = Linear(4, 3, Products("blas", "bfloat16"))
    x = torch.ones(2, 4)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(again(x), layer(x))


def test_relu_is_torchs_and_dropout_its_expectation() -> None:
    x = torch.randn(3000, 200, generator=torch.Generator().manual_seed(0))
    grad = torch.randn(3000, 200, generator=torch.Generator().manual_seed(1))
    for dropout in (0.0, 0.5):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(3)
        out = relu(leaf * 1, dropout, Products())
        torch.autograd.backward(out, grad)
        scale = 1 / (1 - dropout)
        is_kept = out != 0
        assert torch.equal(out, torch.where(is_kept, x * scale, 0))
        assert torch.equal(leaf.grad, torch.where(is_kept, grad * scale, 0))  # type: ignore[arg-type]
        share = float(is_kept[x > 0].float().mean())
        assert abs(share - (1 - dropout)) < 0.005
        assert not (is_kept & (x <= 0)).any()
        torch.manual_seed(3)
        assert torch.equal(relu(x * 1, dropout, Products()), out)
    torch.manual_seed(4)
    assert not torch.equal(relu(x * 1, 0.5, Products()), out)


@pytest.mark.parametrize("num_rows", [1, 63, 64, 100, 4096, 4097, 10000])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("backend", ["mkl", "blas"])
def test_a_rectified_product_is_relu_of_the_product(
    num_rows: int, dropout: float, precision: str, backend: str
) -> None:
    products = Products(backend, precision)
    generator = torch.Generator().manual_seed(num_rows)
    x, weight, bias, grad = (
        torch.randn(*s, generator=generator) for s in ((num_rows, 24), (16, 24), (16,), (num_rows, 16))
    )
    x, grad = x.to(products.dtype), grad.to(products.dtype)
    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias)]
    torch.manual_seed(5)
    out = products.linear(leaves[0], leaves[1], leaves[2], Rectifier.draw(dropout))
    torch.autograd.backward(out, grad)

    plain = products.linear(x, weight, bias)
    is_kept = out != 0
    scale = 1 / (1 - dropout)
    assert torch.equal(out, torch.where(is_kept, plain * scale, 0))
    assert not (is_kept & (plain <= 0)).any()
    if dropout == 0:
        assert torch.equal(is_kept, plain > 0)
    elif num_rows >= 4096:  # parts draw apart: no part repeats another
        shares = is_kept[:4096].float().sum() / (plain[:4096] > 0).sum()
        assert abs(float(shares) - 0.5) < 0.02
    masked = torch.where(is_kept, grad * scale, 0).double()
    expected = [masked @ weight.to(products.dtype).double(), masked.T @ x.double(), masked.sum(dim=0)]
    most_error = 1e-5 if precision == "float32" else 2e-2
    for leaf, truth in zip(leaves, expected, strict=True):
        assert leaf.grad is not None
        assert float((leaf.grad.double() - truth).abs().max()) <= most_error * max(1.0, float(truth.abs().max()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_of_one_tensor_drop_apart(backend: str) -> None:
    ones = torch.ones(8192, 8)
    rectified = Products(backend).linear(ones, torch.ones(8, 8), rectifier=Rectifier(0.5, 3))
    assert not torch.equal(rectified[:4096] == 0, rectified[4096:] == 0)


def test_what_is_not_a_number_stays_one() -> None:
    x = torch.tensor([[float("nan"), -1.0, 2.0]])
    assert str(relu(x, 0.0, Products()).tolist()) == "[[nan, 0.0, 2.0]]"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_choice_is_measured_once_and_remembered(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose_matmul(precision, 1)
    assert choice.seconds[choice.backend] == min(choice.seconds.values())
    monkeypatch.setattr(matmul, "_measure", lambda *_: pytest.fail("measured again"))
    assert choose_matmul(precision, 1) == choice


def test_each_number_of_threads_has_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(_: str, threads: int) -> dict[str, float]:
        measured.append(threads)
        return {"blas": 1.0}

    monkeypatch.setattr(matmul, "_measure", measure)
    monkeypatch.setattr(matmul, "default_threads", lambda: 4)
    for threads in (1, 2, 1, 1000, 4):
        choose_matmul("float32", threads)
    assert measured == [1, 2, 4]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": 1}', '{"format": 1, "seconds": {"a": {"warp": 1}}}'])
def test_a_damaged_memory_is_measured_again(content: str) -> None:
    path = machine_cache_path("products.json")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    choose_matmul("float32", 1)
    assert json.loads(path.read_text())["seconds"]


class Shortened(Blas):
    """Claims float32 and multiplies in bfloat16, faster than anything."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        super().multiply(x.bfloat16().float(), weight.bfloat16().float(), bias, out)


class Unsteady(Blas):
    """Adds in another order each time."""

    calls = 0

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        super().multiply(x, weight, bias, out)
        Unsteady.calls += 1
        out[0, 0] *= 1 + Unsteady.calls % 3 * 2**-22


class Missing(Blas):
    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        raise RuntimeError("no such operator\nand a trace")


@pytest.mark.parametrize("backend", [Shortened(), Unsteady(), Missing()])
def test_a_backend_that_is_not_sound_is_no_choice(backend: Blas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "onednn", backend)
    assert "onednn" not in choose_matmul("float32", 1).seconds


def test_what_does_not_work_here_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "onednn", Missing())
    with pytest.raises(
        ConfigError, match=r"matmul 'onednn' does not work here with float32 \(no such operator\); name"
    ):
        require_products(Products("onednn", "float32"))
    for products, complaint in (
        (Products("cublas", "float32"), "unknown matmul 'cublas'.*mkl, blas, onednn, mixed"),
        (Products("blas", "float8"), "unknown precision 'float8'.*float32, bfloat16"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            require_products(products)


def test_bfloat16_is_compared_with_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"float32": {"blas": 2.0, "onednn": 1.0}, "bfloat16": {"blas": 3.0, "onednn": 4.0}}
    monkeypatch.setattr(matmul, "_measure", lambda precision, _: seconds[precision])
    assert bfloat16_ratio(1) == 3.0
