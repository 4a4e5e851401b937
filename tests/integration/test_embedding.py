"""Claims about runs of embeddings: what changes no bit, what is kept, what is learnt, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from diskhop._native import CrashError, Engine
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.step.step import Step, Table
from diskhop.errors import BudgetError, ConfigError, DiskhopError, ReadError, TrainingError
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runs.embedding.evaluate import evaluate_embeddings
from diskhop.runs.start import embed, run_config
from tests.embedding import NUM_NODES, committed_bytes, embed_config, small_triples
from tests.graphs import memory_folder
from tests.runs import small_graph


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_triples(tmp_path_factory.mktemp("triples"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as found:
        yield found


@pytest.mark.fast(6)
@pytest.mark.parametrize(
    "changes",
    [
        {"overlap": False},
        {"engine": "auto"},
        {"memory_bytes": 400_000_000},
        {"checkpoint_every": "1 states"},
        {"threads": 2},
    ],
    ids=["no overlap", "another engine", "more memory", "more commits", "two threads"],
)
@pytest.mark.parametrize(
    "options",
    [{"buffer": 2}, {"buffer": 3}, {"buffer": 3, "repartitions": 2}, {"buffer": 3, "prefetch_slot": "leaving"}],
    ids=str,
)
def test_how_partitions_move_changes_no_bit(
    dataset: Dataset, folder: Path, options: dict[str, Any], changes: dict[str, Any]
) -> None:
    run_config(dataset, embed_config(partitions=6, **options), folder / "one")
    run_config(dataset, embed_config(partitions=6, **options, **changes), folder / "other")
    assert committed_bytes(folder / "one") == committed_bytes(folder / "other")


def test_edges_that_do_not_fit_are_read_from_disk_and_change_no_bit(folder: Path) -> None:
    dataset = small_triples(folder, copies=400)
    config = embed_config(partitions=8, evaluate=False, epochs=1)
    whole = run_config(dataset, config, folder / "whole").result["plan"]
    assert not whole["edges_on_disk"]
    memory_bytes = sum(whole["reserved"].values()) - whole["reserved"]["edges"] // 2
    less = run_config(dataset, replace(config, memory_bytes=memory_bytes), folder / "less").result["plan"]
    assert less["edges_on_disk"]
    assert less["num_slots"] == whole["num_slots"]
    assert committed_bytes(folder / "less") == committed_bytes(folder / "whole")
    assert not (folder / "less" / "edges").exists()


@pytest.mark.parametrize("order", ["searched", "legend", "beta"])
def test_partitions_are_moved_as_often_as_the_order_says(dataset: Dataset, folder: Path, order: str) -> None:
    done = run_config(dataset, embed_config(partitions=8, partition_order=order, epochs=3), folder / "run")
    plan, epochs = done.result["plan"], done.result["epochs"]
    assert plan["loads"] == plan["states"] - 1
    assert [epoch["partitions_read"] for epoch in epochs] == [plan["loads"] + 3, plan["loads"], plan["loads"]]
    assert [epoch["partitions_written"] for epoch in epochs] == [plan["loads"] + 3] * 3


@pytest.mark.slow
def test_repartitioned_nodes_are_trained_and_ranked_as_before(dataset: Dataset, folder: Path) -> None:
    """A ring is learnt by nodes that change partitions as it is by nodes that stay, and a run is read as it ended."""
    found = {}
    for repartitions in (0, 3):
        config = embed_config(partitions=6, epochs=30, dim=16, eval_every=30, repartitions=repartitions)
        done = run_config(dataset, config, folder / f"{repartitions}")
        found[repartitions] = done.result
        assert evaluate_embeddings(folder / f"{repartitions}")["mrr"] == done.result["test"]["mrr"]
        assert done.result["epochs"][0]["partitions_read"] > 14 * max(1, repartitions) - 8
        assert done.result["epochs"][-1]["loss"] < 0.7 * done.result["epochs"][0]["loss"]
    assert ["re-partitioning" in " ".join(each["plan"]["reasons"]) for each in found.values()] == [False, True]


def test_a_buffer_of_four_takes_cover(dataset: Dataset, folder: Path) -> None:
    config = embed_config(partitions=16, buffer=4, partition_order="cover", epochs=1)
    done = run_config(dataset, config, folder / "run")
    # 20 states of 4; but one that follows may have a partition of the one before.
    assert 70 < done.result["epochs"][0]["partitions_read"] <= 80


@pytest.mark.fast("complex", "distmult")
@pytest.mark.parametrize("model", ["distmult", "complex", "transe", "transe-l1", "rotate"])
def test_models_learn_a_ring(dataset: Dataset, folder: Path, model: str) -> None:
    done = run_config(
        dataset, embed_config(model=model, epochs=80, dim=16, eval_every=80, eval_candidates=500), folder / model
    )
    epochs = done.result["epochs"]
    assert epochs[-1]["loss"] < 0.7 * epochs[0]["loss"]
    assert done.result["test"]["protocol"] == {
        "filtered": False, "candidates": "all", "sides": "both", "ties": "realistic", "edges": "18 of 18"
    }  # fmt: skip


@pytest.mark.fast(2)
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("repartitions", [0, 2])
def test_a_crash_at_any_change_is_gone_on_from(
    dataset: Dataset, folder: Path, every: int, lost: Lost, repartitions: int
) -> None:
    config = embed_config(checkpoint_every="2 states", repartitions=repartitions, epochs=1 if repartitions else 2)

    def run(root: Path, nth: int, resume: bool = False) -> CrashInjector:
        injector = CrashInjector(root, nth)
        with injector:
            run_config(
                dataset, config, root / "run", resume=resume, engine=Engine("threads", 1, injector.native),
                injector=injector,
            )  # fmt: skip
        return injector

    (folder / "whole").mkdir()
    num_changes = run(folder / "whole", 0).num_changes
    expected = committed_bytes(folder / "whole" / "run")
    assert num_changes > 50
    for nth in range(1, num_changes + 1, every):
        root, after = folder / f"{nth}", folder / f"after-{nth}"
        root.mkdir()
        after.mkdir()
        injector = CrashInjector(root, nth)
        with injector:
            with pytest.raises(CrashError):
                run_config(
                    dataset, config, root / "run", engine=Engine("threads", 1, injector.native), injector=injector
                )
            injector.write_survivors(after, lost)
        out = after / "run"
        is_begun = (out / "config.toml").exists()
        if not is_begun and out.exists():
            assert all(path.name.endswith(".partial") for path in out.iterdir())
        run_config(dataset, config, out, resume=is_begun)
        assert committed_bytes(out) == expected


@pytest.mark.parametrize("is_cut", [False, True])
def test_what_is_damaged_is_not_trained(dataset: Dataset, folder: Path, is_cut: bool) -> None:
    with pytest.raises(CrashError), CrashInjector(folder, 60) as injector:
        run_config(dataset, embed_config(), folder / "run", injector=injector)
    for path in (folder / "run" / "partitions").iterdir():
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content[:100] if is_cut else content)
    with pytest.raises(ReadError, match="is damaged"):
        run_config(dataset, embed_config(), folder / "run", resume=True)


def test_a_linear_schedule_ends_with_no_steps(dataset: Dataset, folder: Path) -> None:
    """The share that is left of the learning rate, of each batch in turn."""
    shares = []

    class Noting(Step):
        def _update(self, table: Table, rows: Tensor, grads: Tensor, lr_share: float) -> None:
            shares.append(lr_share)
            super()._update(table, rows, grads, lr_share)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("diskhop.runs.embedding.trainers.Step", Noting)
        config = embed_config(model="dot", epochs=2, lr_schedule="linear", evaluate=False)
        done = run_config(dataset, config, folder / "run")
    wanted = 1 - np.arange(0, 2 * done.result["num_edges"], 1) / (2 * done.result["num_edges"])
    assert shares[0] == 1
    assert 0 < shares[-1] < 0.2
    assert np.isin(np.round(shares, 9), np.round(wanted, 9)).all()
    assert (np.diff(shares) < 0).all()


def test_negatives_that_make_known_edges_are_left_out(folder: Path) -> None:
    # Nodes have several neighbours here: what is left out shows in the losses.
    graph, found = small_graph(folder / "sbm"), {}
    options: dict[str, dict[str, Any]] = {
        "all": {"mask_known": False},
        "unknown": {"mask_known": True},
        "again": {"mask_known": True, "threads": 2, "overlap": False},
    }
    for name, changes in options.items():
        config = embed_config(model="dot", negatives=200, valid_share=0.1, epochs=1, **changes)
        run_config(graph, config, folder / name)
        found[name] = committed_bytes(folder / name)
    assert found["unknown"] == found["again"] != found["all"]


def test_a_loss_that_is_not_finite_keeps_the_last_commit(dataset: Dataset, folder: Path) -> None:
    config = embed_config(model="distmult", loss="contrastive", lr=1e30, epochs=50)
    with pytest.raises(TrainingError, match=r"the loss is .* in epoch \d+, batch \d+ .* --lr 1e\+30"):
        run_config(dataset, config, folder / "run")
    assert (folder / "run" / "commit.json").exists()


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"partitions": 200}, ConfigError, f"partitions must be from 1 to the {NUM_NODES} nodes, got 200"),
        ({"memory_bytes": 100_000}, BudgetError, "the smallest that works is"),
        ({"dim": 7}, ConfigError, "dim must be even for model 'complex'"),
        ({"partition_order": "cover"}, ConfigError, "order 'cover' is for a buffer of 4"),
        ({"partition_order": "best"}, ConfigError, "unknown partition order 'best'"),
        ({"buffer": 9, "partitions": 5}, ConfigError, "buffer must be at most the 5 partitions"),
    ],
    ids=["partitions", "memory", "dim", "cover", "order", "buffer"],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    dataset: Dataset, folder: Path, changes: dict[str, Any], kind: type[DiskhopError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run_config(dataset, embed_config(**changes), folder / "run")
    assert not (folder / "run").exists()


def test_options_alone_make_a_run(dataset: Dataset, folder: Path) -> None:
    done = embed(dataset, out=folder / "run", epochs=1, memory="300MB")
    assert done.config.partitions == 1
    assert done.result["epochs"][0]["stall_seconds"] >= 0
    with pytest.raises(DiskhopError, match="already exists"):
        embed(dataset, out=folder / "run", epochs=1)


def test_edges_of_lists_are_split_where_nobody_did(folder: Path) -> None:
    graph = small_graph(folder / "sbm")
    done = embed(graph, out=folder / "run", epochs=2, memory="300MB", partitions=4, eval_candidates=50)
    assert done.config.model == "dot"
    assert done.result["num_edges"] < graph.num_edges
    assert np.isfinite(done.result["test"]["mrr"])
