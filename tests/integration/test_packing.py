"""Batches packed ahead: those that are sampled online, found by what makes them, refused when damaged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import BudgetError, ConfigError, FormatError
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import pack, run_samples
from diskhop.runs.nodes.workload import training_workload
from diskhop.runs.start import train
from diskhop.stores.packed.layout import open_layout
from diskhop.stores.packed.pack_file import open_pack_file
from tests.packed import OPTIONS, pack_small
from tests.runs import small_graph


class Told(Callback):
    """Keeps the reasons of a run's plan, and its lines about packing."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()
        self.announcements: list[str] = []

    def planned(self, plan: Any) -> None:
        self.reasons = plan.reasons

    def announced(self, text: str) -> None:
        self.announcements.append(text)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm", dim=257)


def smallest_disk(dataset: Dataset, scratch: Path) -> int:
    """The least that an error says would do."""
    with pytest.raises(ConfigError, match=r"use --disk (\d+)MB") as raised:
        pack_small(dataset, scratch, disk_bytes=1000)
    shutil.rmtree(scratch)
    return int(str(raised.value).split("use --disk ")[1].split("MB")[0]) * 1_000_000


def run_losses(dataset: Dataset, **changes: Any) -> list[float]:
    result = train(dataset, **{**OPTIONS, **changes}).result
    return [epoch["loss"] for epoch in result["epochs"]]


@pytest.mark.fast(2)
@pytest.mark.parametrize("disk_bytes", [None, 4_000_000, 2_000_000])
@pytest.mark.parametrize("reuse", [False, True])
def test_training_from_packed_batches_has_the_losses_of_memory(
    dataset: Dataset, tmp_path: Path, disk_bytes: int | None, reuse: bool
) -> None:
    packed = pack_small(dataset, tmp_path, disk_bytes=disk_bytes, reuse=reuse)
    assert (packed.layout.epochs[0].segment > 1) == (disk_bytes is not None)
    told = Told()
    changes = {"store": "packed", "scratch": str(tmp_path), "epochs": 3, "reuse": reuse, "callbacks": [told]}
    expected = run_losses(dataset, store="memory", cache_bytes=0, epochs=3, reuse=reuse)
    # The third epoch was not packed, unless the first is reused: it is packed as it trains.
    assert run_losses(dataset, **changes) == expected
    assert any(str(packed.layout.path) in reason for reason in told.reasons)


@pytest.mark.parametrize("disk_bytes", [None, 2_000_000])
def test_packed_batches_are_those_sampled_online_in_any_order(
    dataset: Dataset, tmp_path: Path, disk_bytes: int | None
) -> None:
    layout = pack_small(dataset, tmp_path, disk_bytes=disk_bytes).layout
    config, _, task = resolve_config(dataset, {**OPTIONS, "store": "packed", "scratch": str(tmp_path)})
    assert isinstance(config, SampledConfig)
    samples = run_samples(config, task.seeds.train, dataset.num_nodes)
    features = np.fromfile(dataset.feature_table().path, np.float32).reshape(dataset.num_nodes, -1)  # type: ignore[union-attr]
    workload = training_workload(config, task.seeds, task.held, dataset.num_nodes)
    seeds = samples.pass_of(1).seeds
    num_batches = samples.num_batches
    order = np.random.default_rng(0).permutation(num_batches).tolist()
    shuffled = Pass(
        seeds=seeds,
        numbers=order,
        batch_size=25,
        sampler=neighbor_spec((4, 4)),
        seed=config.seed,
        purpose=Purpose.TRAIN,
        epoch=1,
    )
    found: dict[str, dict[int, tuple[Any, ...]]] = {}
    for store in ("memory", "packed"):
        wanted = replace(workload, store=store)
        if store == "memory":
            wanted = replace(wanted, cache_bytes=None, scratch=None)
        else:
            wanted = replace(wanted, prepared=layout)
        budget = Budget(config.memory_bytes)
        plan = choose_plan(dataset, wanted, budget)
        with (
            open_pipeline(dataset, plan, budget) as pipeline,
            pipeline.run(shuffled) as stream,
        ):
            batches = {}
            for batch in stream:
                sampled = batch.sampled
                rows = batch.x.numpy() if batch.rows is None else batch.x.numpy()[batch.rows]
                np.testing.assert_array_equal(rows, features[sampled.node_ids])
                batches[sampled.number] = (
                    sampled.node_ids.tolist(),
                    sampled.indptr.tolist(),
                    sampled.sources.tolist(),
                    sampled.edge_positions.tolist(),
                    sampled.num_sampled_nodes,
                )
            found[store] = batches
    assert list(found["packed"]) == order
    assert found["packed"] == found["memory"]


def test_all_that_is_read_is_needed(dataset: Dataset, tmp_path: Path) -> None:
    layout = pack_small(dataset, tmp_path, batch_size=300).layout
    result = train(
        dataset, **{**OPTIONS, "batch_size": 300, "store": "packed", "scratch": str(tmp_path), "epochs": 1}
    ).result
    (epoch,) = result["epochs"]
    # A block's rounding for head, body and rows; slots are four bytes a node.
    num_nodes = epoch["rows_requested"]
    assert (
        layout.epochs[0].bytes_needed < epoch["bytes_read"] <= layout.epochs[0].bytes_needed + 3 * 4096 + 4 * num_nodes
    )


def test_a_layout_is_found_by_its_samples_and_others_are_told(dataset: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "scratch": str(tmp_path)}
    first = pack(dataset, **options)
    assert [step["step"] for step in first.steps] == [
        "sample epoch 0",
        "sample epoch 1",
        "copy rows in memory",
        "lay out epoch 0",
        "pack epoch 0",
        "lay out epoch 1",
        "pack epoch 1",
    ]
    assert pack(dataset, **options).steps == []
    for name, value in (("seed", 1), ("fanout", (4, 3)), ("batch_size", 24)):
        told = Told()
        result = train(dataset, **{**options, "store": "packed", name: value, "callbacks": [told], "epochs": 1}).result
        assert result["plan"]["layout"] == ""
        remark = next(reason for reason in told.reasons if str(first.layout.path) in reason)
        assert "is not used" in remark
        assert {"seed": "seed 0, not 1", "fanout": "fanouts [4, 4], not [4, 3]"}.get(
            name, f"{name} 25, not 24"
        ) in remark
        assert any("Packing: during training" in reason for reason in told.reasons)


def test_a_smaller_cache_than_the_layout_was_made_for_does_not_use_it(dataset: Dataset, tmp_path: Path) -> None:
    pack_small(dataset, tmp_path)
    told = Told()
    train(
        dataset,
        **{
            **OPTIONS,
            "store": "packed",
            "scratch": str(tmp_path),
            "cache_bytes": 1000,
            "callbacks": [told],
            "epochs": 1,
        },
    )
    assert any("--cache 1 KB" in reason and "is not used" in reason for reason in told.reasons)


def test_a_named_disk_bounds_a_layout_that_is_found(dataset: Dataset, tmp_path: Path) -> None:
    # Without a size half of the disk is free: every batch has its own rows.
    layout = pack_small(dataset, tmp_path).layout
    assert not layout.has_shared_rows
    taken = layout.num_bytes
    assert taken <= sum(path.stat().st_size for path in layout.path.iterdir())
    reasons = {}
    for disk_bytes in (taken, taken - 1):
        told = Told()
        run_losses(dataset, store="packed", scratch=str(tmp_path), epochs=1, disk_bytes=disk_bytes, callbacks=[told])
        reasons[disk_bytes] = [reason for reason in told.reasons if str(layout.path) in reason]
    assert reasons[taken][0].startswith("Using ")
    (refusal,) = reasons[taken - 1]
    needed = f"use --disk {-(-taken // 1_000_000)}MB to train from it"
    assert f"{layout.path} is not used: it takes " in refusal
    assert refusal.endswith(needed)
    # Where it fits, it is taken; a smaller size is packed again, and kept.
    options = {**OPTIONS, "scratch": str(tmp_path)}
    assert pack(dataset, **options, disk=taken).layout == layout
    smaller = pack(dataset, **options, disk="2MB").layout
    assert smaller.num_bytes <= 2_000_000 < taken
    # More disk avoids shared rows, and training then takes the layout without.
    shutil.rmtree(layout.path)
    larger = pack(dataset, **options, disk="10MB").layout
    assert (smaller.has_shared_rows, larger.has_shared_rows) == (True, False)
    told = Told()
    run_losses(dataset, store="packed", scratch=str(tmp_path), epochs=1, callbacks=[told])
    assert any(f"packed in {larger.path}" in reason for reason in told.reasons)


def test_a_layout_that_memory_has_no_room_for_hides_no_smaller_one(dataset: Dataset, tmp_path: Path) -> None:
    """The larger one has more epochs, and would be preferred."""
    smallest_bytes = {}
    layouts = {}
    for cache_bytes, epochs in ((400_000, 3), (2_000, 2)):
        layout = pack_small(dataset, tmp_path, cache_bytes=cache_bytes, epochs=epochs).layout
        config, _, task = resolve_config(dataset, {**OPTIONS, "store": "packed", "cache_bytes": 0})
        assert isinstance(config, SampledConfig)
        workload = training_workload(config, task.seeds, task.held, dataset.num_nodes)
        with pytest.raises(BudgetError) as refused:
            choose_plan(dataset, replace(workload, prepared=layout), Budget(1))
        assert refused.value.smallest_bytes is not None
        smallest_bytes[cache_bytes], layouts[cache_bytes] = refused.value.smallest_bytes, layout.path
    assert smallest_bytes[2_000] < smallest_bytes[400_000]
    for memory_bytes, cache_bytes in ((smallest_bytes[400_000], 400_000), (smallest_bytes[400_000] - 1, 2_000)):
        options = {**OPTIONS, "store": "packed", "cache_bytes": 0, "epochs": 3, "memory_bytes": memory_bytes}
        result = train(dataset, **{**options, "scratch": str(tmp_path)}).result
        assert result["plan"]["layout"] == str(layouts[cache_bytes])


def test_a_dataset_made_again_has_no_use_for_an_old_layout(tmp_path: Path) -> None:
    old = small_graph(tmp_path / "graph")
    path = pack_small(old, tmp_path / "scratch").layout.path
    shutil.rmtree(tmp_path / "graph")
    new = small_graph(tmp_path / "graph", seed=2)
    told = Told()
    options = {**OPTIONS, "store": "packed", "scratch": str(tmp_path / "scratch"), "callbacks": [told], "epochs": 1}
    assert train(new, **options).result["plan"]["layout"] == ""
    assert any(f"{path} is not used: its batches have dataset_hash" in reason for reason in told.reasons)


def test_a_disk_budget_too_small_names_one_that_works(dataset: Dataset, tmp_path: Path) -> None:
    least = smallest_disk(dataset, tmp_path / "a")
    layout = pack_small(dataset, tmp_path / "b", disk_bytes=least).layout
    num_bytes = sum(path.stat().st_size for path in layout.path.iterdir())
    assert num_bytes <= least
    for epoch in layout.epochs:
        assert epoch.segment > 1


@pytest.mark.fast(6)
@pytest.mark.parametrize("name", ["layout.json", "held.bin", "held_ids.bin", "epoch-0.bin"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_layout_is_refused_by_the_file(dataset: Dataset, tmp_path: Path, name: str, damage: str) -> None:
    layout = pack_small(dataset, tmp_path).layout
    path = layout.path / name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2 if name != "epoch-0.bin" else 5000] ^= 1
        path.write_bytes(content)
    told = Told()
    options = {**OPTIONS, "store": "packed", "scratch": str(tmp_path), "callbacks": [told]}
    if name == "layout.json" or (name == "epoch-0.bin" and damage != "flipped"):
        # It is not taken for one; the run continues without.
        assert train(dataset, **options).result["plan"]["layout"] == ""
        assert (damage == "gone" and name == "layout.json") or any("is not used" in reason for reason in told.reasons)
    else:
        with pytest.raises((FormatError, OSError), match=name.replace(".", r"\.")):
            train(dataset, **options)


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_every_flipped_byte_that_is_read_is_found(tmp_path: Path, count: int) -> None:
    graph = small_graph(tmp_path / "graph", num_nodes=60, num_edges=240, dim=5)
    options: dict[str, Any] = {"batch_size": 15, "fanout": (2, 2), "epochs": 1, "cache_bytes": 120}
    layout = pack_small(graph, tmp_path / "scratch", **options).layout
    path = layout.epoch_path(0)
    content = path.read_bytes()
    source = open_pack_file(path, {})
    # Of every chunk the head, without the zeros in it, and what follows; and the file's last block.
    counting = [range(len(content) - 4096, len(content) - 4000)]
    for chunk in source.chunks:
        counting += [range(chunk.offset, chunk.offset + 80), range(chunk.offset + 4088, chunk.offset + 4096)]
        counting.append(range(chunk.offset + 4096, chunk.offset + 4096 + 2 * chunk.num_nodes))
        counting.append(range(chunk.rows_offset, chunk.rows_offset + chunk.rows_bytes))
    source.close()
    generator = np.random.default_rng(0)
    wanted = {**OPTIONS, **options, "store": "packed", "scratch": str(tmp_path / "scratch")}
    for places in counting:
        for place in generator.choice(places, min(count, len(places)), replace=False).tolist():
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(generator.integers(8))
            path.write_bytes(damaged)
            with pytest.raises(FormatError, match=r"epoch-0\.bin"):
                train(graph, **wanted)
    path.write_bytes(content)
    assert train(graph, **wanted).result["plan"]["layout"] == str(layout.path)


def test_an_epoch_of_another_layout_in_its_place_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    first = pack_small(dataset, tmp_path / "a").layout
    second = pack_small(dataset, tmp_path / "b", seed=1).layout
    shutil.copy(second.epoch_path(0), first.epoch_path(0))
    manifest = json.loads((first.path / "layout.json").read_text())
    if manifest["epochs"][0]["num_bytes"] == first.epoch_path(0).stat().st_size:
        with pytest.raises(FormatError, match=r"epoch-0\.bin.*of other batches: its seed is 1, not 0"):
            train(dataset, **{**OPTIONS, "store": "packed", "scratch": str(tmp_path / "a")})
    else:
        with pytest.raises(FormatError, match=r"epoch-0\.bin: has \d+ bytes, not"):
            open_layout(first.path, dataset.feature_table())  # type: ignore[arg-type]


def test_reuse_packs_one_epoch_first_and_trains_all_on_it(dataset: Dataset, tmp_path: Path) -> None:
    told = Told()
    options = {**OPTIONS, "store": "packed", "scratch": str(tmp_path), "reuse": True, "epochs": 3, "callbacks": [told]}
    result = train(dataset, **options).result
    steps = [step["step"] for step in result["preparation"]]
    assert steps == ["sample epoch 0", "copy rows in memory", "lay out epoch 0", "pack epoch 0"]
    assert len(told.announcements) == 1
    assert all(epoch["bytes_read"] == result["epochs"][0]["bytes_read"] for epoch in result["epochs"])
    assert result["preparation_seconds_per_epoch"] == sum(step["seconds"] for step in result["preparation"]) / 3
    again = train(dataset, **options).result
    assert again["preparation"] == result["preparation"]


def test_with_a_disk_for_all_epochs_a_run_packs_them_first(dataset: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "store": "packed", "scratch": str(tmp_path), "epochs": 3}
    result = train(dataset, **options, disk_bytes=100_000_000).result
    assert len(result["preparation"]) == 10
    assert run_losses(dataset, **options) == run_losses(dataset, store="memory", cache_bytes=0, epochs=3)


def test_a_dataset_without_features_has_nothing_to_pack(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph", dim=0)
    with pytest.raises(ConfigError, match="has no features to pack"):
        pack_small(graph, tmp_path / "scratch", cache_bytes=0)
    assert not (tmp_path / "scratch").exists()


def test_another_machine_trains_from_a_copied_layout(dataset: Dataset, tmp_path: Path) -> None:
    made = pack_small(dataset, tmp_path / "here").layout
    shutil.copytree(made.path, tmp_path / "there" / made.path.name)
    shutil.rmtree(tmp_path / "here")
    shutil.copytree(dataset.path, tmp_path / "dataset")
    result = train(
        open_dataset(tmp_path / "dataset"), **{**OPTIONS, "store": "packed", "scratch": str(tmp_path / "there")}
    ).result
    assert result["plan"]["layout"] == str(tmp_path / "there" / made.path.name)
