"""Names are text on every page and in every JSON document: markup, quotes, ends of lines, NUL, marks of direction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import diskhop
from diskhop.cli import run
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.reporting.html import visible
from tests.graphs import threads_engine
from tests.integration.test_class_names import write_tables
from tests.pages import CODE, ODD_FILE, ODD_NAME, PRINTABLE, dump_dom, require_safe

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ["--memory", "100MB", "--hidden", "4", "--fanout", "2,2", "--epochs", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(module_folder: Path) -> Path:
    """A graph, and runs on it, whose names are odd wherever a name can be; and every page about them."""
    names = [f"{number} {ODD_NAME}" for number in range(3)]
    source = write_tables(module_folder / "source", [names[number // 3 % 3] for number in range(60)])
    graph = module_folder / f"graph {ODD_FILE}"
    dataset = import_graph(source, graph, options=ImportOptions(), name=PRINTABLE, engine=threads_engine())
    assert dataset.names("classes") == names
    assert dataset.name == PRINTABLE
    for seed in range(2):
        out = module_folder / f"run {seed} {ODD_FILE}"
        assert run(["train", str(graph), *OPTIONS, "--seed", str(seed), "--out", str(out)]) == 0
    runs = [str(module_folder / f"run {seed} {ODD_FILE}") for seed in range(2)]
    predicted = module_folder / f"predicted {ODD_FILE}"
    assert run(["predict", runs[0], "--out", str(predicted), "--what", "class", "--memory", "100MB"]) == 0
    assert run(["evaluate", runs[1], "--memory", "100MB"]) == 0
    pages = module_folder / "pages"
    pages.mkdir()
    assert run(["inspect", str(graph), "--html", str(pages / "inspect.html"), "--memory", "100MB"]) == 0
    assert run(["report", *runs, str(predicted), "--out", str(pages / "report.html")]) == 0
    assert run(["plan", str(graph), *OPTIONS, "--html", str(pages / "plan.html")]) == 0
    assert run(["plan", runs[0], "--task", "predict", "--html", str(pages / "predict.html")]) == 0
    return module_folder


@pytest.mark.parametrize("name", ["inspect", "report", "plan", "predict"])
def test_names_are_text_on_every_page(folder: Path, name: str) -> None:
    content = (folder / "pages" / f"{name}.html").read_text()
    page = require_safe(content)
    # Shown as they are, as far as they can be shown.
    assert visible(ODD_FILE) in page.text
    if name in ("inspect", "report"):
        assert visible(ODD_NAME) in page.text
        assert PRINTABLE in page.text
    drawn = json.dumps(page.figures)
    assert name not in ("inspect", "report") or "document.body.dataset" in drawn, "charts have the names, too"


def test_json_is_json_with_such_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, trained = str(folder / f"graph {ODD_FILE}"), str(folder / f"run 0 {ODD_FILE}")
    for command in (
        ["inspect", graph],
        ["plan", graph, *OPTIONS],
        ["report", trained, "--out", str(folder / "again.html"), "--overwrite"],
        ["plan", trained, "--task", "predict"],
    ):
        assert run([*command, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert isinstance(document, dict)
    assert diskhop.inspect(graph).facts["name"] == PRINTABLE
    result = json.loads((Path(trained) / "result.json").read_text())
    assert result["confusion"]["classes"] == [f"{number} {ODD_NAME}" for number in range(3)]
    assert np.sum(result["confusion"]["counts"]) == 20


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("name", ["inspect", "report", "plan", "predict"])
def test_a_browser_runs_no_name(folder: Path, tmp_path: Path, name: str) -> None:
    assert CHROMIUM is not None
    page = folder / "pages" / f"{name}.html"
    # What the names would do if they became elements.
    broken = tmp_path / "broken.html"
    broken.write_text(f"<!DOCTYPE html><body>{CODE}</script></body>")
    assert 'data-broken="yes"' in dump_dom(CHROMIUM, broken, tmp_path / "profile")
    done = dump_dom(CHROMIUM, page, tmp_path / "profile")
    assert "data-broken=" not in done.split("<main", 1)[0]
    wanted = page.read_text().count('<div class="chart" role="img"')
    assert f'data-drawn="{wanted}"' in done or not wanted
