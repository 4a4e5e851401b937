"""Advice of `diskhop doctor` where something is missing, and runs without it."""

from __future__ import annotations

import errno
import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import diskhop.io.engine as engine_module
from diskhop._native import why_no_uring
from diskhop.disk.probe import ProbeLimits
from diskhop.disk.report import report_disk
from diskhop.io.engine import uring_next_step
from diskhop.nn.devices import CudaState, cuda_next_step
from tests.runs import small_graph

ROOT = Path(__file__).parents[2]
FORBIDDEN, OLD_KERNEL = errno.EPERM, errno.ENOSYS
needs_uring = pytest.mark.skipif(bool(why_no_uring()), reason=why_no_uring() or "io_uring works")


def ran_without_uring(error_number: int, *command: str) -> subprocess.CompletedProcess[str]:
    filtered = [sys.executable, "-m", "tests.seccomp", str(error_number), sys.executable, *command]
    return subprocess.run(filtered, capture_output=True, text=True, check=False, cwd=ROOT)


@needs_uring
@pytest.mark.parametrize(
    ("error_number", "reason", "next_step"),
    [
        (
            FORBIDDEN,
            "the kernel forbids it (seccomp or kernel.io_uring_disabled)",
            "docker run --security-opt seccomp=",
        ),
        (OLD_KERNEL, "the kernel does not know it", f"needs Linux 5.6 or newer, this is {platform.release()}"),
    ],
)
def test_without_io_uring_the_disk_is_read_by_threads_and_the_report_says_what_to_do(
    error_number: int, reason: str, next_step: str, tmp_path: Path
) -> None:
    program = (
        "import json, sys; from pathlib import Path; from diskhop.disk.probe import ProbeLimits; "
        "from diskhop.disk.report import report_disk; limits = ProbeLimits(file_bytes=1 << 20, num_passes=1); "
        "print(json.dumps(dict(report_disk(Path(sys.argv[1]), limits=limits).to_rows())))"
    )
    done = ran_without_uring(error_number, "-c", program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows["engine"] == f"threads (io_uring is not available: {reason})"
    assert next_step in rows["  to do"]
    assert rows["  to do"].endswith("; until then, runs read by threads")


def test_a_file_system_without_direct_io_comes_with_what_to_do(tmp_path: Path) -> None:
    limits = ProbeLimits(file_bytes=1 << 20, num_passes=1)
    report = report_disk(tmp_path, engine="threads", limits=limits)
    assert [name for name, _ in replace(report, direct=True).to_rows() if name == "  to do"] == []
    rows = replace(report, direct=False).to_rows()
    (text,) = [text for name, text in rows if name == "  to do"]
    assert text.startswith("put datasets on another disk")


def test_every_obstacle_of_the_core_has_a_next_step_of_its_own() -> None:
    source = (ROOT / "native" / "src" / "io" / "engine_uring.cpp").read_text()
    known = [words for words in engine_module._NEXT_STEPS if words]
    assert [words for words in known if f'return "{words}' not in source] == []
    assert "apt-get install liburing-dev" in uring_next_step("built without liburing")
    assert "ulimit -l" in uring_next_step("Cannot allocate memory")
    assert uring_next_step("") == ""


def test_a_build_of_torch_without_cuda_comes_with_what_to_install() -> None:
    without = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
    assert "pip install --force-reinstall torch" in cuda_next_step(without)
    assert cuda_next_step(CudaState(torch_version="2.13.0", build="12.9", num_devices=1)) == ""


@pytest.mark.slow
@needs_uring
def test_runs_without_io_uring_train_the_same_model_and_doctor_says_so(tmp_path: Path) -> None:
    small_graph(tmp_path / "graph", num_nodes=2000, dim=16, num_classes=4, num_edges=12_000, train_fraction=0.3, seed=0)
    graph, options = str(tmp_path / "graph"), ["--memory", "100MB", "--store", "direct", "--epochs", "2"]
    usual, filtered = tmp_path / "usual", tmp_path / "filtered"
    train = ["-m", "diskhop", "train", graph, *options, "--out"]
    subprocess.run([sys.executable, *train, str(usual)], check=True, capture_output=True)
    done = ran_without_uring(FORBIDDEN, *train, str(filtered))
    assert done.returncode == 0, done.stderr
    engines = [json.loads((run / "result.json").read_text())["plan"]["engine"] for run in (usual, filtered)]
    assert engines == ["uring", "threads"]
    assert (usual / "model.safetensors").read_bytes() == (filtered / "model.safetensors").read_bytes()
    report = ran_without_uring(FORBIDDEN, "-m", "diskhop", "doctor", str(tmp_path), "--json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["engine"] == "threads"
    asked = ran_without_uring(FORBIDDEN, *train, str(tmp_path / "asked"), "--engine", "uring")
    assert asked.returncode == 2
    (line,) = [line for line in asked.stderr.splitlines() if not line.startswith("Waiting for memory:")]
    assert "use 'threads' or 'auto'" in line
