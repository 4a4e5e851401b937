"""The page that shows every command once runs from its first line to its last."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import extensions.reference as reference


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_runs_in_the_order_of_the_page(tmp_path: Path) -> None:
    blocks = reference.EVERY_COMMAND.read_text().split("```bash\n")[1:]
    script = "".join(block.partition("```")[0] for block in blocks)
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shared-graph" / "manifest.json").exists()
