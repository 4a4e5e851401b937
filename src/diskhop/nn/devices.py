"""The device that a request means, and every reason why CUDA cannot be used, in one line with what to do."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import torch

from diskhop.errors import ConfigError

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
_WANTED = re.compile(r"cuda(?::(\d{1,4}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaState:
    """State of CUDA on this machine, by torch.

    torch_version: version of torch.
    build: version of CUDA that torch was built for; '' for a build without CUDA.
    num_devices: GPUs that torch can use.
    failure: CUDA's message where it did not start; '' where it did.
    current: the GPU that 'cuda' means, for torch too: 0, or what torch.cuda.set_device() was given.
    """

    torch_version: str
    build: str
    num_devices: int
    failure: str = ""
    current: int = 0


class ChosenDevice(NamedTuple):
    """A device, and why it was chosen.

    name: as torch.device() takes it.
    reason: one line.
    """

    name: str
    reason: str


def read_cuda() -> CudaState:
    """Start CUDA, if torch has it, and return how that went."""
    version, build = str(torch.__version__), torch.version.cuda or ""
    if not build:
        return CudaState(torch_version=version, build="", num_devices=0)
    with warnings.catch_warnings():
        # What they say is in the error, too.
        warnings.simplefilter("ignore")
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            return CudaState(
                torch_version=version,
                build=build,
                num_devices=torch.cuda.device_count(),
                current=torch.cuda.current_device(),
            )
        except (AssertionError, RuntimeError) as error:
            failure = str(error).strip().split("\n")[0]
            return CudaState(torch_version=version, build=build, num_devices=0, failure=failure or repr(error))


def choose_device(wanted: str, cuda: CudaState, label: str = "--device") -> ChosenDevice:
    """Return the device that 'auto', 'cpu', 'cuda' or 'cuda:N' means on a machine.

    label: what messages call the option. Raises ConfigError for other texts, and for a GPU that cannot be used.
    """
    match = _WANTED.fullmatch(wanted)
    if wanted not in (AUTO, CPU) and match is None:
        example = _spelled(label, "cuda:0")
        raise ConfigError(f"{label} must be auto, cpu, cuda or cuda:N, got {wanted!r}; for example {example}")
    if wanted == CPU:
        return ChosenDevice(CPU, "requested")
    problem = _problem_of(cuda)
    if match is None:
        if problem is None:
            which = "the current one" if cuda.current else "the first"
            return ChosenDevice(f"cuda:{cuda.current}", f"{which} of {cuda.num_devices}")
        return ChosenDevice(CPU, problem.what)
    if problem is not None:
        asked, instead = _spelled(label, wanted), _spelled(label, CPU)
        raise ConfigError(f"{asked}: {problem.what}; {problem.next_step}, or use {instead}")
    index = cuda.current if match[1] is None else int(match[1])
    if index >= cuda.num_devices:
        last = cuda.num_devices - 1
        raise ConfigError(
            f"{_spelled(label, wanted)}: GPUs are numbered 0 to {last} here; use {_spelled(label, f'cuda:{last}')}"
        )
    return ChosenDevice(f"cuda:{index}", "requested")


def cuda_next_step(cuda: CudaState) -> str:
    """Return what to do where no GPU can be used, in one line; '' where one can."""
    problem = _problem_of(cuda)
    return "" if problem is None else problem.next_step


class _Problem(NamedTuple):
    what: str
    next_step: str


def _spelled(label: str, value: str) -> str:
    return f"{label} {value}" if label.startswith("--") else f"{label}='{value}'"


def _problem_of(cuda: CudaState) -> _Problem | None:
    """Return why no GPU can be used; None if one can."""
    if not cuda.build:
        what = f"torch {cuda.torch_version} is a build without CUDA"
        return _Problem(what, "install a build of PyTorch for CUDA (pip install --force-reinstall torch)")
    if cuda.num_devices > 0:
        return None
    what = f"CUDA {cuda.build} does not start: {cuda.failure or 'torch finds no GPU'}"
    if "driver" in cuda.failure.lower():
        return _Problem(what, "install a newer NVIDIA driver")
    return _Problem(what, "check that nvidia-smi lists the GPU and that CUDA_VISIBLE_DEVICES does not hide it")
