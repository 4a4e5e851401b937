"""The wheel: built from the source distribution for other machines, and enough for the README's quick start."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import why_no_uring

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source distribution."""
    dest = tmp_path_factory.mktemp("dist")
    subprocess.run(["sh", "tools/make_wheel.sh", str(dest), sys.executable], check=True, cwd=ROOT)
    return dest


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of an empty environment with the wheel. Packages that it depends on are found in this one."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    own = next((folder / "lib").glob("python*")) / "site-packages"
    (own / "packages.pth").write_text(sysconfig.get_path("purelib"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder)}


def ran(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def write_arrays(path: Path) -> None:
    """Arrays as the README imports them: a graph of 2000 nodes whose features tell its 4 classes."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 4, 2000)
    x = (np.eye(4)[y] + generator.normal(size=(2000, 4))).astype(np.float32)
    train, val, test = np.split(generator.permutation(2000), [1200, 1600])
    edges = generator.integers(0, 2000, (2, 12_000))
    np.savez(path, x=x, y=y, edge_index=edges, train_idx=train, val_idx=val, test_idx=test)


def test_the_wheel_is_for_machines_with_glibc_2_28(wheel: Path) -> None:
    assert wheel.name.endswith(f"manylinux_2_28_{platform.machine()}.whl")
    names = zipfile.ZipFile(wheel).namelist()
    # Nothing was copied into it: liburing and libstdc++ are inside the module.
    (library,) = [name for name in names if ".so" in name]
    assert library.startswith("diskhop/_native.")
    assert [name for name in names if not name.startswith(("diskhop/", "diskhop-"))] == []
    assert any(name.endswith("THIRD-PARTY-LICENSES") for name in names)


def test_the_wheel_has_all_files_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "diskhop"
    expected = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".so", ".pyc")
    }
    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_source_distribution_has_what_a_build_and_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"CMakeLists.txt", "LICENSE", "native/portable/old_glibc.cpp", "tools/make_wheel.sh", "tests/conftest.py"}
    assert wanted <= names
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []


def test_the_readme_runs_in_an_empty_environment(environment: dict[str, str], tmp_path: Path) -> None:
    where = ran(["python", "-c", "import diskhop; print(diskhop.__file__)"], tmp_path, environment).strip()
    assert where.startswith(environment["VIRTUAL_ENV"])
    report = json.loads(ran(["diskhop", "doctor", "--json"], tmp_path, environment))
    assert report["engine"] == ("threads" if why_no_uring() else "uring")

    write_arrays(tmp_path / "my-arrays.npz")
    ran(["diskhop", "import", "my-arrays.npz", "my-graph"], tmp_path, environment)
    (python,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    ran(["python", "-c", f"model = lambda x, edge_index: x\n{python}"], tmp_path, environment)
    (script,) = re.findall(r"^```bash\n(source .*?)^```", README, re.M | re.S)
    commands = script.partition("\n")[2].replace("diskhop train", "diskhop train --epochs 2")
    ran(["bash", "-euc", commands], tmp_path, environment)
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "predictions" / "_SUCCESS").exists()
    assert json.loads((tmp_path / "links" / "result.json").read_text())["kind"] == "link"
