"""--keep: checkpoints of earlier epochs, and runs that resume from one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from diskhop.runs.checkpoint import load_state
from diskhop.runs.start import train
from tests.runs import OPTIONS, assert_same_run, small_graph


def kept(out: Path) -> dict[str, int]:
    """The kept checkpoints, with the epochs that each has done."""
    return {path.name: load_state(path).epoch for path in sorted(out.glob("checkpoint*.safetensors"))}


def test_a_run_resumes_from_a_kept_checkpoint_to_the_same_bytes(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph")
    options = {**OPTIONS, "epochs": 4}
    train(graph, out=tmp_path / "whole", **options)
    out = tmp_path / "run"
    train(graph, out=out, keep=3, **options)
    assert kept(out) == {
        f"checkpoint{end}.safetensors": done for end, done in [("-2", 2), ("-3", 3), ("-4", 4), ("", 4)]
    }

    shutil.copy(out / "checkpoint-2.safetensors", out / "checkpoint.safetensors")
    (out / "model.safetensors").unlink()
    # As if the run had taken another way after the second epoch: later checkpoints are of that way.
    (out / "checkpoint-4.safetensors").rename(out / "checkpoint-9.safetensors")
    resumed = train(graph, out=out, resume=True, keep=2)
    assert [record["epoch"] for record in resumed.result["epochs"]] == [0, 1, 2, 3]
    assert_same_run(tmp_path / "whole", out)
    assert kept(out) == {f"checkpoint{end}.safetensors": done for end, done in [("-3", 3), ("-4", 4), ("", 4)]}

    shutil.copy(out / "checkpoint-3.safetensors", out / "checkpoint.safetensors")
    train(graph, out=out, resume=True)
