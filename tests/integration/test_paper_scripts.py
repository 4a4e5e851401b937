"""Every figure of every script that compares us with a paper runs on tiny graphs, and nothing is refused.

The scripts run whole, with their options, tables and JSON. Only their quick sizes are smaller, and this process does
what they run in processes and control groups of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pytest

import diskgnn_systems
import ginex_systems
import gnndrive_systems
import hop_runs
import paper_diskgnn
import paper_ginex
import paper_gnndrive
import paper_legend
import paper_prepropagation
import paper_results
import papers
import papers_page
import sampler_accuracy
from cgroups import Limited
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel, assumed_disk_model
from diskhop.plans import SampledPlan
from diskhop.stores.stores import STORES
from paper_results import Finding, Plot, Results, keep_results, read_results
from turns import Turn

_NUM_NODES, _HIDDEN = 2000, 8


def _run_here(command: list[str], _limit_bytes: int | None, _timeout_seconds: float) -> Limited:
    """Run a script of cgroups.run_limited() in this process, which keeps none of the stores that it registers."""
    _, script, *arguments = command
    module = importlib.import_module(Path(script).stem)
    output = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(STORES),
        contextlib.redirect_stdout(output),
    ):
        patch.setattr(sys, "argv", [script, *arguments])
        module.main()
    return Limited(0, output.getvalue(), "", None)


def _take_turn_here(work: Callable[..., None], *arguments: Any) -> Turn:
    stages: dict[str, float] = {}
    work(*arguments, stages)
    return Turn(seconds=1.0, peak_rss_bytes=1, bytes_read=0, bytes_written=0, stages=stages)


def _measure_nothing(_dataset: Dataset) -> DiskModel:
    return assumed_disk_model()


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run a script's main() with --quick; returns its exit code and output."""
    monkeypatch.setattr(papers, "run_limited", _run_here)
    on_end = signal.getsignal(signal.SIGTERM)  # which scripts change

    def run(script: ModuleType, *options: str) -> tuple[int, str]:
        if hasattr(script, "measure_device"):
            monkeypatch.setattr(script, "measure_device", _measure_nothing)
        if hasattr(script, "why_no_limit"):
            monkeypatch.setattr(script, "why_no_limit", lambda: "a test")
        monkeypatch.setattr(sys, "argv", [script.__name__, "--quick", *options])
        return script.main(), capsys.readouterr().out

    yield run
    signal.signal(signal.SIGTERM, on_end)


@pytest.fixture(scope="module")
def folder(module_folder: Path) -> Path:
    """Graphs, which the figures of a script share."""
    return module_folder


def _require_findings(code: int, output: str) -> dict[str, Any]:
    """All figures that the script found are numbers."""
    document: dict[str, Any] = json.loads(output)
    assert code == 0
    assert [each for each in document["findings"] if each["verdict"] == "failed"] == []
    for each in document["findings"]:
        assert any(each["figure"] in figures for figures in papers_page.FIGURES[document["benchmark"]]), each
    return document


def _require_results(code: int, output: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(output)
    results = [result for run in document["runs"] for result in run.get("turns", [run.get("result")])]
    assert results
    assert not [result["failed"] for result in results if "failed" in result]
    return _require_findings(code, output)


def _make_tiny_ginex(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = paper_ginex.QUICK._replace(
        graph=replace(ginex_systems.GRAPH, num_nodes=20_000, num_edges=200_000, dim=256),
        dim=128,
        batch_size=2,
        memory_fraction=1.5,
        num_batches=dict.fromkeys(paper_ginex.QUICK.num_batches, ginex_systems.WARM_UP + 8),
        dims=(128, 256),
        memories=(0.9, 1.0),
        batch_sizes=(1, 2),
        shares=(1.0, 0.5),
    )
    monkeypatch.setattr(paper_ginex, "QUICK", tiny)


def _make_tiny_gnndrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnndrive_systems, "HIDDEN", _HIDDEN)
    tiny = paper_gnndrive.QUICK._replace(
        memory_fraction=20,
        num_batches=dict.fromkeys(paper_gnndrive.QUICK.num_batches, 4),
        converge_epochs=1,
        swept_dims=(64, 128),
        depths=(1, 8),
        read_seconds=0.001,
        file_bytes=64 << 20,
        block_model=_NUM_NODES,
    )
    monkeypatch.setattr(paper_gnndrive, "QUICK", tiny)


def _make_tiny_diskgnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskgnn_systems, "HIDDEN", _HIDDEN)
    tiny = paper_diskgnn.QUICK._replace(
        num_nodes=_NUM_NODES, nodes_a_seed=1000, num_batches=10, trace_nodes=2000, fractions=(0.1,)
    )
    monkeypatch.setattr(paper_diskgnn, "QUICK", tiny)
    monkeypatch.setitem(sampler_accuracy.STEPS, paper_diskgnn.ACCURACY_GRAPH, (2, 1))


def _make_source(folder: Path) -> Path:
    """Make a small graph in place of the real one, once, and return the folder of graphs."""
    graph = folder / "real" / paper_prepropagation.GRAPH
    if not graph.exists():
        graph.mkdir(parents=True)
        draws, num_nodes = np.random.default_rng(0), 500
        np.savez(
            graph / "data.npz",
            edge_index=draws.integers(0, num_nodes, (2, 3000)),
            x=draws.normal(size=(num_nodes, 8)).astype(np.float32),
            y=draws.integers(0, 4, num_nodes),
            train_idx=np.arange(0, num_nodes, 2),
            val_idx=np.arange(1, num_nodes, 4),
            test_idx=np.arange(3, num_nodes, 4),
        )
    return graph.parent


@pytest.mark.parametrize("figure", list(paper_ginex.EXPERIMENTS))
def test_ginex(run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch, figure: str) -> None:
    _make_tiny_ginex(monkeypatch)
    _require_results(*run(paper_ginex, "--json", "--dir", str(folder), "--only", figure))


@pytest.mark.parametrize("figure", list(paper_gnndrive.EXPERIMENTS))
def test_gnndrive(
    run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    _make_tiny_gnndrive(monkeypatch)
    code, output = run(paper_gnndrive, "--json", "--dir", str(folder), "--nodes", str(_NUM_NODES), "--only", figure)
    (_require_findings if figure == "appendixB" else _require_results)(code, output)


def test_gnndrive_as_published(
    run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_tiny_gnndrive(monkeypatch)
    plans: list[SampledPlan] = []
    plan_case = gnndrive_systems.plan_case

    def record(dataset: Dataset, case: gnndrive_systems.Case, device: DiskModel) -> SampledPlan:
        plans.append(plan_case(dataset, case, device))
        return plans[-1]

    monkeypatch.setattr(paper_gnndrive, "plan_case", record)
    published = ("--map-lists", "--samplers", "4", "--extractors", "4")
    code, output = run(
        paper_gnndrive, "--json", "--dir", str(folder), "--nodes", str(_NUM_NODES), "--only", "figure12", *published
    )
    _require_results(code, output)
    own = [plan for plan in plans if plan.store == "shared"]
    assert own
    for plan in own:
        assert (plan.topology, plan.sampling_threads, plan.share.most_extracting) == ("mapped", 4, 4)
        assert "topology" not in plan.reserved


@pytest.mark.parametrize("experiment", list(paper_diskgnn.EXPERIMENTS))
def test_diskgnn(
    run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    _make_tiny_diskgnn(monkeypatch)
    source = _make_source(folder)
    code, output = run(paper_diskgnn, "--json", "--dir", str(folder), "--source", str(source), "--only", experiment)
    trains = experiment not in ("figure12", "segments", "figure14", "table3")
    (_require_results if trains else _require_findings)(code, output)


def test_a_stand_in_waits_in_place_of_each_step(
    run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_tiny_ginex(monkeypatch)
    _make_tiny_gnndrive(monkeypatch)
    _make_tiny_diskgnn(monkeypatch)
    options = ("--json", "--dir", str(folder), "--trainer", "stand-in:2ms")
    ginex = _require_results(*run(paper_ginex, *options, "--only", "figure18"))
    gnndrive = _require_results(*run(paper_gnndrive, *options, "--nodes", str(_NUM_NODES), "--only", "figure12"))
    diskgnn = _require_results(*run(paper_diskgnn, *options, "--only", "table5"))
    for document in (ginex, gnndrive, diskgnn):
        assert document["trainer"] == "a stand-in of 2 ms per batch"
    assert all(result["seconds"] >= 0.002 for run in ginex["runs"] for result in run["turns"])
    assert all(run["result"]["compute_seconds"] >= 0.002 for run in gnndrive["runs"] if run["work"] == "train")
    trained = [epoch for run in diskgnn["runs"] for epoch in run["result"].get("epochs", [])]
    assert all(epoch["loss"] == 0 and epoch["compute_seconds"] >= 0.002 * epoch["batches"] for epoch in trained)


@pytest.mark.parametrize("trainer", ["stand-in", "stand-in:12", "stand-in:-1ms", "stand-in:nanms", "gpu"])
def test_other_trainers_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["paper_ginex", "--trainer", trainer])
    with pytest.raises(SystemExit, match="2"):
        paper_ginex.main()
    assert "write --trainer stand-in:12ms" in capsys.readouterr().err


def test_legend(run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = paper_legend.Scale(
        _NUM_NODES, {"TW": 4000, "FM": 2000}, 10, 1, {"TW": 1, "FM": 1}, batch_size=1000, chunk_size=100
    )
    monkeypatch.setattr(paper_legend, "QUICK", tiny)
    monkeypatch.setattr(paper_legend, "SAME_BITS_NODES", 500)
    document = _require_findings(*run(paper_legend, "--json", "--dir", str(folder), "--trainer", "stand-in:2ms"))
    assert document["trainer"] == "a stand-in of 2 ms per batch"
    (is_same,) = [each["ours"] for each in document["findings"] if "bit for bit" in each["claim"]]
    assert is_same == 1


def test_prepropagation(run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _make_source(folder)
    for module in (hop_runs, paper_prepropagation):
        monkeypatch.setattr(module, "BATCH_SIZE", 200)
    monkeypatch.setattr(paper_prepropagation, "take_turn", _take_turn_here)
    monkeypatch.setattr(paper_prepropagation, "ITEM_WORKERS", 0)
    tiny = paper_prepropagation.Scale((2,), 1, (1, 64), 1000, 1)
    monkeypatch.setattr(paper_prepropagation, "QUICK", tiny)
    code, output = run(paper_prepropagation, "--json", "--source", str(source), "--dir", str(folder))
    _require_findings(code, output)


def _keep(folder: Path, ours: float, *, is_quick: bool, date: str) -> None:
    plot = Plot("Table 6", "", "bars", "graph", "seconds", ("TW", "FM"), {"with": (1.5, ours), "without": (2.0, 1.0)})
    results = Results([Finding("Table 6", "gain", ours, 0.1, why="the disk waits")], [plot])
    with mock.patch.object(paper_results, "datetime") as clock:
        clock.now().isoformat.return_value = date
        keep_results(folder, "paper_legend", "table6", results, is_quick=is_quick, trainer="", hours=0.5)


def test_the_page_has_a_row_for_every_figure_and_draws_those_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(papers_page, "RESULTS", tmp_path)
    _keep(tmp_path, 0.2, is_quick=False, date="2026-11-26")
    page = papers_page.write_page({"paper_legend": read_results(tmp_path, "paper_legend")})
    for figures in papers_page.FIGURES.values():
        assert all(f"| {figure} |" in page for figure in figures)
    assert "| Table 6 | gain | 0.1 | 0.2 | better | the disk waits | whole |" in page
    assert "0.5 hours" in page
    assert "| Table 7 | | | | not run |" in page
    assert f"({tmp_path.name}/paper_legend-table-6.svg)" in page
    drawn = ElementTree.parse(tmp_path / "paper_legend-table-6.svg").getroot()
    boxes = [each for each in drawn.iter() if each.tag.endswith("rect") and each.get("fill") != "white"]
    bars = [each for each in boxes if each.get("height") != "10"]
    heights = [float(each.get("height", "")) for each in bars]
    assert np.allclose(np.divide(heights, heights[0]), np.divide([1.5, 0.2, 2.0, 1.0], 1.5), rtol=0.01)


def test_whole_runs_count_more_than_quick_ones_and_then_the_newest(tmp_path: Path) -> None:
    def gain() -> float:
        return float(read_results(tmp_path, "paper_legend")["Table 6"]["findings"][0]["ours"])

    _keep(tmp_path, 0.2, is_quick=True, date="2026-11-26")
    _keep(tmp_path, 0.3, is_quick=True, date="2026-11-27")
    assert gain() == 0.3
    _keep(tmp_path, 0.4, is_quick=False, date="2026-11-25")
    _keep(tmp_path, 0.5, is_quick=True, date="2026-11-28")
    assert gain() == 0.4


def test_verdicts_are_those_of_the_figures() -> None:
    def verdict(ours: float, paper: float | None, *, less_is_better: bool = False, is_trait: bool = False) -> str:
        found = Finding("Figure 1", "x", ours, paper, less_is_better=less_is_better, is_trait=is_trait)
        return found.verdict

    assert verdict(1.5, None) == "plotted only"
    assert verdict(float("nan"), 2.0) == "failed"
    assert [verdict(ours, 2.0) for ours in (1.7, 1.9, 2.1, 3.0)] == ["not", "reproduced", "reproduced", "better"]
    assert [verdict(ours, 2.0, is_trait=True) for ours in (1.7, 1.9, 3.0)] == ["not", "reproduced", "stronger"]
    for_less = [verdict(ours, 2.0, less_is_better=True) for ours in (3.0, 2.1, 1.0, 0.0, -1.0)]
    assert for_less == ["not", "reproduced", "better", "better", "better"]


def test_experiments_without_their_graph_are_left_out(tmp_path: Path) -> None:
    told: list[str] = []
    arguments = argparse.Namespace(only=("loading", "models", "chunks"))
    paper_results.leave_out(arguments, ("models", "chunks"), tmp_path, told.append)
    assert (arguments.only, told) == (("loading", "models", "chunks"), [])
    paper_results.leave_out(arguments, ("models", "chunks"), tmp_path / "none", told.append)
    assert arguments.only == ("loading",)
    assert "models, chunks left out; name the folder of real graphs with --source" in told[0]
