"""Folders that are gone after the tests, and a small disk to fill up."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import EXAMPLES_IN_HOUSE, SHARE_IN_HOUSE
from tests.fast_cases import mark_slow_cases
from tests.pairwise import mark_beyond_pairs

# Several tests at a time have two threads each, on two cores: one that waits must not spin. Torch reads this at import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _interpret_kernels() -> None:
    """Run Triton's kernels on the CPU where there is no GPU. Triton reads the variable at import."""
    import torch  # imports no Triton, as other packages do

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


# At once: conftest.py of other folders are imported before any hook is called.
_interpret_kernels()

# Tests at a time slow each other: how long an example takes says nothing. In the house, examples are the same in every
# run, so that a change alone decides whether its tests pass; `make test-all` looks for new ones.
settings.register_profile(
    "house", deadline=None, derandomize=True, max_examples=round(SHARE_IN_HOUSE * EXAMPLES_IN_HOUSE)
)
settings.register_profile("thorough", deadline=None, max_examples=5 * EXAMPLES_IN_HOUSE)
settings.load_profile("house")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide modules and test items from the garbage collector: they stay, and it would look at them again and again."""
    gc.disable()
    found = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest leaves out what is slow."""
    mark_beyond_pairs(items)
    mark_slow_cases(items)


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove what libraries leave in the temporary folder: PyTorch Geometric writes modules there."""
    tmp_path_factory.getbasetemp()  # before: pytest keeps what failed in the usual place
    get_temp_dir()  # before: multiprocessing removes it when this process ends
    with tempfile.TemporaryDirectory(prefix="diskhop-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for large graphs that a module's tests share. They can be made again, so that failures keep none."""
    folder = tmp_path_factory.mktemp("module")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)
