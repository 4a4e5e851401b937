"""Which device is taken, and what is said where CUDA cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from diskhop.errors import ConfigError
from diskhop.nn.devices import ChosenDevice, CudaState, choose_device, read_cuda

TWO = CudaState(torch_version="2.13.0", build="12.9", num_devices=2)
NO_BUILD = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
OLD_DRIVER = CudaState(
    torch_version="2.13.0", build="12.9", num_devices=0, failure="The NVIDIA driver on your system is too old"
)
NO_GPU = CudaState(torch_version="2.13.0", build="12.9", num_devices=0, failure="No CUDA GPUs are available")


@pytest.mark.parametrize(
    ("wanted", "cuda", "chosen"),
    [
        ("cpu", TWO, ChosenDevice("cpu", "requested")),
        ("cuda", TWO, ChosenDevice("cuda:0", "requested")),
        ("cuda:1", TWO, ChosenDevice("cuda:1", "requested")),
        ("auto", TWO, ChosenDevice("cuda:0", "the first of 2")),
        ("auto", NO_BUILD, ChosenDevice("cpu", "torch 2.13.0+cpu is a build without CUDA")),
        ("auto", NO_GPU, ChosenDevice("cpu", "CUDA 12.9 does not start: No CUDA GPUs are available")),
    ],
)
def test_a_device_is_chosen_with_its_reason(wanted: str, cuda: CudaState, chosen: ChosenDevice) -> None:
    assert choose_device(wanted, cuda) == chosen


@pytest.mark.parametrize(
    ("wanted", "cuda", "message"),
    [
        ("gpu", TWO, "--device must be auto, cpu, cuda or cuda:N, got 'gpu'; for example --device cuda:0"),
        ("cuda:", TWO, "--device must be auto, cpu, cuda or cuda:N, got 'cuda:'; for example --device cuda:0"),
        ("cuda:2", TWO, "--device cuda:2: GPUs are numbered 0 to 1 here; use --device cuda:1"),
        (
            "cuda",
            NO_BUILD,
            "--device cuda: torch 2.13.0+cpu is a build without CUDA; install a build of PyTorch for CUDA "
            "(pip install --force-reinstall torch), or use --device cpu",
        ),
        (
            "cuda:0",
            OLD_DRIVER,
            "--device cuda:0: CUDA 12.9 does not start: The NVIDIA driver on your system is too old; install a newer "
            "NVIDIA driver, or use --device cpu",
        ),
        (
            "cuda",
            NO_GPU,
            "--device cuda: CUDA 12.9 does not start: No CUDA GPUs are available; check that nvidia-smi lists the GPU "
            "and that CUDA_VISIBLE_DEVICES does not hide it, or use --device cpu",
        ),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line_with_what_to_do(wanted: str, cuda: CudaState, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        choose_device(wanted, cuda)
    assert raised.value.lines == (message,)


def test_errors_of_loaders_spell_arguments() -> None:
    with pytest.raises(ConfigError, match=r"device='cuda:2': GPUs .* use device='cuda:1'"):
        choose_device("cuda:2", TWO, "device")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this build of torch has CUDA")
def test_a_build_without_cuda_says_so() -> None:
    assert read_cuda() == CudaState(torch_version=torch.__version__, build="", num_devices=0)


def test_the_first_line_of_cudas_message_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nPlease update it.")

    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.cuda, "init", fail)
    assert read_cuda() == CudaState(
        torch_version=torch.__version__,
        build="12.9",
        num_devices=0,
        failure="The NVIDIA driver on your system is too old",
    )


def test_what_runs_on_devices_is_imported_without_cuda_and_without_triton() -> None:
    code = """
import importlib, pkgutil, sys
import diskhop.nn.kernels as kernels
names = [f"{kernels.__name__}.{module.name}" for module in pkgutil.iter_modules(kernels.__path__)]
names += ["diskhop.nn.devices", "diskhop.pipeline.transfer", "diskhop.loaders.destination"]
names += ["diskhop.loaders.hop_delivery", "diskhop.runs.devices", "diskhop.runs.nodes.delivery"]
for name in names:
    if ".triton_" not in name:
        sys.modules["triton"] = None
        importlib.import_module(name)
del sys.modules["triton"]
for name in names:
    importlib.import_module(name)
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
