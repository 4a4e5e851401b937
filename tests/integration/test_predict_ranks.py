"""Ranks share the work of predict and evaluate: the bytes of one process in any number of them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.errors import DiskhopError
from diskhop.pipeline import peers
from diskhop.predicting.row_files import RowFile
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from tests.executing import result_bytes
from tests.graphs import random_pairs
from tests.ranks import Call, call_in_ranks
from tests.runs import import_arrays

NUM_NODES = 9000  # three groups of rows
PREDICT: dict[str, Any] = {"memory": "200MB", "threads": 2, "engine": "threads", "what": ("class", "embedding")}
APART = "2: LOCAL_WORLD_SIZE must be the number of processes on a machine, .* got 1 in process 0, whose machine has 2: "


@pytest.fixture(scope="module")
def run(module_folder: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, NUM_NODES)
    graph = import_arrays(
        module_folder,
        "graph",
        edge_index=random_pairs(NUM_NODES, 20_000),
        x=(rng.normal(size=(NUM_NODES, 8)) + labels[:, None]).astype(np.float32),
        y=labels,
        train_idx=np.arange(300),
        val_idx=np.arange(300, 400),
        test_idx=np.arange(400, 5000),
    )
    options: dict[str, Any] = {
        "batch_size": 100,
        "fanout": (4, 4),
        "engine": "threads",
        "memory": "300MB",
        "threads": 2,
    }
    train(graph, out=module_folder / "run", model="sage", hidden=8, epochs=1, max_batches=2, **options)
    return module_folder / "run"


def predict(run: Path, out: Path, options: dict[str, Any]) -> Any:
    """The result that each rank is told of, or its error."""
    try:
        return predict_run(run, out=out, **{**PREDICT, **options}).result
    except DiskhopError as error:
        return f"{error.exit_code}: {'; '.join(error.lines)}"


def predict_on_two_machines(run: Path, out: Path) -> Any:
    """The result of two ranks, each on a machine of its own with a folder that both share."""
    peers._machine = lambda: (os.environ["RANK"],)
    return predict_of_two_launchers(run, out)


def predict_of_two_launchers(run: Path, out: Path) -> Any:
    """The result of two ranks on one machine, which do not know of each other."""
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return predict(run, out, {})


def cut_ranges(patch: pytest.MonkeyPatch) -> None:
    """Ranges of half of the rows, about."""
    patch.setattr(RowFile, "range_rows", property(lambda _file: 1024 * (NUM_NODES // 2048)))


def predict_in_two_ranges(run: Path, out: Path, options: dict[str, Any]) -> Any:
    """The result that each rank is told of. Hop tables are made again."""
    cut_ranges(pytest.MonkeyPatch())
    return predict(run, out, {**options, "scratch": str(out.with_suffix(".scratch"))})


def evaluate(run: Path) -> Any:
    """The metrics of each part of the split."""
    return evaluate_run(run, memory="200MB", threads=2)["parts"]


@pytest.mark.slow
def test_ranks_make_the_bytes_of_one_process(run: Path, module_folder: Path) -> None:
    folder = module_folder
    predict_run(run, out=folder / "alone", **PREDICT)
    expected = result_bytes(folder / "alone")
    parts = evaluate_run(run, memory="200MB", threads=2)["parts"]
    refused = {"require": ("test>=1.1",)}
    calls = [Call(count, predict, (run, folder / f"in-{count}", {})) for count in (1, 2, 3)]
    calls += [Call(2, evaluate, (run,))]
    calls += [Call(2, predict, (run, folder / "none", each)) for each in (refused, {"executor": "processes"})]
    calls += [Call(2, predict_on_two_machines, (run, folder / "apart"))]
    calls += [Call(2, predict_of_two_launchers, (run, folder / "none"))]
    *answers, evaluated, low, executor, apart, launchers = call_in_ranks(calls)
    for count, results in zip((1, 2, 3), answers, strict=True):
        assert [each["rows"] for each in results] == [NUM_NODES] * count
        assert result_bytes(folder / f"in-{count}") == expected
    assert result_bytes(folder / "apart") == expected
    # A rank has an equal part of the memory of its own machine.
    plans = [results[0]["plan"] for results in (*answers, apart)]
    assert [each.get("num_processes", 1) for each in plans] == [1, 2, 3, 1]
    assert plans[0]["reserved"] == plans[3]["reserved"]
    assert [each["threads"] for each in plans] == [2, 1, 1, 2]
    assert evaluated == [parts, parts]
    assert low[0].startswith("1: accuracy on test is 0.")
    assert executor[0] == "2: tasks run in the 2 processes of this command: remove --executor processes"
    assert all(re.match(APART, each) for each in launchers)
    assert not (folder / "none").exists()


@pytest.mark.slow
def test_ranks_make_the_bytes_of_one_process_for_every_model(run: Path, module_folder: Path) -> None:
    """Each rank writes one of two ranges of rows."""
    folder, graph = module_folder / "models", open_classifier(run).dataset_path
    options: dict[str, Any] = {"batch_size": 100, "engine": "threads", "memory": "300MB", "threads": 2, "hidden": 32}
    train(graph, out=folder / "sign", model="sign", hops=2, epochs=1, **options)
    train(graph, out=folder / "wide", model="sage", fanout=(4, 4), epochs=1, max_batches=2, **options)
    cases = [(folder / "sign", {}), (folder / "wide", {"fanout": (3, 3)})]
    with pytest.MonkeyPatch.context() as patch:
        cut_ranges(patch)
        for number, (trained, chosen) in enumerate(cases):
            scratch = str(folder / f"alone-{number}")
            predict_run(trained, out=folder / f"alone-{number}-out", scratch=scratch, **{**PREDICT, **chosen})
    calls = [
        Call(count, predict_in_two_ranges, (trained, folder / f"in-{number}-{count}", chosen))
        for number, (trained, chosen) in enumerate(cases)
        for count in (2, 3)
    ]
    answers = iter(call_in_ranks(calls))
    for number in range(len(cases)):
        expected = result_bytes(folder / f"alone-{number}-out")
        for count in (2, 3):
            assert [each["rows"] for each in next(answers)] == [NUM_NODES] * count
            assert result_bytes(folder / f"in-{number}-{count}") == expected
