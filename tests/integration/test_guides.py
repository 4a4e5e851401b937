"""Every Python block of the README and the guides runs, in order, on a small graph; so does the nightly script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diskhop.cli import run
from tests.runs import small_graph
from tests.scripts import run_script

ROOT = Path(__file__).parents[2]
# The index lists the others.
GUIDES = [path for path in sorted((ROOT / "docs" / "guides").glob("*.md")) if path.stem != "index"]
PAGES = [*GUIDES, ROOT / "README.md"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guides")
    small_graph(
        folder / "my-graph",
        num_nodes=2000,
        dim=16,
        num_classes=4,
        num_edges=12_000,
        homophily=0.8,
        signal=1.5,
        train_fraction=0.3,
        seed=0,
    )
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    assert blocks, f"{page} shows no Python"
    # README's loop leaves the model to the reader.
    names: dict[str, object] = {"model": lambda x, edge_index: x}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def test_the_nightly_script_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One night publishes; after the next, whose metric is too low, its predictions are still there."""
    page = (ROOT / "docs" / "guides" / "predicting.md").read_text()
    (script,) = re.findall(r"^```bash\n(#!.*?)^```", page, re.M | re.S)
    (tmp_path / "nightly.sh").write_text(script)
    graph = str(folder / "my-graph")
    assert run(["train", graph, "--epochs", "5", "--memory", "200MB", "--out", str(tmp_path / "run")]) == 0
    assert run(["export", graph, str(tmp_path / "export")]) == 0
    monkeypatch.chdir(tmp_path)

    def night() -> int:
        return run_script(["bash", "nightly.sh", "export"], capsys).returncode

    assert night() == 0, (tmp_path / "predict.log").read_text()
    assert (tmp_path / "predictions" / "_SUCCESS").exists()
    assert (tmp_path / "predictions.html").exists()
    assert len(list(tmp_path.glob("run-*/model.safetensors"))) == 1
    before = (tmp_path / "predictions" / "_manifest.json").read_bytes()
    (tmp_path / "nightly.sh").write_text(script.replace("test>=.70", "test>=1.01"))
    assert night() == 1
    assert (tmp_path / "predictions" / "_manifest.json").read_bytes() == before


def test_messages_that_are_explained_are_said() -> None:
    """Every message in the first column of the troubleshooting guide is in the source, in one string or the next."""
    guide = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)` \|", guide, re.M)
    assert len(messages) > 15
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "native").rglob("*.[ch]pp")]
    # Strings that follow each other are one.
    said = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in sources)
    assert [message for message in messages if message not in said] == []
