"""The budget is kept, and out-of-core is what it says: measured from outside, not by our own counters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from tests.runs import small_graph

MEMCAP = Path(__file__).parents[3] / "shared" / "tools" / "memcap"
NUM_NODES, DIM = 150_000, 256

# For each line with a dataset and how to read it: forks, runs passes of training and validation size without a model,
# and prints what the kernel says of them. A process of its own for each would import PyTorch again.
PROGRAM = """
import json, os, sys, threading
from dataclasses import replace
import numpy as np, torch
from pathlib import Path
from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.seeds import SeedSet, count_batches

def of(path, name):
    return int(next(line for line in Path(path).read_text().splitlines() if line.startswith(name)).split()[1])

def measure(path, memory_bytes, store, how):
    dataset = open_dataset(path)
    num_batches = 2 if store == "pread" else 6  # which reads row by row
    train, valid = dataset.split_rows("train"), dataset.split_rows("valid")
    passes = [(Purpose.TRAIN, train, 500, (10, 5)), (Purpose.VALID, valid, 1500, (10, 5))]
    sets = tuple(
        SeedSet(purpose=p, seeds=s, batch_size=b, sampler=neighbor_spec(f), is_shuffled=p == Purpose.TRAIN)
        for p, s, b, f in passes
    )
    budget = Budget(memory_bytes)
    workload = Workload(
        seed_sets=sets, seed=0, store=store, holds_while_waiting="holds" in how, reads_lent_rows="lent" in how,
        cache_bytes=40_000_000 if "cached" in how else None,
    )
    plan = choose_plan(dataset, workload, budget, assumed_disk_model())
    if "alone" in how:
        plan = replace(plan, bytes_in_flight=1)
    for file in Path(path).rglob("*.bin"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    status = "/proc/self/status"
    before, most = of(status, "RssAnon"), 0
    read_before = of("/proc/self/io", "read_bytes")
    done = threading.Event()
    def watch():
        nonlocal most
        while not done.wait(0.001):
            most = max(most, of(status, "RssAnon"))
    watcher = threading.Thread(target=watch)
    watcher.start()
    needed = brought = 0
    with open_pipeline(dataset, plan, budget) as pipeline:
        # Short passes come first: what they leave would be there next to all that the whole ones take.
        for most, (purpose, seeds, batch_size, fanouts) in zip((2, 2, num_batches, num_batches), passes + passes):
            wanted = Pass(
                seeds=seeds, numbers=range(count_batches(len(seeds), batch_size, most)), batch_size=batch_size,
                sampler=neighbor_spec(fanouts), seed=0, purpose=purpose, epoch=0,
            )
            with pipeline.run(wanted) as batches:
                for batch in batches:
                    float((batch.x if batch.rows is None else batch.x[batch.rows[:1000].copy()]).sum())
                    needed += batch.counts.bytes_needed
                    missed_rows = batch.counts.rows_requested - batch.counts.rows_hit
                    brought += missed_rows * dataset.feature_table().row_bytes
                    if not plan.holds_while_waiting:
                        del batch
    done.set()
    watcher.join()
    print(json.dumps({
        "grown_bytes": (most - before) * 1024, "reserved_bytes": sum(plan.reserved.values()), "needed_bytes": needed,
        "brought_bytes": brought, "held_bytes": plan.share.cache_rows * dataset.feature_table().row_bytes,
        "read_bytes": of("/proc/self/io", "read_bytes") - read_before, "topology": plan.topology,
        "sampling_threads": plan.sampling_threads,
    }))

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        measure(*json.loads(line))
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps(None), flush=True)
"""


@pytest.fixture(scope="module")
def measuring() -> Iterator[subprocess.Popen[str]]:
    """The process that measures."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_graph(
        module_folder / "sbm",
        num_nodes=NUM_NODES,
        dim=DIM,
        num_classes=8,
        num_edges=10 * NUM_NODES,
        homophily=0.7,
        signal=1.0,
        train_fraction=0.2,
        eval_fraction=0.2,
        seed=2,
    )


@pytest.fixture(scope="module")
def graph_of_edges(module_folder: Path) -> Dataset:
    """Lists of 170 MB beside which all else is small."""
    return small_graph(
        module_folder / "edges",
        num_nodes=NUM_NODES,
        dim=8,
        num_classes=8,
        num_edges=42_000_000,
        homophily=0.7,
        signal=1.0,
        train_fraction=0.2,
        eval_fraction=0.2,
        seed=2,
    )


def run(measuring: subprocess.Popen[str], dataset: Dataset, memory_bytes: int, store: str, *how: str) -> dict[str, Any]:
    """How: 'holds': the consumer has a batch while it waits; 'alone': one is on its way; 'lent': see Workload.

    'cached': 40 MB of rows are kept.
    """
    assert measuring.stdin is not None
    assert measuring.stdout is not None
    print(json.dumps([str(dataset.path), memory_bytes, store, how]), file=measuring.stdin, flush=True)
    found: dict[str, Any] | None = json.loads(measuring.stdout.readline())
    assert found is not None, "it failed: stderr says why"
    return found


# Beyond the reservations: interpreter objects, thread stacks, and what the allocator keeps.
SLACK_BYTES = 24_000_000


@pytest.mark.fast(
    "direct-200000000", "static-400000000", "belady-200000000", "shared-260000000", "packed-400000000-cached"
)
@pytest.mark.parametrize(
    ("store", "memory_bytes", "how"),
    [
        *(
            (store, *case)
            for store in ("direct", "pread", "static", "belady")
            for case in ((200_000_000, "drops"), (400_000_000, "holds"))
        ),
        # Room for two batches that share no row is room for most of this table.
        ("shared", 260_000_000, "drops"),
        ("shared", 400_000_000, "holds"),
        ("packed", 300_000_000, "drops"),
        ("packed", 400_000_000, "holds"),
        ("packed", 400_000_000, "cached"),
    ],
)
def test_a_store_out_of_core_holds_what_it_reserved(
    measuring: subprocess.Popen[str], dataset: Dataset, store: str, memory_bytes: int, how: str
) -> None:
    found = run(measuring, dataset, memory_bytes, store, how)
    assert found["reserved_bytes"] <= memory_bytes
    assert found["grown_bytes"] <= found["reserved_bytes"] + SLACK_BYTES


@pytest.mark.fast(1)
@pytest.mark.parametrize("memory_bytes", [200_000_000, 230_000_000])
def test_rows_read_where_they_are_take_no_more_than_their_buffer(
    measuring: subprocess.Popen[str], dataset: Dataset, memory_bytes: int
) -> None:
    found = run(measuring, dataset, memory_bytes, "shared", "lent")
    assert found["reserved_bytes"] <= memory_bytes
    assert found["reserved_bytes"] / 2 <= found["grown_bytes"] <= found["reserved_bytes"] + SLACK_BYTES


@pytest.mark.fast("direct", "belady")
@pytest.mark.parametrize("store", ["direct", "pread", "static", "belady"])
def test_a_store_out_of_core_reads_from_the_disk(
    measuring: subprocess.Popen[str], dataset: Dataset, store: str
) -> None:
    found = run(measuring, dataset, 200_000_000, store, "alone")
    # With everything evicted first, no byte of a needed row can have come from anywhere else.
    assert found["read_bytes"] >= found["needed_bytes"]


def test_packed_rows_come_from_the_disk(measuring: subprocess.Popen[str], dataset: Dataset) -> None:
    found = run(measuring, dataset, 420_000_000, "packed", "alone", "cached")
    # Those held once; each batch's others out of its chunk, which was written past the page cache.
    assert found["held_bytes"] >= 39_999_000
    assert found["brought_bytes"] > found["needed_bytes"] / 4
    assert found["read_bytes"] >= found["held_bytes"] + found["brought_bytes"]


@pytest.mark.fast(1)
@pytest.mark.parametrize("memory_bytes", [220_000_000, 300_000_000])
def test_packed_rows_read_where_they_are_take_no_more_than_their_buffer(
    measuring: subprocess.Popen[str], dataset: Dataset, memory_bytes: int
) -> None:
    found = run(measuring, dataset, memory_bytes, "packed", "lent")
    assert found["reserved_bytes"] <= memory_bytes
    assert found["reserved_bytes"] / 2 <= found["grown_bytes"] <= found["reserved_bytes"] + SLACK_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("memory_bytes", [110_000_000, 200_000_000])
def test_a_topology_that_does_not_fit_holds_what_it_reserved(
    measuring: subprocess.Popen[str], graph_of_edges: Dataset, memory_bytes: int
) -> None:
    found = run(measuring, graph_of_edges, memory_bytes, "direct")
    assert found["topology"] == "cached"
    assert found["reserved_bytes"] <= memory_bytes
    assert found["grown_bytes"] <= found["reserved_bytes"] + SLACK_BYTES
    assert found["grown_bytes"] >= found["reserved_bytes"] / 2
    assert found["sampling_threads"] > 1, "small batches beside lists that are not held: reads are shared"


def test_the_memory_store_is_told_apart_by_the_same_measure(measuring: subprocess.Popen[str], dataset: Dataset) -> None:
    found = run(measuring, dataset, 600_000_000, "memory")
    assert found["read_bytes"] < found["needed_bytes"]
    assert found["grown_bytes"] >= NUM_NODES * DIM * 4


# What passes keep is measured above. That the kernel agrees takes two processes, one of which reads its pages again.
@pytest.mark.slow
def test_training_under_a_memory_cap_of_budget_and_overhead_is_not_killed(dataset: Dataset, tmp_path: Path) -> None:
    if not MEMCAP.exists():
        pytest.skip("needs ../shared/tools/memcap")
    options = ["--model", "sage", "--epochs", "1", "--hidden", "32", "--batch-size", "500", "--fanout", "10,5"]
    options += ["--no-eval", "--max-batches", "10", "--memory", "200MB", "--store", "direct"]
    train = [sys.executable, "-c", "from diskhop.cli import main; main()", "train", str(dataset.path), *options]

    free = subprocess.run([*train, "--out", str(tmp_path / "free")], capture_output=True, text=True, check=False)
    assert free.returncode == 0, free.stderr
    result = json.loads((tmp_path / "free" / "result.json").read_text())
    assert result["overhead_bytes"] <= 600_000_000
    limit = str(200_000_000 + result["overhead_bytes"])
    command = [str(MEMCAP), limit, *train, "--out", str(tmp_path / "capped")]
    capped = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mkdir" in capped.stderr or "Permission denied" in capped.stderr:
        pytest.skip("control groups cannot be made here")
    assert capped.returncode == 0, capped.stderr
    again = json.loads((tmp_path / "capped" / "result.json").read_text())
    assert [epoch["loss"] for epoch in again["epochs"]] == [epoch["loss"] for epoch in result["epochs"]]
