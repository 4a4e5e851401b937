"""Every tutorial runs from its first block to its last, in an empty folder, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
# Those that run; the others are about graphs or machines that a test does not have.
RUN = ["tables", "knowledge-graph", "own-model"]
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
