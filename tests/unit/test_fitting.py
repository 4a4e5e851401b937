"""Options that a run does not have are refused by their flags, with what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.kinds import find_kind
from tests.runs import small_graph
from tests.typed_links import shop


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("graphs")
    return {"one": small_graph(folder / "one"), "several": shop(folder / "several")}


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ("one", {"model": "sage", "hops": 2}, "--hops is for sgc, sign, hoga, not for model 'sage': remove it"),
        ("one", {"model": "sign", "sampler": "labor"}, "--sampler is for sage, gcn, gat, not for model 'sign'"),
        ("one", {"target": "node"}, "--target is for graphs with several types, and .*one has one: remove it"),
        ("one", {"model": "sign", "paths": ("a,b,c",)}, "--path is for graphs with several types"),
        ("one", {"task": "link", "target": "a,b,c"}, "--target is for graphs with several types"),
        ("one", {"task": "link", "hops": 2}, "--hops has no effect on --task link: remove it"),
        ("several", {"model": "rgcn", "hops": 2}, "--hops is for sgc, sign, hoga, not for model 'rgcn'"),
        ("several", {"model": "sign", "reuse": True}, "--reuse is for hetero-sage, rgcn, .*, not for model 'sign'"),
        ("several", {"task": "link", "shuffle": "rows"}, "--shuffle has no effect on --task link"),
    ],
    ids=str,
)
def test_an_option_of_other_runs_is_refused(
    graphs: dict[str, Dataset], graph: str, options: dict[str, Any], message: str
) -> None:
    dataset = graphs[graph]
    kind = find_kind(options.get("model"), options.get("task"), dataset)
    with pytest.raises(ConfigError, match=message) as refused:
        kind.resolve(dataset, options, None)
    assert len(str(refused.value)) < 250


def test_a_dataset_is_no_source(graphs: dict[str, Dataset], tmp_path: Path) -> None:
    path = graphs["one"].path
    with pytest.raises(SourceError, match=f"is a dataset of diskhop already; .*: diskhop inspect {path}"):
        import_graph(path, tmp_path / "again", engine=open_engine("threads").engine)
