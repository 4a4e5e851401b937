"""Choose which library multiplies matrices: measured once per processor and precision, then remembered.

A backend is sound if it has the precision that it is asked for (a library may quietly use a shorter format), compared
with float64, and if it repeats itself to the last bit, with one thread as with several. Backends differ from each other
in the last bits, so the choice must not depend on chance. Sound backends have a fixed order of preference, and small
differences in time do not count.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop.nn.matmul.backends import BACKENDS
from diskhop.nn.matmul.products import PRECISIONS, Products, run_products, sample_operands
from diskhop.system.machine_cache import (
    create_machine_cache,
    discard_machine_cache,
    machine_cache_path,
    read_machine_cache,
)
from diskhop.system.memory import default_threads

_CACHE_FORMAT = 5
# mkl gives the same bits for any number of threads and does not wait for slow ones; onednn and mixed pass over the rows
# of a gradient once, blas twice.
PREFERENCE = ("mkl", "onednn", "mixed", "blas")
# How much faster a backend must be to replace one that is preferred. Repeated measurements of one backend on a machine
# that does little else differ by less.
_LEAST_GAIN = 1.15
# A layer of usual width over the nodes of a batch: more rows than the caches hold.
_ROWS, _DIM = 32768, 256
_FEW_ROWS = 4097
_NUM_PASSES = 5
_FAR_SLOWER = 5
# Relative to the largest value: rounding in float32 gives 1e-6, shorter formats inside a product 1e-4 and more.
_MOST_ERROR = {"float32": 1e-5, "bfloat16": 2e-2}


class MatmulChoice(NamedTuple):
    """Backend to use, and how fast each sound one is.

    backend: a name in BACKENDS.
    seconds: time for the three products of a layer, for each sound backend; the smaller of two measurements.
    """

    backend: str
    seconds: dict[str, float]

    @property
    def gflops(self) -> dict[str, float]:
        """Rates in 10^9 floating-point operations per second."""
        return {name: 6e-9 * _ROWS * _DIM**2 / seconds for name, seconds in self.seconds.items()}


def choose_matmul(precision: str) -> MatmulChoice:
    """Choose the backend for a precision on this processor: remembered, or measured in a few seconds.

    The choice holds for any number of threads; it is measured with all cores. Of processes that measure at the same
    time, the first to finish decides for all.
    """
    key = f"format {_CACHE_FORMAT}|{torch.__version__}|{_processor()}|{precision}"
    name = f"products-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    was_there = machine_cache_path(name).exists()
    known = _read_cache(name, key)
    if known is not None:
        return known
    if was_there:  # damaged; what another process writes from now on is not
        discard_machine_cache(name)
    choice = _measure(precision)
    create_machine_cache(name, {"key": key, "backend": choice.backend, "seconds": choice.seconds})
    return _read_cache(name, key) or choice


def prefer(first: Mapping[str, float], second: Mapping[str, float]) -> str:
    """Choose among backends by two measurements of their seconds, which name the same backends.

    Candidates are compared in the order of PREFERENCE. One is replaced by a later one only if that is over 15 % faster
    in both measurements.
    """
    candidates = [name for name in PREFERENCE if name in first]
    chosen = candidates[0]
    for name in candidates[1:]:
        if all(seconds[name] * _LEAST_GAIN < seconds[chosen] for seconds in (first, second)):
            chosen = name
    return chosen


def fastest_products(precision: str = "float32") -> Products:
    """Make products for diskhop's layers outside of a run, by the backend that choose_matmul() chooses."""
    return Products(choose_matmul(precision).backend, precision)


def bfloat16_ratio() -> float:
    """Return seconds in bfloat16 divided by seconds in float32: above 1 on processors without bfloat16."""
    short, full = (choose_matmul(precision) for precision in ("bfloat16", "float32"))
    return short.seconds[short.backend] / full.seconds[full.backend]


def _measure(precision: str) -> MatmulChoice:
    before = torch.get_num_threads()
    torch.set_num_threads(default_threads())
    try:
        # One shared pool: separate pools would raise the peak memory of a run.
        one = Products(precision=precision)
        every = {name: replace(one, backend=name) for name in BACKENDS}
        sound = _sound_ones(every) or ["blas"]
        operands = sample_operands(_ROWS, _DIM, PRECISIONS[precision])
        candidates = {name: every[name] for name in sound}
        first, second = (_time(candidates, operands) for _ in range(2))
        return MatmulChoice(prefer(first, second), {name: min(first[name], second[name]) for name in first})
    finally:
        torch.set_num_threads(before)


def _time(candidates: Mapping[str, Products], operands: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    """Measure the fastest pass of each, alternating: other programs can only add time.

    One that an eighth of the rows shows to be far slower than another has no chance, and is not measured on all rows:
    without bfloat16 in the processor that would take a minute.
    """
    x, weight, grad = operands
    part = (x[: len(x) // 8], weight, grad[: len(x) // 8])
    rough = {name: 8 * seconds for name, seconds in _fastest_passes(candidates, part, 2).items()}
    most = _FAR_SLOWER * min(rough.values())
    left = {name: products for name, products in candidates.items() if rough[name] <= most}
    return {**rough, **_fastest_passes(left, operands, _NUM_PASSES)}


def _fastest_passes(
    candidates: Mapping[str, Products], operands: tuple[Tensor, Tensor, Tensor], num_passes: int
) -> dict[str, float]:
    passes: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(num_passes):
        for name, products in candidates.items():
            started = time.perf_counter()
            run_products(products, *operands)
            passes[name].append(time.perf_counter() - started)
    return {name: min(seconds) for name, seconds in passes.items()}


def _sound_ones(every: Mapping[str, Products]) -> list[str]:
    """Compare backends on few rows: in float64, all rows would need more memory than a run."""
    precision = next(iter(every.values())).precision
    operands = sample_operands(_FEW_ROWS, _DIM, PRECISIONS[precision])
    x, weight, grad = (operand.double() for operand in operands)
    exact = [x @ weight.T + weight[0], grad @ weight, grad.T @ x]
    return [name for name, products in every.items() if _is_sound(products, operands, exact)]


def _is_sound(products: Products, operands: tuple[Tensor, Tensor, Tensor], exact: list[Tensor]) -> bool:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(max(2, threads))
        found = run_products(products, *operands)
        torch.set_num_threads(1)
        again = run_products(products, *operands)
    except (RuntimeError, AttributeError):  # not in this build of torch, or not for this processor
        return False
    finally:
        torch.set_num_threads(threads)
    most_error = _MOST_ERROR[products.precision]
    return all(
        torch.equal(first, second) and float((first - truth).abs().max() / truth.abs().max()) <= most_error
        for first, second, truth in zip(found, again, exact, strict=True)
    )


def _processor() -> str:
    """Return the processor's model name from /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [facts[name] for name in ("model name", "cpu family", "model", "stepping") if name in facts]
    return " ".join(parts) or platform.machine()


def _read_cache(name: str, key: str) -> MatmulChoice | None:
    stored = read_machine_cache(name)
    try:
        seconds = {str(backend): float(value) for backend, value in stored["seconds"].items()}
        choice = MatmulChoice(str(stored["backend"]), seconds)
        is_whole = stored["key"] == key and choice.backend in seconds and seconds.keys() <= BACKENDS.keys()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return choice if is_whole else None
