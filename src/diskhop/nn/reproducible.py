"""Repeatable arithmetic: torch's threads and deterministic kernels."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

# Memory of cuBLAS with which its products repeat themselves, in torch's words.
_CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
# Torch locks a generator while it makes a tensor of its state. If Python changes threads then, one that asks for that
# generator too waits for the lock without letting Python go on, and both wait for ever.
_GENERATORS = threading.Lock()


@contextmanager
def reproducible(threads: int, device: torch.device | None = None) -> Iterator[None]:
    """Run torch with this many threads, deterministic kernels and separate generators; restore all of it on exit.

    device: where it computes, besides the CPU; a GPU is then torch's current one. Operations that have no deterministic
        kernel there warn.
    """
    on_gpu = device is not None and device.type == "cuda"
    if on_gpu:
        # Read when torch first multiplies there; it stays.
        for name, value in _CUBLAS.items():
            os.environ.setdefault(name, value)
    mode = torch.get_deterministic_debug_mode()
    fills_memory = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    # torch.use_deterministic_algorithms does the same, but imports torch's compiler: seconds, and 100 MB of memory.
    torch.set_deterministic_debug_mode("warn" if on_gpu else "error")
    # Filling every new tensor first costs as much as the arithmetic, and nothing here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        current = torch.cuda.device(device) if on_gpu else nullcontext()
        with torch_threads(threads), current, separate_generators(device if on_gpu else None):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]


@contextmanager
def separate_generators(device: torch.device | None = None) -> Iterator[None]:
    """Restore the states of torch's generators of the CPU and of a GPU on exit."""
    forked = torch.random.fork_rng(devices=[] if device is None else [device])
    with _GENERATORS:
        forked.__enter__()
    try:
        yield
    finally:
        with _GENERATORS:
            forked.__exit__(None, None, None)


def seed_torch(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's generators of the CPU and of a device.

    torch.manual_seed() does the same for every kind of device, and formats the call stack for each that is not there:
    .2 to .6 ms, for each batch.
    """
    with _GENERATORS:
        torch.default_generator.manual_seed(seed)
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run torch with this many threads, here and in threads that start meanwhile."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
