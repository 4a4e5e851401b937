"""Claims about reports: what they show is what runs recorded, they need nothing else, and they tell kinds apart."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diskhop
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.reporting.courses import course_figures, time_figure
from diskhop.reporting.evaluation import confusion_figure
from diskhop.reporting.figures import run_figures
from diskhop.reporting.groups import group_runs
from diskhop.reporting.page import render
from diskhop.reporting.records import read_run
from diskhop.runs.start import run_config, train
from tests.embedding import embed_config, small_triples
from tests.runs import small_graph

MOST_BYTES = 5_000_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of several kinds: sage, auc (another metric), static, and embeddings by two protocols."""
    folder = tmp_path_factory.mktemp("runs")
    graph: Dataset = small_graph(folder / "graph")
    options: dict[str, Any] = {"model": "sage", "epochs": 3, "memory": "100MB", "seed": 0, "batch_size": 50}
    train(graph, out=folder / "sage", store="direct", **options)
    train(graph, out=folder / "static", store="static", cache="4KB", **options)
    triples = small_triples(folder / "triples")
    run_config(triples, embed_config(), folder / "raw")
    run_config(triples, embed_config(eval_filtered=True, eval_candidates=0), folder / "filtered")
    return folder


def killed(run: Path, out: Path) -> Path:
    """A run as one leaves it that is killed while it writes its second epoch's line."""
    shutil.copytree(run, out)
    (out / "result.json").unlink()
    first, second = (run / "metrics.jsonl").read_text().splitlines()[:2]
    (out / "metrics.jsonl").write_text(f"{first}\n{second[:40]}")
    return out


def test_what_is_drawn_is_what_was_recorded(folder: Path) -> None:
    run = read_run(folder / "sage")
    epochs = json.loads((folder / "sage" / "result.json").read_text())["epochs"]
    loss, valid = course_figures(group_runs([run], ["sage"]))
    assert loss.data[0]["y"] == [epoch["loss"] for epoch in epochs]
    assert valid.data[0]["y"] == [epoch["valid"] for epoch in epochs]
    assert loss.data[0]["x"] == [1, 2, 3]
    found = {figure.title: figure for figure in run_figures(run)}
    parts = found["Time of an epoch"].data
    for number, epoch in enumerate(epochs):
        assert sum(part["y"][number] for part in parts) == pytest.approx(epoch["seconds"], rel=0.01)
    rows = {part["name"]: part["y"] for part in found["Rows of features"].data}
    assert rows["from disk"] == [epoch["rows_requested"] - epoch["rows_hit"] for epoch in epochs]
    assert {part["name"]: part["y"] for part in found["Bytes"].data} == {
        "needed": [epoch["bytes_needed"] for epoch in epochs], "read": [epoch["bytes_read"] for epoch in epochs],
    }  # fmt: skip
    memory = found["Memory"].data[0]
    assert memory["x"] == sorted(memory["x"])
    # The kernel adds up the resident pages of each core from time to time: its peak may be a little behind.
    peak_bytes = json.loads((folder / "sage" / "result.json").read_text())["peak_rss_bytes"]
    assert 0 < max(memory["y"]) <= peak_bytes + (1 << 20)


def test_overhead_that_was_predicted_is_drawn_next_to_the_measured(folder: Path) -> None:
    run = read_run(folder / "sage")
    assert run.result is not None
    predicted = replace(run, result={**run.result, "predicted_overhead_bytes": 123_000_000})
    for each, is_there in ((run, False), (predicted, True)):
        (memory,) = (figure for figure in run_figures(each) if figure.title == "Memory")
        assert ("predicted overhead" in [line["name"] for line in memory.data]) is is_there
        assert ("predicted 123 MB" in memory.note) is is_there


def test_one_epoch_is_kept_batch_by_batch(folder: Path) -> None:
    """The second epoch, whose caches are full: its waits and steps add up to what the whole epoch recorded."""
    first, second, third = json.loads((folder / "static" / "result.json").read_text())["epochs"]
    assert "batch_seconds" not in first | third
    kept = second["batch_seconds"]
    assert {len(kept[name]) for name in kept if name != "first"} == {second["batches"]} == {6}
    waited = sum(sum(kept[name]) for name in ("sampling", "reading", "transfer"))
    assert waited == pytest.approx(second["stall_seconds"], abs=1e-4)
    assert sum(kept["computing"]) == pytest.approx(second["compute_seconds"], abs=1e-4)
    assert waited + sum(kept["computing"]) + sum(kept["other"]) <= second["seconds"] + 1e-4
    assert not any(kept["transfer"]), "there is no device"


def test_the_test_is_counted_by_class(folder: Path) -> None:
    result = json.loads((folder / "sage" / "result.json").read_text())
    counts = np.array(result["confusion"]["counts"])
    assert counts.shape == (4, 4)
    assert counts.sum() == 120
    assert counts.trace() / counts.sum() == pytest.approx(result["test"]["accuracy"])
    drawn = confusion_figure(result["confusion"])
    assert drawn.data[0]["x"] == ["0", "1", "2", "3"]
    assert "Confusion matrix" in render([read_run(folder / "sage")])


def test_kinds_are_never_on_one_axis(folder: Path) -> None:
    """Each axis has one metric, one protocol, one loss and one dataset."""
    names = ["sage", "static", "raw", "filtered"]
    runs = [read_run(folder / name) for name in names]
    drawn = [
        ({line["name"] for line in figure.data}, figure.note) for figure in course_figures(group_runs(runs, names))
    ]
    assert [lines for lines, _ in drawn] == [
        {"sage", "static"}, {"raw", "filtered"},  # losses
        {"sage", "static"}, {"raw"}, {"filtered"},  # validations: protocols differ
    ]  # fmt: skip
    assert "raw, 20 candidates" in drawn[3][1]
    assert "filtered, all candidates" in drawn[4][1]
    other = read_run(folder / "static")
    other.config["dataset_hash"] = "of another graph"  # type: ignore[index]
    assert [len(figure.data) for figure in course_figures(group_runs([runs[0], other], ["one", "other"]))] == [
        1,
        1,
        1,
        1,
    ]
    compared = time_figure(group_runs(runs, names))
    assert compared is not None
    assert compared.data[0]["x"] == names
    assert time_figure(group_runs(runs[:1], names[:1])) is None


def test_a_page_needs_nothing_else_and_is_small(folder: Path, tmp_path: Path) -> None:
    runs = [str(folder / name) for name in ("sage", "static", "raw", "filtered")]
    assert run_command(["report", *runs, "--out", str(tmp_path / "all.html")]) == 0
    page = (tmp_path / "all.html").read_text()
    assert len(page.encode()) < MOST_BYTES
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", page)
    assert list(tmp_path.iterdir()) == [tmp_path / "all.html"]
    assert diskhop.report(folder / "raw").path == folder / "raw" / "report.html"
    alone = (folder / "raw" / "report.html").read_text()
    assert "Embeddings" in alone, "a map of them"
    for text in ("partitions of", "processor", "batch_size", "Budget of 200 MB"):
        assert text in alone


@pytest.mark.parametrize("kind", ["sage", "raw"])
def test_a_run_that_was_killed_still_reports(folder: Path, tmp_path: Path, kind: str) -> None:
    run = read_run(killed(folder / kind, tmp_path / "killed"))
    assert len(run.epochs) == 1
    page = render([run])
    assert re.search(r"1 of \d epochs, not done", page)
    assert "engine" in page or "partitions of" in page, "the plan is there before the first batch"
    (tmp_path / "killed" / "metrics.jsonl").unlink()
    (tmp_path / "killed" / "plan.json").unlink()
    assert "No epoch is done yet" in render([read_run(tmp_path / "killed")])


def test_names_are_text_and_never_code(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "<script>alert(1)</script>"
    shutil.copytree(folder / "sage", out.parent / out.name.replace("/", "_"))
    page = render([read_run(out.parent / out.name.replace("/", "_")), read_run(folder / "static")])
    assert "<script>alert" not in page


def test_a_map_needs_the_dataset_and_says_so(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "raw", tmp_path / "moved")
    config = tmp_path / "moved" / "config.toml"
    config.write_text(re.sub(r'^dataset = ".*"', 'dataset = "/nowhere"', config.read_text(), flags=re.M))
    assert "No map of the embeddings: /nowhere" in render([read_run(tmp_path / "moved")])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", b'{"epoch": 0}\nnot json\n{}\n', "metrics.jsonl: is damaged"),
        ("result.json", b"{", "result.json: is damaged"),
        ("plan.json", b"[1]", "plan.json: is damaged: must be an object"),
    ],
)
def test_what_is_damaged_is_one_line(folder: Path, tmp_path: Path, name: str, content: bytes, message: str) -> None:
    shutil.copytree(folder / "sage", tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_run(tmp_path / "run")


def test_what_is_no_run_is_one_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path)], "is no run, config.toml is missing"),
        ([str(folder / "sage"), "--out", str(tmp_path / "page.txt")], "a page is an .html file"),
        ([str(folder / "sage"), "--out", str(tmp_path / "missing" / "page.html")], "missing"),
    ):
        assert run_command(["report", *arguments]) == 2
        told = capsys.readouterr().err
        assert message in told
        assert told.count("\n") == 1


@pytest.mark.fast(1)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [400, 1280])
def test_a_browser_draws_every_chart_without_errors(folder: Path, tmp_path: Path, width: int) -> None:
    runs = [read_run(folder / name) for name in ("sage", "static", "raw")]
    page = tmp_path / "page.html"
    page.write_text(render(runs))
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
        f"--window-size={width},2000", "--virtual-time-budget=20000", f"--user-data-dir={tmp_path / 'profile'}",
        f"--screenshot={tmp_path / 'page.png'}", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    wanted = page.read_text().count('<div class="chart" role="img"')
    assert wanted > 12
    assert f'data-drawn="{wanted}"' in done.stdout
