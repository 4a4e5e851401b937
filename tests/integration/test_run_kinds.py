"""Every kind of run says what it is, in config.toml and result.json, and no command takes it for another."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run as run_command
from diskhop.errors import ConfigError
from diskhop.runs.callbacks import Callback
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.kinds import KINDS, find_kind
from diskhop.runs.start import embed, train
from diskhop.ui.summary import summarize
from tests.embedding import OPTIONS as EMBED_OPTIONS
from tests.embedding import small_triples
from tests.links import OPTIONS as LINK_OPTIONS
from tests.runs import OPTIONS, small_graph
from tests.typed_graphs import typed_dataset

SCREEN_LINES = 24
HOP_OPTIONS = {name: value for name, value in OPTIONS.items() if name != "fanout"} | {"model": "sign", "epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    graph = small_graph(folder / "sbm")
    train(graph, out=folder / "node", **{**OPTIONS, "epochs": 1})
    train(graph, out=folder / "hop", **HOP_OPTIONS)
    train(graph, out=folder / "link", **{**LINK_OPTIONS, "epochs": 1})
    typed = typed_dataset(folder / "graph")[1]
    options: dict[str, Any] = {"memory": "80MB", "epochs": 1, "batch_size": 25, "hidden": 8}
    train(typed, out=folder / "typed", **options)
    train(typed, out=folder / "typed-hop", model="sign", hops=1, **options)
    train(typed, out=folder / "typed-link", task="link", target="author,writes,paper", **options)
    embed(small_triples(folder / "triples"), out=folder / "embedding", **{**EMBED_OPTIONS, "epochs": 1})
    return {kind: folder / kind for kind in KINDS}


def test_no_two_kinds_share_a_model() -> None:
    models = [model for kind in KINDS.values() for model in kind.models]
    assert len(models) == len(set(models))
    assert all(find_kind(model).name == name for name, kind in KINDS.items() for model in kind.models)
    assert find_kind("sage", "link").name == find_kind(None, "link").name == "link"
    with pytest.raises(ConfigError, match="unknown model 'magic'"):
        find_kind("magic")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_its_kind_and_a_table_of_test_values(runs: dict[str, Path], kind: str) -> None:
    result: dict[str, Any] = json.loads((runs[kind] / "result.json").read_bytes())
    assert tomllib.loads((runs[kind] / "config.toml").read_text())["kind"] == result["kind"] == kind
    assert isinstance(result["test"][result["metric"]], float)
    assert result["best_valid"] == max(epoch["valid"] for epoch in result["epochs"])
    lines = summarize(result, runs[kind])
    assert sum(1 + len(text) // 64 for _, text in lines) <= SCREEN_LINES
    assert lines[-1] == ("next", f"diskhop report {runs[kind]}")


def test_a_run_of_another_kind_is_refused_with_the_command_to_use(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, made_by, wanted in (
        (["train", "--resume", "--out", str(runs["embedding"])], "embed", "train"),
        (["embed", "--resume", "--out", str(runs["hop"])], "train", "embed"),
        (["embed", "--resume", "--out", str(runs["link"])], "train", "embed"),
        (["export", str(runs["node"]), str(tmp_path / "x.npy")], "train", "embed"),
    ):
        assert run_command(arguments) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"made by 'diskhop {made_by}'; name a run of 'diskhop {wanted}'" in said
    with pytest.raises(ConfigError, match="of kind 'node', made by 'diskhop train'"):
        open_run(runs["node"])


class EndAfter(Callback):
    """Ends a run after some epochs."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs
        self.finished_with: Any = None

    def epoch_done(self, record: dict[str, Any]) -> bool:
        return bool(record["epoch"] + 1 >= self.num_epochs)

    def finished(self, result: Any) -> None:
        self.finished_with = result


def test_a_callback_ends_any_run_and_hears_of_its_result(tmp_path: Path) -> None:
    graph, triples = small_graph(tmp_path / "sbm"), small_triples(tmp_path / "triples")
    for run in (
        lambda callback: train(graph, callbacks=[callback], **{**OPTIONS, "epochs": 9}),
        lambda callback: embed(triples, out=tmp_path / "run", callbacks=[callback], **{**EMBED_OPTIONS, "epochs": 9}),
    ):
        callback = EndAfter(2)
        result = run(callback).result
        assert len(result["epochs"]) == 2
        assert result["stopped_early"]
        assert callback.finished_with is result
