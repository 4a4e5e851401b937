"""Embeddings that several ranks train: the same bits at every run, every edge once an epoch, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.runs.embedding.evaluate import evaluate_embeddings
from diskhop.runs.evaluate.run import evaluate_run
from tests.embedding import OPTIONS, committed_bytes, small_triples
from tests.ranks import Call, RanksJob, call_in_ranks, call_of, folders_of

# Two ranks of two groups of two partitions, three of which are in memory.
RANKS_OPTIONS: dict[str, Any] = {**OPTIONS, "partitions": 8, "threads": 2}


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_triples(module_folder / "triples")


def job(dataset: Dataset, out: Path, ranks: int = 2, **changes: Any) -> RanksJob:
    options = {**RANKS_OPTIONS, **changes, "dataset": str(dataset.path)}
    return RanksJob(ranks, options, outs=folders_of(out), command="embed")


def result_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


def metrics(run: Path) -> dict[str, float]:
    """The metrics of all test edges, as each rank has them."""
    found = evaluate_run(run)
    return {name: found[name] for name in ("mrr", "mean_rank", "hits_at_1", "hits_at_10", "auc")}


@pytest.mark.slow
def test_ranks_train_every_edge_once_and_the_same_bits_however_partitions_move(
    dataset: Dataset, module_folder: Path
) -> None:
    cases: dict[str, dict[str, Any]] = {
        "one": {"repartitions": 2},
        "more commits": {"repartitions": 2, "checkpoint_every": "2 states", "overlap": False},
        "three": {"ranks": 3, "partitions": 6, "buffer": 2, "model": "transe"},
    }
    refused: dict[str, tuple[dict[str, Any], str]] = {
        "partitions": ({"partitions": 6}, "a multiple of 4 partitions.*got 6; use --partitions 8"),
        "memory": ({"memory_bytes": 1_000_000}, "the smallest that works is"),
        "resumed": ({"ranks": 3, "resume": True}, "2 processes trained this run.*; resume with --processes 2"),
    }
    outs = {name: module_folder / name for name in cases}
    jobs = [job(dataset, outs[name], **changes) for name, changes in cases.items()]
    for name, (changes, _) in refused.items():
        is_resumed = "resume" in changes
        wrong = job(dataset, outs["one"] if is_resumed else module_folder / f"no {name}", **changes)
        # The options of a run that is resumed are its own.
        options = {name: wrong.options[name] for name in ("dataset", "resume")} if is_resumed else wrong.options
        jobs.append(RanksJob(wrong.ranks, options, wrong.outs, command="embed"))
    calls = [*map(call_of, jobs), *(Call(count, metrics, (outs["one"],)) for count in (2, 3))]
    *errors, in_two, in_three = call_in_ranks(calls)
    assert [each for found in errors[: len(cases)] for each in found if each] == []
    assert committed_bytes(outs["one"]) == committed_bytes(outs["more commits"])
    for name, out in outs.items():
        result = result_of(out)
        assert result["epochs"][-1]["loss"] < result["epochs"][0]["loss"], name
        assert evaluate_embeddings(out)["mrr"] == result["test"]["mrr"]
        assert not (out / "edges").exists()
        assert not any(Path(each).exists() for each in folders_of(out)[1:])
    # Ranks of edges are shared out, too, with the bits of one process.
    alone = metrics(outs["one"])
    assert alone.keys() >= {"mrr", "mean_rank", "hits_at_10", "auc"}
    assert (in_two, in_three) == ([alone] * 2, [alone] * 3)
    for found, (name, (_, message)) in zip(errors[len(cases) :], refused.items(), strict=True):
        assert re.search(message, found[0]), found
        assert not (module_folder / f"no {name}").exists()
