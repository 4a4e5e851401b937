"""Linear layers give the same values whatever multiplies; what is chosen is measured, sound, and remembered."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from diskhop.errors import ConfigError
from diskhop.nn.activation import relu
from diskhop.nn.matmul import choice as matmul
from diskhop.nn.matmul.backends import BACKENDS, Blas
from diskhop.nn.matmul.choice import PREFERENCE, MatmulChoice, bfloat16_ratio, choose_matmul, fastest_products, prefer
from diskhop.nn.matmul.placed import PlacedRows
from diskhop.nn.matmul.products import PRECISIONS, Linear, Products, require_products
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.system.machine_cache import machine_cache_path

SHAPES = [(1, 1, 1), (3, 5, 7), (200, 47, 16), (3000, 256, 256), (5, 1433, 16)]


def require_working(backend: str, precision: str) -> None:
    """Skip what this processor lacks, which choose_matmul() leaves out and require_products() refuses."""
    if (backend, precision) == ("onednn", "bfloat16") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN needs AVX-512 or AVX-NE-CONVERT for bfloat16, which this processor lacks")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The choice is tested, not the figures.
    monkeypatch.setattr(matmul, "_ROWS", 64)
    monkeypatch.setattr(matmul, "_NUM_PASSES", 2)


@pytest.mark.fast(16)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3, 4), *SHAPES])
@pytest.mark.parametrize("is_rectified", [False, True])
def test_rows_of_16_bits_give_the_bits_of_widened_rows_without_widening_them_all(
    backend: str, dtype: torch.dtype, shape: tuple[int, int, int], is_rectified: bool
) -> None:
    num_rows, in_dim, out_dim = shape
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(num_rows, in_dim, generator=generator).to(dtype)
    given = [torch.randn(size, generator=generator) for size in ((out_dim, in_dim), (out_dim,))]
    grad = torch.randn(num_rows, out_dim, generator=generator)
    products = Products(backend)
    found = []
    for x in (rows, rows.float()):
        weight, bias = (tensor.clone().requires_grad_() for tensor in given)
        out = products.linear(x, weight, bias, Rectifier(0.5, 3) if is_rectified else None)
        torch.autograd.backward(out, grad)
        assert weight.grad is not None
        assert bias.grad is not None
        found.append([out.detach(), weight.grad, bias.grad])
    for of_short, of_widened in zip(*found, strict=True):
        assert torch.equal(of_short, of_widened)
    assert products.operand(rows).data_ptr() == rows.data_ptr(), "nothing is copied"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(0, 3, 4), (200, 47, 16), (5000, 64, 16)])
def test_rows_at_places_give_the_bits_of_copied_rows(
    backend: str, precision: str, dtype: torch.dtype, shape: tuple[int, int, int]
) -> None:
    require_working(backend, precision)
    num_rows, in_dim, out_dim = shape
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(300, in_dim, generator=generator).to(dtype)
    placed = PlacedRows(matrix, torch.randint(300, (num_rows,), generator=generator))
    given = [torch.randn(size, generator=generator) for size in ((out_dim, in_dim), (out_dim,))]
    layer = Linear(in_dim, out_dim, Products(backend, precision))
    found = []
    for x in (placed, placed.whole()):
        layer.weight.data, layer.bias.data = (tensor.clone() for tensor in given)
        layer.zero_grad()
        out = layer(x, Rectifier(0.5, 3))
        out.float().square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        found.append([out.detach(), layer.weight.grad, layer.bias.grad])
    assert len(placed) == num_rows
    for of_placed, of_copied in zip(*found, strict=True):
        assert torch.equal(of_placed, of_copied)


def test_places_outside_of_the_matrix_are_refused() -> None:
    for place in (-1, 3):
        with pytest.raises(ValueError, match="places must be rows of x"):
            Linear(2, 2, Products("mkl"))(PlacedRows(torch.zeros(3, 2), torch.tensor([0, place])))


@pytest.mark.fast(16)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_and_its_gradients_are_those_of_float64(
    backend: str, precision: str, shape: tuple[int, int, int], has_bias: bool
) -> None:
    require_working(backend, precision)
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


@pytest.mark.fast("float32")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_choice_is_measured_once_and_remembered(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose_matmul(precision)
    assert choice.backend in choice.seconds
    monkeypatch.setattr(matmul, "_measure", lambda _: pytest.fail("measured again"))
    assert choose_matmul(precision) == choice


def test_what_is_far_slower_is_measured_on_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"mkl": 1.0, "onednn": 4.9, "mixed": 5.1, "blas": 20.0}
    calls = []

    def fastest(candidates: dict[str, Products], operands: tuple[Tensor, Tensor, Tensor], _: int) -> dict[str, float]:
        calls.append((list(candidates), len(operands[0])))
        return {name: rates[name] * len(operands[0]) for name in candidates}

    monkeypatch.setattr(matmul, "_fastest_passes", fastest)
    candidates = {name: Products(name) for name in rates}
    operands = torch.zeros(8192, 8), torch.zeros(8, 8), torch.zeros(8192, 8)
    assert matmul._time(candidates, operands) == {name: 8192 * rate for name, rate in rates.items()}
    assert calls == [(list(rates), 1024), (["mkl", "onednn"], 8192)]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, float]]]:
    """Seconds that the next measurements give, the first first; all must be asked for."""
    given: list[dict[str, float]] = []
    monkeypatch.setattr(matmul, "_time", lambda *_: given.pop(0))
    yield given
    assert not given


@pytest.fixture
def all_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comparison with float64, which other tests claim something about."""
    monkeypatch.setattr(matmul, "_sound_ones", lambda _: list(PREFERENCE))


def forget() -> None:
    for path in machine_cache_path("products.json").parent.iterdir():
        path.unlink()


# What made one choice by one thread and another by two.
NEAR = {"mkl": 0.14531, "onednn": 0.14503, "mixed": 0.15, "blas": 0.16}
FLIPPED = {"mkl": 0.14503, "onednn": 0.14531, "mixed": 0.16, "blas": 0.15}


def test_timings_that_flip_never_change_the_choice(measured: list[dict[str, float]]) -> None:
    for first, second in ((NEAR, FLIPPED), (FLIPPED, NEAR), (NEAR, NEAR), (FLIPPED, FLIPPED)):
        assert prefer(first, second) == "mkl"
        measured += [first, second]
        choice = choose_matmul("float32")
        assert choice.backend == "mkl"
        assert choice.seconds == {name: min(first[name], second[name]) for name in first}
        forget()


@pytest.mark.usefixtures("all_sound")
@pytest.mark.parametrize("fastest", ["onednn", "mixed", "blas"])
@pytest.mark.parametrize(
    ("gains", "is_left"),
    [((1.14, 1.14), False), ((1.16, 1.16), True), ((9.0, 1.14), False), ((1.14, 9.0), False), ((9.0, 0.5), False)],
)
def test_the_preferred_is_left_for_over_15_percent_measured_twice(
    fastest: str, gains: tuple[float, float], is_left: bool, measured: list[dict[str, float]]
) -> None:
    first, second = ({**dict.fromkeys(PREFERENCE, 1.0), fastest: 1 / gain} for gain in gains)
    assert prefer(first, second) == (fastest if is_left else "mkl")
    measured += [first, second]
    assert choose_matmul("float32").backend == (fastest if is_left else "mkl")


def test_of_two_that_are_faster_the_order_decides_too() -> None:
    onednn, mixed = ({"mkl": 1.0, "onednn": 0.5, "mixed": 0.51}, {"mkl": 1.0, "onednn": 0.51, "mixed": 0.5})
    for first, second in ((onednn, mixed), (mixed, onednn), (mixed, mixed)):
        assert prefer(first, second) == "onednn"
    assert prefer(*[{"mkl": 1.0, "onednn": 0.5, "mixed": 0.3}] * 2) == "mixed"


def test_the_order_of_timings_is_no_order() -> None:
    assert sorted(PREFERENCE) == sorted(BACKENDS)
    for names in itertools.permutations(PREFERENCE):
        assert prefer(dict.fromkeys(names, 1.0), dict.fromkeys(reversed(names), 1.0)) == "mkl"
    assert prefer({"blas": 1.0, "mixed": 1.1}, {"blas": 1.0, "mixed": 1.1}) == "mixed"


def test_one_choice_holds_for_any_number_of_threads(
    measured: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    used: list[int] = []

    def sound_ones(_: object) -> list[str]:
        used.append(torch.get_num_threads())
        return list(PREFERENCE)

    monkeypatch.setattr(matmul, "_sound_ones", sound_ones)
    monkeypatch.setattr(matmul, "default_threads", lambda: 3)
    measured += [{**NEAR, "onednn": 0.1}, {**NEAR, "onednn": 0.1}]
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert choose_matmul("float32").backend == fastest_products().backend == "onednn"
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert used == [3]


def test_the_second_process_to_write_takes_the_choice_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = ({**dict.fromkeys(PREFERENCE, 1.0), "onednn": seconds} for seconds in (1.0, 0.5))
    inner: list[MatmulChoice] = []

    def measure(*_: object) -> dict[str, float]:
        if inner:
            return fast
        # Another process begins later, measures otherwise, and is done before.
        monkeypatch.setattr(matmul, "_time", lambda *_: slow)
        inner.append(choose_matmul("float32"))
        monkeypatch.setattr(matmul, "_time", measure)
        return fast

    monkeypatch.setattr(matmul, "_time", measure)
    assert choose_matmul("float32") == inner[0] == MatmulChoice("mkl", slow)


@pytest.mark.slow
def test_processes_that_measure_at_once_end_with_one_choice(tmp_path: Path) -> None:
    program = """
import os, random, sys, time
from pathlib import Path
from diskhop.nn.matmul import choice as matmul

def choose(name):
    seconds = {each: 2.0 for each in matmul.PREFERENCE} | {name: 1.0}
    matmul._time = lambda *_: time.sleep(random.random() / 50) or seconds
    (folder / "begun" / name).touch()
    while len(list((folder / "begun").iterdir())) < len(seconds):
        time.sleep(0.001)
    (folder / name).write_text(matmul.choose_matmul("float32").backend)

folder = Path(sys.argv[1])
children = []
for name in matmul.PREFERENCE:  # a fork needs no imports
    if child := os.fork():
        children.append(child)
    else:
        choose(name)
        os._exit(0)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""
    (tmp_path / "begun").mkdir()
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
    found = [(tmp_path / name).read_text() for name in PREFERENCE]
    assert len(set(found)) == 1
    assert found[0] in BACKENDS
    assert len(list(machine_cache_path("products.json").parent.iterdir())) == 1


@pytest.mark.usefixtures("all_sound")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"seconds": {"blas": 1}}',
        '{"key": "KEY", "backend": "warp", "seconds": {"warp": 1}}',
        '{"key": "KEY", "backend": "mkl", "seconds": {"blas": 1}}',
        '{"key": "other", "backend": "blas", "seconds": {"blas": 1}}',
    ],
)
def test_a_damaged_memory_is_measured_again(content: str, measured: list[dict[str, float]]) -> None:
    measured += [NEAR, NEAR, FLIPPED, FLIPPED]
    choose_matmul("float32")
    (path,) = machine_cache_path("products.json").parent.iterdir()
    whole = json.loads(path.read_text())
    path.write_text(content.replace("KEY", whole["key"]))
    choice = choose_matmul("float32")
    assert json.loads(path.read_text()) == {"key": whole["key"], "backend": choice.backend, "seconds": choice.seconds}


def test_a_memory_that_cannot_be_written_costs_measuring_only(
    measured: list[dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    measured += [NEAR] * 4
    assert choose_matmul("float32") == choose_matmul("float32") == MatmulChoice("mkl", NEAR)


def test_without_hard_links_the_choice_is_remembered(
    measured: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr("os.link", refuse)
    measured += [NEAR, NEAR]
    assert choose_matmul("float32") == choose_matmul("float32")


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


class Uneven(Blas):
    """Divides a sum among threads: other bits with one than with several."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        super().multiply(x, weight, bias, out)
        out[0, 0] *= 1 + (torch.get_num_threads() > 1) * 2**-22


class Missing(Blas):
    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        raise RuntimeError("no such operator\nand a trace")


@pytest.mark.fast(1)
@pytest.mark.parametrize("backend", [Shortened(), Unsteady(), Uneven(), Missing()])
def test_a_backend_that_is_not_sound_is_no_choice(backend: Blas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "onednn", backend)
    assert "onednn" not in choose_matmul("float32").seconds


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
    choices = {
        "float32": MatmulChoice("onednn", {"blas": 2.0, "onednn": 1.0}),
        "bfloat16": MatmulChoice("blas", {"blas": 3.0, "onednn": 4.0}),
    }
    monkeypatch.setattr(matmul, "_measure", choices.__getitem__)
    assert bfloat16_ratio() == 3.0
