"""The demo, small: what it prints is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_trains_from_disk_and_beats_the_features_alone(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "demo.py")
    command = [sys.executable, script, "--folder", str(tmp_path / "demo"), "--nodes", "600000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "demo" / "run-sage" / "result.json").read_text())
    epochs = result["epochs"]
    requested = sum(epoch["rows_requested"] for epoch in epochs)
    assert requested > 0
    assert sum(epoch["rows_hit"] for epoch in epochs) == 0
    assert sum(epoch["bytes_read"] for epoch in epochs) >= requested * 128 * 4
    assert result["plan"]["store"] == "direct"
    assert "features alone allow" in done.stdout
    assert f"{result['test']['accuracy']:.3f}" in done.stdout
    hops = json.loads((tmp_path / "demo" / "run-sign" / "result.json").read_text())
    assert "SIGN, hops made before" in done.stdout
    assert f"{hops['test']['accuracy']:.3f}" in done.stdout
    assert hops["test"]["accuracy"] > result["test"]["accuracy"] - 0.05
    assert sum(step["bytes_written"] for step in hops["preparation"]) > 0
    assert all(
        0 < by_hops["bytes_read"] < sampled["bytes_read"]
        for by_hops, sampled in zip(hops["epochs"], epochs, strict=True)
    )
