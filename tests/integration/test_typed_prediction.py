"""Claims about predictions and evaluations of models of graphs with several types."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import HeteroData

import diskhop
from diskhop._native import CrashError
from diskhop.budget import Budget
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DiskhopError
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.io.faults import CrashInjector
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.predicting.batched.batches import PlannedLayer, plan_layer
from diskhop.predicting.rows import ArrayRows
from diskhop.predicting.streamed.spare_files import SpareFiles, cut_file
from diskhop.predicting.typed import tables as typed_tables
from diskhop.predicting.typed.layers import TypedLayer
from diskhop.runs.evaluate.classifier import evaluate_classifier
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.predict.plan import plan_prediction
from diskhop.runs.predict.run import predict_run
from diskhop.runs.typed.prepare import merge_types
from diskhop.runtime.progress import silent
from tests.batched import small_batches
from tests.graphs import folder_bytes
from tests.typed_graphs import typed_data
from tests.typed_predictions import dense, graph, train_run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeteroData, Dataset]:
    return graph(tmp_path_factory.mktemp("typed") / "graph")


@pytest.fixture(scope="module")
def rgat(small: tuple[HeteroData, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(small[1], tmp_path_factory.mktemp("runs") / "rgat", model="rgat")


def predicted(run: Path, out: Path, **options: Any) -> dict[str, Any]:
    """Arrays of predictions by name."""
    done = predict_run(run, out=out, **{"format": "npy", "memory": "60MB", **options})
    return {name.removesuffix(".npy"): np.load(out / name) for name in done.predictions.files if name.endswith(".npy")}


# Attention of simple-hgn is carried over two layers.
@pytest.mark.fast("hetero-sage", "rgat")
@pytest.mark.parametrize(("model", "layers"), [(name, 4 if name == "simple-hgn" else 2) for name in TYPED_MODELS])
def test_predictions_are_those_of_one_pass_over_the_graph(tmp_path: Path, model: str, layers: int) -> None:
    data, dataset = graph(tmp_path / "graph", seed=[*TYPED_MODELS].index(model))
    run = train_run(dataset, tmp_path / "run", model=model, layers=layers, fanout=(3,) * layers, norm="layer")
    config: Any = open_classifier(run).config
    merged = merge_types(dataset, config, Budget(1 << 28), silent)
    with small_batches(100):
        found = predicted(run, tmp_path / "out", what=("logits", "embedding"))
    np.testing.assert_allclose(found["logits"], dense(run, merged, data), atol=1e-5)
    np.testing.assert_allclose(found["embedding"], dense(run, merged, data, layers - 1), atol=1e-5)


def test_layers_with_the_same_batches_and_costs_are_planned_once(
    small: tuple[HeteroData, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, dataset = small
    run = train_run(dataset, tmp_path / "run", model="rgat", layers=3, fanout=(3, 3, 3))
    config: Any = open_classifier(run).config
    planned = []

    def plan(below: Dataset, layer: TypedLayer, *given: Any, **options: Any) -> PlannedLayer:
        planned.append(layer.label)
        return plan_layer(below, layer, *given, **options)

    monkeypatch.setattr(typed_tables, "plan_layer", plan)
    found = predicted(run, tmp_path / "out", what=("logits",))
    # Layer 2 of each type is as layer 1; layer 3 has other columns.
    assert planned == ["layer 1 (author)", "layer 1 (paper)", "layer 1 (venue)", "layer 3 (paper)"]
    merged = merge_types(dataset, config, Budget(1 << 28), silent)
    np.testing.assert_allclose(found["logits"], dense(run, merged, data), atol=1e-5)


@pytest.mark.fast(1)
@pytest.mark.parametrize("features", ["random", "degree"])
def test_made_features_are_those_of_training(small: tuple[HeteroData, Dataset], tmp_path: Path, features: str) -> None:
    run = train_run(small[1], tmp_path / "run", features=features, epochs=5, eval_fanout=(-1, -1))
    trained = json.loads((run / "result.json").read_text())["test"]["accuracy"]
    measured = evaluate_run(run, part="test")["parts"]["test"]
    assert measured["accuracy"] == pytest.approx(trained, abs=1e-3)


def test_bytes_depend_on_neither_memory_nor_threads_nor_a_crash(rgat: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"what": ("logits", "embedding"), "layer": 1, "engine": "threads"}

    def bytes_of(out: Path, **changed: Any) -> dict[str, bytes]:
        predict_run(rgat, out=out, **{**options, "memory": "60MB", **changed})
        return {name: content for name, content in folder_bytes(out).items() if not name.startswith("_")}

    with small_batches(50):
        expected = bytes_of(tmp_path / "out", threads=2)
        with pytest.raises(DiskhopError, match="--memory") as refused:
            bytes_of(tmp_path / "refused", memory="1MB")
        smallest = refused.value.smallest_bytes  # type: ignore[attr-defined]
        assert bytes_of(tmp_path / "small", memory=smallest, threads=1) == expected
        with CrashInjector(tmp_path, 0) as injector:
            predict_run(rgat, out=tmp_path / "counted", injector=injector, memory="60MB", **options)
        for nth in (injector.num_changes // 3, injector.num_changes * 3 // 4):
            root, after = tmp_path / f"{nth}", tmp_path / f"after-{nth}"
            root.mkdir()
            after.mkdir()
            with CrashInjector(root, nth) as injector:
                with pytest.raises(CrashError):
                    predict_run(rgat, out=root / "out", injector=injector, memory="60MB", **options)
                injector.write_survivors(after, "names")
            assert bytes_of(after / "out") == expected
            assert not (after / ".out.work").exists()


def test_work_folders_outlast_the_removal_of_their_files(
    small: tuple[HeteroData, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are removed in the background, here as late as may be: once the context that removes them ends."""
    run = train_run(small[1], tmp_path / "run", model="rgcn")
    ends, removed = threading.Event(), list[Path]()
    leave: Any = SpareFiles.__exit__

    def cut_late(path: Path, *arguments: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            ends.wait()
            removed.append(path)
        cut_file(path, *arguments)

    def end(spares: SpareFiles, *error: Any) -> None:
        ends.set()
        leave(spares, *error)

    monkeypatch.setattr("diskhop.predicting.streamed.spare_files.cut_file", cut_late)
    monkeypatch.setattr(SpareFiles, "__exit__", end)
    writes: list[Callable[[], object]] = [lambda: predicted(run, tmp_path / "out"), lambda: evaluate_run(run)]
    for write in writes:
        ends.clear()
        removed.clear()
        write()
        assert removed
    assert not [*tmp_path.rglob("*.work")]


@pytest.mark.slow
def test_sampled_predictions_depend_on_the_seed(rgat: Path, tmp_path: Path) -> None:
    sampled = [
        predicted(rgat, tmp_path / f"{number}", fanout=(2, 2), seed=seed, what=("logits",))["logits"]
        for number, seed in enumerate([0, 0, 1])
    ]
    np.testing.assert_array_equal(sampled[0], sampled[1])
    assert not np.array_equal(sampled[0], sampled[2])


def test_a_plan_has_a_step_per_layer_and_type(rgat: Path, tmp_path: Path) -> None:
    planned = plan_prediction(rgat, memory="60MB")
    steps = [each.name for each in planned.outputs.steps]
    assert steps[-1] == "layer 2 (paper)"
    assert set(steps[:3]) == {"features (author)", "features (paper)", "features (venue)"}
    assert "layer 1 (venue)" in steps
    assert "layer 2 (venue)" not in steps
    assert planned.rows == 90


def test_metrics_are_those_of_the_predicted_logits(rgat: Path, tmp_path: Path) -> None:
    logits = predicted(rgat, tmp_path / "out", what=("logits",))["logits"]
    expected = evaluate_classifier(rgat, lambda *_: nullcontext(ArrayRows(logits)))
    assert evaluate_run(rgat)["parts"] == expected["parts"]
    assert set(expected["parts"]) == {"train", "valid", "test"}


def test_ids_and_classes_are_the_names_of_the_target(tmp_path: Path) -> None:
    names = [f"user {number}" for number in range(30)]
    plans = ["free", "pro"]
    tables = {
        "nodes/user": "id,class\n" + "".join(f"{name},{plans[number % 2]}\n" for number, name in enumerate(names)),
        "nodes/item": "id,price\n" + "".join(f"{number},{number / 2}\n" for number in range(9)),
        "edges/user__buys__item": "user,item\n" + "".join(f"{name},{len(name) % 9}\n" for name in names),
    }
    for path, text in tables.items():
        (tmp_path / "shop" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shop" / f"{path}.csv").write_text(text)
    dataset = import_graph(tmp_path / "shop", tmp_path / "graph", engine=open_engine("threads").engine)
    run = train_run(dataset, tmp_path / "run")
    (tmp_path / "some.txt").write_text("user 7\nuser 21\n")
    predict_run(run, out=tmp_path / "out", nodes=str(tmp_path / "some.txt"), format="tsv", what=("class",))
    header, *lines = (tmp_path / "out/part-00000.tsv").read_text().splitlines()
    assert header == "id\tclass"
    assert [line.split("\t")[0].strip('"') for line in lines] == ["user 7", "user 21"]
    assert {line.split("\t")[1].strip('"') for line in lines} <= set(plans)


def changed(name: str, data: HeteroData) -> HeteroData:
    """A newer graph that does not fit the runs."""
    if name == "wider":
        data["paper"].x = data["paper"].x.repeat(1, 2)
    elif name == "venues":
        data["venue"].num_nodes = 6
    elif name == "types":
        del data["author", "knows", "author"]
    return data


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "wider",
            "12 feature columns of float16 of type 'paper', but .* 6 feature columns of float16; import the same",
        ),
        ("venues", "6 nodes of type 'venue', but .* 5, each with a learned row; train again, or .* --features degree"),
        ("types", r"edge types .* but .*knows.*; import the same types"),
    ],
)
def test_a_newer_graph_that_does_not_fit_is_refused_in_a_line(
    rgat: Path, tmp_path: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = diskhop.from_pyg(changed(name, typed_data()), tmp_path / "newer")
    words = ["predict", str(rgat), "--dataset", str(newer.path), "--out", str(tmp_path / "out")]
    assert run_command(words) == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "others"}, "--nodes 'others' is none of all, train, valid, test, and no file"),
        ({"what": ("embedding",), "layer": 3}, "--layer must be from 1 to 2"),
        ({"fanout": (1, 2, 3)}, "--fanout must have one count for each of 2 layers"),
        ({"memory": "100KB"}, "smallest"),
    ],
)
def test_bad_options_are_refused_in_a_line(rgat: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DiskhopError, match=message) as refused:
        predict_run(rgat, out=tmp_path / "out", **options)
    assert "\n" not in str(refused.value)
