"""Every kernel of Triton compiles for an H100, also where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diskhop.nn import kernels


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kernel_compiles_for_an_h100(tmp_path: Path) -> None:
    # In a process of its own: this one has Triton's interpreter.
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiled_kernels"],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    sources = "".join(each.read_text() for each in Path(kernels.__path__[0]).glob("triton_*.py"))
    launched = set(re.findall(r"^ +(_\w+)\[(?:grid|\(|of_)", sources, re.MULTILINE))
    assert launched
    assert set(done.stdout.split()) == launched
