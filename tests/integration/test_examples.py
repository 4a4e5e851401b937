"""The examples of other tools run on a small graph, each under 60 lines."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runs import small_graph

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "demo")


def run_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, **graph: Any
) -> dict[str, Any]:
    """Run an example as a script, in a folder of its own. Returns its names."""
    path = tmp_path / "graph"
    if not path.exists():
        small_graph(path, **graph)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", str(path), *arguments])
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_short_and_listed(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60
    assert f"examples/{name}.py" in (EXAMPLES.parent / "docs" / "guides" / "other-tools.md").read_text()


@pytest.mark.slow
def test_explain_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_example("explain_nodes", tmp_path, monkeypatch)
    explanation, batch = names["result"], names["batch"]
    assert explanation.node_mask.shape == batch.x.shape
    assert explanation.edge_mask.shape == (batch.num_edges,)
    # Edges that the model reads for the node are the ones that matter.
    assert explanation.edge_mask.max() > 0.3


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "packages"), [("accelerate_nodes", "accelerate"), ("lightning_nodes", "lightning")])
def test_training_within_another_library(
    name: str, packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(packages, reason=f"pip install {packages}")
    assert run_example(name, tmp_path, monkeypatch)["result"] > 0.7


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_pyg_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("pyg_models", tmp_path, monkeypatch)["result"]
    assert set(result) == {"GAT", "GCN", "GraphSAGE"}
    assert min(result.values()) > 0.6


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_compile_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_example("compile_model", tmp_path, monkeypatch)
    assert names["losses"][-1] < names["losses"][0]
    assert names["result"] < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_export_model(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's logits are those of the model that diskhop trained, on a batch of other sizes."""
    if form == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason="pip install onnx onnxscript onnxruntime")
    names = run_example("export_model", tmp_path, monkeypatch, form)
    assert len(names["first"].x) != len(names["last"].x)
    assert names["first"].num_edges != names["last"].num_edges
    assert names["result"] < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_optuna_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna", reason="pip install optuna")
    names = run_example("optuna_study", tmp_path, monkeypatch, "4")
    assert len(names["study"].trials) == 4
    assert names["result"] == max(trial.value for trial in names["study"].trials if trial.value is not None)
