"""Every tutorial runs from its first block to its last, in an empty folder, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import extensions.reference as reference
from tests.scripts import run_script

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = DOCS / "tutorials"
# All but papers100m, whose graph a test does not have.
RUN = ["tables", "knowledge-graph", "own-model", "nightly", "several-processes"]
BLOCK = re.compile(r"^```(python|bash|text)\n(.*?)^```", re.M | re.S)


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines that a page shows and the output does not have after the line before; blanks and `...` stand for any."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    missing = []
    for line in shown.splitlines():
        pattern = re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*")
        if not any(re.fullmatch(pattern, each) for each in lines):
            missing.append(line)
    return missing


@pytest.mark.fast("tables")
@pytest.mark.parametrize("name", RUN)
def test_a_tutorial_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = TUTORIALS / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            capsys.readouterr()
            exec(compile(block, str(page), "exec"), names)
            printed = capsys.readouterr().out
        elif language == "bash":
            ended = run_script(["bash", "-euc", block], capsys)
            printed = ended.output
            assert ended.returncode == 0, block
        else:
            assert missing_lines(block, printed) == [], printed


def test_lines_that_were_not_printed_are_found() -> None:
    assert missing_lines("a 1\nb ... 3\n", "x\na   1\nb 2 3\n") == []
    assert missing_lines("b\na\n", "a\nb\n") == ["a"]


def commands_in(page: Path) -> list[list[str]]:
    """Words of every command `diskhop` that the blocks of a page for a shell have."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    shell = "".join(block for language, block in blocks if language in ("", "bash"))
    shell = re.sub(r"\$\([^)]*\)|\$\{?\w+\}?", "1", shell)  # variables, some of which are numbers
    lines = [line.split(" # ")[0] for line in shell.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"&&|;|\|\|?", line)]
    commands = [re.sub(r"\s&?\d?>.*", "", part) for part in parts if part.startswith("diskhop ")]
    return [shlex.split(each)[1:] for each in commands]


def test_commands_of_tutorials_and_guides_have_the_options_that_there_are() -> None:
    """Commands that the shell's parser refuses, as for a misspelt option, are found without running them."""
    commands = reference.commands()
    refused, count = [], 0
    for page in [*TUTORIALS.glob("*.md"), *(DOCS / "guides").glob("*.md")]:
        for name, *words in commands_in(page):
            count += 1
            try:
                commands[name].make_context(name, words)
            except Exception as error:
                refused.append(f"{page.name}: {name} {' '.join(words)}: {error!r}")
    assert count > 100
    assert not refused, "\n".join(refused)
