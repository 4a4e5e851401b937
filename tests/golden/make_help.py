"""Writes the snapshots of the help: `python -m tests.golden.make_help`, 100 columns wide and without colour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "help"
_WIDTH = "100"
# One process for all: most of the time a command takes to print its help is Python's start.
_PROGRAM = """
from diskhop.cli import run
from diskhop.cli.commands import PANEL_OF
for words in ([], *([name] for name in PANEL_OF)):
    run([*words, "--help"])
    print(chr(12) + "".join(words))
"""


def render_help() -> dict[str, str]:
    """The help of diskhop and of each command, by the name of its snapshot."""
    plain = {"TERMINAL_WIDTH": _WIDTH, "COLUMNS": _WIDTH, "NO_COLOR": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PY_COLORS")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**environment, **plain, "PYTHONIOENCODING": "utf-8"},
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    pages: dict[str, str] = {}
    lines: list[str] = []
    for line in done.stdout.split("\n"):
        if line.startswith(chr(12)):
            pages[line[1:] or "diskhop"] = "\n".join(lines).strip("\n") + "\n"
            lines = []
        else:
            lines.append(line.rstrip())
    return pages


if __name__ == "__main__":
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, page in render_help().items():
        (FOLDER / f"{name}.txt").write_text(page, encoding="utf-8")
