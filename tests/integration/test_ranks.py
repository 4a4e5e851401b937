"""Any number of ranks trains the model of one process that accumulates as many batches, bit for bit."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import nn

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.node_set import NodeSet
from diskhop.runs import sums
from diskhop.runs.distributed import open_group
from diskhop.runs.start import train
from diskhop.runs.trainer import Trainer
from diskhop.runtime.ranks import read_ranks
from diskhop.stores.stores import STORES
from tests.ranks import Call, RanksJob, call_in_ranks, call_of, folders_of
from tests.runs import assert_same_run, import_arrays, random_arrays, small_graph
from tests.typed_graphs import typed_dataset

# Five batches: the last step of two ranks has a batch of one of them, that of three ranks has batches of two.
OPTIONS: dict[str, Any] = {
    "model": "sage",
    "hidden": 16,
    "batch_size": 60,
    "epochs": 2,
    "memory_bytes": 400_000_000,
    "engine": "threads",
    "matmul": "blas",
    "eval_batch_size": 50,
}
OF_TABLES: dict[str, Any] = {"hops": 2, "direction": "both", "eval_batch_size": None}
OF_TYPES: dict[str, Any] = {"model": "hetero-sage", "batch_size": 9, "fanout": (3, 2)}
LINKS: dict[str, Any] = {"task": "link", "fanout": (4, 4), "batch_size": 700, "eval_batch_size": 500}


class Case:
    """Ranks, a graph, and options besides OPTIONS."""

    def __init__(self, count: int, graph: str = "sbm", **options: Any) -> None:
        self.count = count
        self.graph = graph
        self.options = options


CASES = {
    "sage": Case(3, accumulate=6, norm="batch", clip_norm=0.5, lr_schedule="cosine", warmup=1),
    # The last of 14 batches has one row, which is normalised by running statistics.
    "sign": Case(2, model="sign", **OF_TABLES, batch_size=23, norm="batch"),
    "learned rows": Case(2, "typed", accumulate=4, **OF_TYPES),
    "links": Case(2, **{**LINKS, "model": "gcn"}),
    "rows on a device": Case(2, store="static", norm="batch", device="cuda:7", device_memory_bytes=10_000),
    "tables on a device": Case(2, model="sign", **OF_TABLES, device="cuda:7", device_memory_bytes=10**8),
}
SLOW_CASES = {
    "two ranks": Case(2, clip_norm=0.5, lr_schedule="cosine", warmup=1),
    "four ranks": Case(4, sampler="labor"),
    "gcn": Case(2, model="gcn", norm="batch"),
    "gat": Case(2, model="gat", heads=2, class_weights="1,2,3,.5"),
    **{f"store {name}": Case(2, store=name, ordered=name == "shared") for name in STORES},
    **{model: Case(3, model=model, **OF_TABLES) for model in ("sgc", "hoga")},
    "chunks from disk": Case(2, model="sign", **OF_TABLES, placement="disk", shuffle="chunks"),
    "packed ahead": Case(2, store="packed", disk_bytes=10**9),
    "reused samples": Case(2, store="packed", reuse=True, epochs=3),
    "chosen nodes": Case(2, sampler="saint-node", sample_coverage=5),
    "partitions": Case(2, sampler="marius"),
    "ranks of links": Case(3, **LINKS, metric="mrr"),
    "regression": Case(2, "values", task="regression", metric="r2"),
    "tasks": Case(3, "values", metric="f1_macro"),
    "attention": Case(4, "typed", **{**OF_TYPES, "model": "hgt", "heads": 2}),
}


@pytest.fixture(scope="module")
def graphs(module_folder: Path) -> dict[str, Dataset]:
    arrays = random_arrays(300)
    return {
        "sbm": small_graph(module_folder / "sbm"),
        "typed": typed_dataset(module_folder / "typed")[1],
        "values": import_arrays(module_folder, "values", **{**arrays, "y": arrays["x"][:, :2] > 0.5}),
    }


def run_cases(
    cases: dict[str, Case], graphs: dict[str, Dataset], folder: Path, more: Sequence[Call] = ()
) -> list[list[Any]]:
    """Train every case in one process, with the threads of a rank, and in ranks. Returns the answers to more calls."""
    jobs = []
    for name, case in cases.items():
        options = {**OPTIONS, **case.options}
        if options["eval_batch_size"] is None:
            del options["eval_batch_size"]
        alone = {"accumulate": case.count, **options, "threads": 1, "device": "cpu", "device_memory_bytes": 0}
        train(graphs[case.graph], out=folder / f"{name} alone", **alone)
        options |= {"dataset": str(graphs[case.graph].path), "threads": case.count}
        is_delivered = "device" in case.options
        jobs.append(RanksJob(case.count, options, outs=folders_of(folder / name), is_delivered=is_delivered))
    answers = call_in_ranks([*map(call_of, jobs), *more])
    assert answers[: len(jobs)] == [[""] * job.ranks for job in jobs]
    return answers[len(jobs) :]


def count_labels(options: dict[str, Any]) -> tuple[int, list[int]]:
    """Train in a rank. Returns how often it read labels, and by epoch how many of these arrays were left."""
    read: list[weakref.ref[Any]] = []
    left: list[int] = []
    read_labels, train_pass = NodeSet.label_rows, Trainer.train_pass

    def label_rows(nodes: NodeSet) -> Any:
        labels = read_labels(nodes)
        read.append(weakref.ref(labels))
        return labels

    def passing(*args: Any, **kwargs: Any) -> dict[str, Any]:
        left.append(sum(each() is not None for each in read))
        return train_pass(*args, **kwargs)

    with mock.patch.object(NodeSet, "label_rows", label_rows), mock.patch.object(Trainer, "train_pass", passing):
        train(**options)
    return len(read), left


# What rank 0 says of options that several ranks cannot have.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "accumulate": (
        {"accumulate": 3},
        "--accumulate must be a multiple of 2 processes, .* got 3: use --accumulate 4",
    ),
    "shared": ({"store": "shared"}, "--store shared delivers .* results of 2 processes would vary .*: add --ordered"),
    "memory": (
        {"memory_bytes": 5_000_000},
        "--memory 5 MB is too small for 2 processes on one machine: .*; the smallest that works is --memory [0-9]+MB",
    ),
    "dataset": ({}, "values-imported: process 1 has another dataset there .* copy the same dataset to every machine"),
    "no dataset": ({}, "nowhere: "),
    "launchers": (
        {},
        "LOCAL_WORLD_SIZE must be the number of processes on a machine, .* got 2 in process 0, whose machine has 3: "
        "start all 3 by one torchrun$",
    ),
}
DATASETS = {"dataset": ("sbm", "values"), "no dataset": ("sbm", "nowhere")}
# Two launchers on one machine.
LOCAL = {"launchers": ((0, 2), (1, 2), (0, 1))}


# Sums of these depend on the order: 16777217 is no float32.
PARTS = (16777216.0, 1.0, -16777216.0, 1.0, 3.0, 0.25)


def sum_parts(most_waiting_bytes: int) -> tuple[float, list[float]]:
    """Add PARTS in two ranks, by turns, as gradients and as losses, and return the sum and the losses.

    Where rounds may wait, rank 0 adds all of its own before rank 1 has any.
    """
    ranks = read_ranks(os.environ)
    with open_group(ranks) as group, mock.patch.object(sums, "_MOST_WAITING_BYTES", most_waiting_bytes):
        model = nn.Linear(1, 1, bias=False)
        added = sums.GradientSums(model, group)
        if most_waiting_bytes and not ranks.is_first:
            group.receive(0)
        for part in ranks.share(PARTS):
            model.weight.grad = torch.full((1, 1), part)
            added.add(sums.LossValue(part, 1))
        if most_waiting_bytes and ranks.is_first:
            group.send("all are added", 1)
        losses = added.finish()
        assert model.weight.grad is not None
        return model.weight.grad.item(), [loss.mean for loss in losses]


class Trained(NamedTuple):
    """RUN folders of the cases, the errors of ranks in those of REFUSED, and results of count_labels(), sum_parts()."""

    folder: Path
    errors: dict[str, list[str]]
    labels: dict[str, list[tuple[int, list[int]]]]
    sums: list[list[tuple[float, list[float]]]]


@pytest.fixture(scope="module")
def trained(graphs: dict[str, Dataset], module_folder: Path) -> Trained:
    paths = {name: str(dataset.path) for name, dataset in graphs.items()}
    refused = []
    for name, (changes, _) in REFUSED.items():
        options = {**OPTIONS, "dataset": paths["sbm"], "threads": 2, **changes}
        datasets = tuple(paths.get(each, each) for each in DATASETS.get(name, ()))
        outs, local = folders_of(module_folder / f"refused {name}"), LOCAL.get(name, ())
        refused.append(RanksJob(len(local) or 2, options, outs=outs, datasets=datasets, local=local))
    counted = {}
    for name in ("sign", "learned rows"):
        case = CASES[name]
        options = {**OPTIONS, **case.options, "dataset": paths[case.graph], "threads": 2}
        del options["eval_batch_size"]
        counted[name] = Call(2, count_labels, (options,))
    summed = [Call(2, sum_parts, (num_bytes,)) for num_bytes in (0, 1 << 20)]
    answers = iter(run_cases(CASES, graphs, module_folder, [*map(call_of, refused), *counted.values(), *summed]))
    return Trained(
        module_folder,
        errors={name: next(answers) for name in REFUSED},
        labels={name: next(answers) for name in counted},
        sums=list(answers),
    )


@pytest.fixture(scope="module")
def slowly_trained(graphs: dict[str, Dataset], module_folder: Path) -> Path:
    run_cases(SLOW_CASES, graphs, module_folder)
    return module_folder


def result_of(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


def assert_equal_runs(folder: Path, name: str, count: int) -> None:
    """Models, losses, validation, test and the batches that were trained on."""
    alone, run = folder / f"{name} alone", folder / name
    assert_same_run(alone, run)
    expected, found = result_of(alone), result_of(run)
    assert found["test"] == expected["test"]
    for one, other in zip(expected["epochs"], found["epochs"], strict=True):
        assert other["valid"] == one["valid"]
        for counted in ("batches", "rows_requested", "bytes_needed"):
            assert other[counted] == one[counted]
            assert other["validation"][counted] == one["validation"][counted]
    ranks = found["ranks"]["per_rank"]
    assert found["ranks"]["count"] == len(ranks) == count
    assert all(0 < each["shared_bytes"] < each["peak_rss_bytes"] for each in ranks)
    assert found["peak_rss_bytes"] == sum(each["peak_rss_bytes"] - each["shared_bytes"] for each in ranks)
    assert not [each for each in folders_of(run)[1:] if Path(each).exists()], "rank 0 alone writes"


# Two tests, not one per case: each worker that got some of them would train all cases.
def test_ranks_train_the_model_of_one_process(trained: Trained) -> None:
    for name, case in CASES.items():
        assert_equal_runs(trained.folder, name, case.count)


def test_ranks_say_how_gradients_travel_between_devices(trained: Trained) -> None:
    line = "Gradients: through memory by gloo (process 0 computes on cpu)"
    for name, case in CASES.items():
        plan = json.loads((trained.folder / name / "result.json").read_text())["plan"]
        assert (line in plan["reasons"]) == ("device" in case.options), name
    assert plan["placement"] == "device"


def test_errors_are_those_of_the_first_rank_whichever_has_them(trained: Trained) -> None:
    for name, (first, *others) in trained.errors.items():
        assert re.search(REFUSED[name][1], first), name
        expected = first if name in (*DATASETS, *LOCAL) else "another process of this run ended"
        assert others == [expected] * len(others), name
    assert not list(trained.folder.glob("refused *")), "nothing is written"


def test_a_machine_reads_labels_for_all_ranks_and_has_one_copy(trained: Trained) -> None:
    for name, ranks in trained.labels.items():
        # Rank 0 has read them to choose options, too.
        assert ranks == [(2, [0, 0]), (0, [0, 0])], name


def test_a_rank_that_is_ahead_does_not_wait_within_a_step(trained: Trained) -> None:
    expected = torch.zeros(())
    for part in PARTS:
        expected += part
    assert trained.sums == [[(expected.item(), list(PARTS))] * 2] * 2
    assert expected != sum(PARTS), "the order matters"


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_every_store_and_sampler_trains_the_same_in_ranks(slowly_trained: Path, name: str) -> None:
    assert_equal_runs(slowly_trained, name, SLOW_CASES[name].count)
