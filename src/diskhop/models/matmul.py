"""Which library multiplies matrices fastest here: measured once per machine, then remembered.

A backend counts only if it is of the precision that it is asked for (a library may quietly use a shorter format), which
float64 tells, and if it repeats itself to the last bit.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop.io.machine_cache import read_machine_cache, write_machine_cache
from diskhop.io.memory import default_threads
from diskhop.models.backends import BACKENDS
from diskhop.models.products import PRECISIONS, Products, run_products, sample_operands

_CACHE_NAME = "products.json"
_CACHE_FORMAT = 4
# A layer of usual width over the nodes of a batch: more rows than the caches hold.
_ROWS, _DIM = 32768, 256
_FEW_ROWS = 4097
_NUM_PASSES = 8
# Of the largest value: rounding gives float32 1e-6, formats that are shortened on the way 1e-4 and more.
_MOST_ERROR = {"float32": 1e-5, "bfloat16": 2e-2}


class MatmulChoice(NamedTuple):
    """backend: the fastest that is sound. seconds: of the three products of a layer, for each that is."""

    backend: str
    seconds: dict[str, float]

    @property
    def gflops(self) -> dict[str, float]:
        """10^9 floating-point operations a second."""
        return {name: 6e-9 * _ROWS * _DIM**2 / seconds for name, seconds in self.seconds.items()}


def choose_matmul(precision: str, threads: int) -> MatmulChoice:
    """The fastest backend for a precision with so many threads of torch: remembered, or measured in a few seconds.

    More threads than cores are measured as many as there are cores: hundreds would take minutes to wait for each other.
    """
    threads = min(threads, default_threads())
    key = "|".join((torch.__version__, _processor(), f"{threads} threads", precision))
    known = _read_cache()
    if key not in known:
        known[key] = _measure(precision, threads)
        write_machine_cache(_CACHE_NAME, {"format": _CACHE_FORMAT, "seconds": known})
    seconds = known[key]
    return MatmulChoice(min(seconds, key=seconds.__getitem__), seconds)


def fastest_products(precision: str = "float32") -> Products:
    """What to give diskhop's layers in a loop of one's own: the fastest backend with torch's present threads."""
    return Products(choose_matmul(precision, torch.get_num_threads()).backend, precision)


def bfloat16_ratio(threads: int) -> float:
    """Seconds of the fastest products in bfloat16, in those of float32: above 1 on processors without bfloat16."""
    short, full = (choose_matmul(precision, threads) for precision in ("bfloat16", "float32"))
    return short.seconds[short.backend] / full.seconds[full.backend]


def _measure(precision: str, threads: int) -> dict[str, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # They share one pool: each its own, and a run's first peak would be theirs.
        one = Products(precision=precision)
        every = {name: replace(one, backend=name) for name in BACKENDS}
        sound = _sound_ones(every)
        operands = sample_operands(_ROWS, _DIM, PRECISIONS[precision])
        passes: dict[str, list[float]] = {name: [] for name in sound or {"blas"}}
        # In turns, the fastest of each: what else the machine does only adds.
        for _ in range(_NUM_PASSES):
            for name, seconds in passes.items():
                started = time.perf_counter()
                run_products(every[name], *operands)
                seconds.append(time.perf_counter() - started)
        return {name: min(seconds) for name, seconds in passes.items()}
    finally:
        torch.set_num_threads(before)


def _sound_ones(every: Mapping[str, Products]) -> list[str]:
    """Told by a few rows: in float64 all would take more memory than a run."""
    precision = next(iter(every.values())).precision
    operands = sample_operands(_FEW_ROWS, _DIM, PRECISIONS[precision])
    x, weight, grad = (operand.double() for operand in operands)
    exact = [x @ weight.T + weight[0], grad @ weight, grad.T @ x]
    return [name for name, products in every.items() if _is_sound(products, operands, exact)]


def _is_sound(products: Products, operands: tuple[Tensor, Tensor, Tensor], exact: list[Tensor]) -> bool:
    try:
        found, again = run_products(products, *operands), run_products(products, *operands)
    except (RuntimeError, AttributeError):  # not in this build of torch, or not for this processor
        return False
    most_error = _MOST_ERROR[products.precision]
    return all(
        torch.equal(first, second) and float((first - truth).abs().max() / truth.abs().max()) <= most_error
        for first, second, truth in zip(found, again, exact, strict=True)
    )


def _processor() -> str:
    """The model's name, as /proc/cpuinfo tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [facts[name] for name in ("model name", "cpu family", "model", "stepping") if name in facts]
    return " ".join(parts) or platform.machine()


def _read_cache() -> dict[str, dict[str, float]]:
    stored = read_machine_cache(_CACHE_NAME)
    try:
        if stored["format"] != _CACHE_FORMAT:
            return {}
        return {
            str(key): {name: float(seconds[name]) for name in BACKENDS if name in seconds}
            for key, seconds in stored["seconds"].items()
            if set(seconds) & set(BACKENDS)
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
