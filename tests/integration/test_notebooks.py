"""Every notebook runs from top to bottom, and says what the page on the site says."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def cells_of(path: Path) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def test_each_notebook_is_a_pair() -> None:
    pages = sorted(path.stem for path in NOTEBOOKS.glob("*.md") if path.stem != "index")
    assert pages == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_of_a_pair_have_the_same_cells_and_the_notebook_no_output(name: str) -> None:
    notebook = NOTEBOOKS / f"{name}.ipynb"
    assert cells_of(notebook) == cells_of(notebook.with_suffix(".md")), "run: jupytext --sync docs/notebooks/*.md"
    assert not any(cell.get("outputs") for cell in nbformat.read(notebook, as_version=4).cells)


@pytest.mark.fast("map-of-a-network")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown), "values show themselves as tables"
