"""A run learns, repeats to the last bit, says what it did, and refuses what cannot work."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diskhop.config.node_kinds import KINDS
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import StoredArrays
from diskhop.errors import BudgetError, ConfigError, DestinationError, DiskhopError, TrainingError
from diskhop.pipeline.batch import MiniBatch
from diskhop.pipeline.stream import BatchStream
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.start import run_config, train
from tests.examples import examples
from tests.runs import OPTIONS, StageCounter, assert_same_run, import_arrays, losses, random_arrays, small_graph

RESULT_NAMES = {"version", "dataset", "seed", "peak_rss_bytes", "overhead_bytes", "plan", "epochs", "metric", "test"}
EPOCH_NAMES = {
    *("epoch", "seconds", "loss", "valid", "batches", "sample_seconds", "fetch_seconds", "compute_seconds"),
    *("stall_seconds", "rows_requested", "rows_hit", "rows_filled", "reads", "bytes_needed", "bytes_read"),
}


# Any value of the right type, and a few of the wrong one.
ANY_NUMBER = st.sampled_from([-1, 0, 1, 2, 7, 10**6, 2**31, 2**63, 10**400]) | st.integers()
ANY_VALUE: dict[Any, st.SearchStrategy[Any]] = {
    int: ANY_NUMBER,
    float: st.floats() | ANY_NUMBER,
    bool: st.booleans(),
    str: st.sampled_from(["sage", "gcn", "gat", "sign", "none", "auc", "direct", "threads", ""]),
}
ANY_OPTIONS = {
    name: ANY_VALUE.get(kind, st.lists(ANY_NUMBER, max_size=4).map(tuple)) | st.none()
    for kinds in KINDS
    for name, kind in get_type_hints(kinds).items()
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def test_a_run_learns_and_leaves_what_it_found(dataset: Dataset, tmp_path: Path) -> None:
    trained = train(dataset, out=tmp_path / "run", store="direct", **{**OPTIONS, "epochs": 20, "lr": 0.01})
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result == json.loads(json.dumps(trained.result))
    assert result.keys() >= RESULT_NAMES
    assert result["test"]["accuracy"] > 0.7  # By chance 0.25.
    assert result["best_valid"] == max(epoch["valid"] for epoch in result["epochs"])
    assert result["plan"]["reserved"].keys() >= {"labels", "seeds", "topology", "mini-batches in flight"}
    assert [epoch["epoch"] for epoch in result["epochs"]] == list(range(20))
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result["epochs"]
    for epoch in result["epochs"]:
        assert epoch.keys() >= EPOCH_NAMES
        assert epoch["batches"] == 6
        assert epoch["bytes_needed"] == epoch["rows_requested"] * 16 * 4 > 0
        # Batches in flight share reads: less may be read than they need together.
        assert epoch["bytes_read"] > 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("config.toml", "schema.json", "plan.json", "metrics.jsonl", "result.json"),
        *("checkpoint.safetensors", "model.safetensors"),
    }


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_config_toml_repeats_a_run_to_the_last_bit(dataset: Dataset, tmp_path: Path, model: str) -> None:
    train(dataset, out=tmp_path / "one", model=model, **{**OPTIONS, "threads": 2})
    train(config=tmp_path / "one/config.toml", out=tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one/config.toml").read_bytes() == (tmp_path / "two/config.toml").read_bytes()


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "changes",
    [
        *({"store": store} for store in ("memory", "mapped", "pread", "static", "belady", "packed")),
        {"store": "shared", "ordered": True},
        {"memory_bytes": 20_000_000},
    ],
)
def test_a_strategy_changes_time_never_values(dataset: Dataset, tmp_path: Path, changes: dict[str, Any]) -> None:
    train(dataset, out=tmp_path / "one", **OPTIONS)
    train(dataset, out=tmp_path / "two", **{**OPTIONS, **changes})
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_batches_out_of_order_are_another_course_to_the_same_end(dataset: Dataset, tmp_path: Path) -> None:
    ordered, free = (
        train(dataset, **{**OPTIONS, "store": "shared", "ordered": is_ordered, "epochs": 20, "lr": 0.01}).result
        for is_ordered in (True, False)
    )
    assert not any("out of order" in reason for reason in ordered["plan"]["reasons"])
    assert any("Batches arrive out of order" in reason for reason in free["plan"]["reasons"])
    assert any(
        reason.startswith("2 sampling threads; ") and "fetched concurrently" in reason
        for reason in free["plan"]["reasons"]
    )
    for result in (ordered, free):
        epoch = result["epochs"][-1]
        assert epoch["rows_hit"] + epoch["rows_shared"] > 0
        assert "feature buffer" in result["plan"]["reserved"]
    assert [epoch["batches"] for epoch in ordered["epochs"]] == [epoch["batches"] for epoch in free["epochs"]]
    # Courses of a few epochs may differ by more than chance; both end where other stores do.
    assert min(ordered["test"]["accuracy"], free["test"]["accuracy"]) > 0.7


@pytest.mark.parametrize("model", ["sage", pytest.param("gcn", marks=pytest.mark.slow)])
def test_bfloat16_learns_and_repeats_to_the_last_bit(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options = {**OPTIONS, "model": model, "epochs": 20, "lr": 0.01, "precision": "bfloat16", "threads": 2}
    result = train(dataset, out=tmp_path / "one", **options).result
    assert result["test"]["accuracy"] > 0.7
    train(config=tmp_path / "one/config.toml", out=tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_what_multiplies_is_chosen_with_a_reason_and_kept_in_the_config(dataset: Dataset, tmp_path: Path) -> None:
    config, choices, _ = resolve_config(dataset, {"threads": 1})
    chosen = next(choice for choice in choices if choice.option == "matmul")
    assert chosen.value == config.matmul
    assert chosen.why.startswith("preferred unless another is over 15 % faster; GFLOP/s in float32: ")
    train(dataset, out=tmp_path / "run", **OPTIONS)
    assert f'matmul = "{config.matmul}"' in (tmp_path / "run/config.toml").read_text()
    assert all(choice.option != "matmul" for choice in resolve_config(dataset, {"matmul": "blas"}).choices)


def test_another_seed_is_another_run(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, out=tmp_path / "one", **OPTIONS)
    train(dataset, out=tmp_path / "two", seed=1, **OPTIONS)
    assert losses(tmp_path / "one") != losses(tmp_path / "two")


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"model": "transformer"}, ConfigError, "unknown model 'transformer'.*sage, gcn, gat"),
        ({"metric": "f1"}, ConfigError, "unknown metric 'f1'.*accuracy, auc"),
        ({"precision": "float8"}, ConfigError, "unknown precision 'float8'.*float32, bfloat16"),
        ({"matmul": "cublas"}, ConfigError, "unknown matmul 'cublas'.*mkl, blas, onednn, mixed"),
        ({"norm": "group"}, ConfigError, "unknown norm 'group'.*none, batch, layer"),
        ({"store": "cloud"}, ConfigError, "unknown store 'cloud'.*memory"),
        ({"engine": "warp"}, ConfigError, "unknown engine 'warp'|engine 'warp'"),
        ({"epoch": 3}, ConfigError, "unknown option 'epoch'.*did you mean 'epochs'"),
        ({"preset": "mars"}, ConfigError, "unknown preset 'mars'.*cora, oewn, tolokers"),
        ({"split": 5}, ConfigError, "no split 5"),
        ({"memory_bytes": 100_000}, BudgetError, "the smallest that works is"),
        ({"metric": "auc"}, ConfigError, "auc needs two classes, the dataset has 4"),
        ({"batch_size": 0}, ConfigError, "batch_size must be from 1 .*, got 0"),
        ({"max_batches": -1}, ConfigError, "max_batches must be from 0 .*, got -1"),
        ({"layers": 0, "fanout": (4,)}, ConfigError, "layers must be from 1 to 100, got 0"),
        ({"layers": 10**12, "fanout": (4,)}, ConfigError, "layers must be from 1 to 100, got 1000000000000"),
        ({"heads": 0, "model": "gat"}, ConfigError, "heads must be from 1"),
        ({"threads": 10**6}, ConfigError, "threads must be from 1 to 1024"),
        ({"fanout": (4, 0)}, ConfigError, "fanout must be counts from 1"),
        ({"fanout": ()}, ConfigError, "fanout must be one count for each of 2 layers"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    dataset: Dataset, tmp_path: Path, options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        train(dataset, out=tmp_path / "run", **{**OPTIONS, **options})
    assert not (tmp_path / "run").exists()


@examples(300, [HealthCheck.function_scoped_fixture])
@given(options=st.fixed_dictionaries({}, optional=ANY_OPTIONS))
def test_whatever_the_options_are_they_resolve_or_are_refused(dataset: Dataset, options: dict[str, Any]) -> None:
    try:
        config = resolve_config(dataset, options).config
    except DiskhopError:
        return
    if isinstance(config, SampledConfig):
        assert len(config.fanout) == len(config.eval_fanout) == config.layers
    assert config.batch_size >= 1


@pytest.mark.fast(2)
@pytest.mark.parametrize("part", ["val_idx", "test_idx"])
@pytest.mark.parametrize("as_tasks", [False, True])
def test_a_part_of_one_class_cannot_be_measured_by_auc(tmp_path: Path, part: str, as_tasks: bool) -> None:
    arrays = random_arrays(200)
    labels = np.arange(200) % 2
    arrays |= {"train_idx": np.arange(60), "val_idx": np.arange(60, 100), "test_idx": np.arange(100, 150)}
    labels[arrays[part]] = 1
    arrays["y"] = labels.astype(np.float32)[:, None] if as_tasks else labels
    graph = import_arrays(tmp_path, **arrays)
    name = {"val_idx": "valid", "test_idx": "test"}[part]
    with pytest.raises(ConfigError, match=f"both classes, split '{name}' has {len(arrays[part])} of one"):
        train(graph, out=tmp_path / "run", **{**OPTIONS, "metric": "auc"})
    assert not (tmp_path / "run").exists()
    train(graph, **{**OPTIONS, "metric": "auc", "evaluate": False})
    train(graph, **{**OPTIONS, "metric": "accuracy"})


def count_label_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reads: list[str] = []
    read = StoredArrays.read

    def counting(self: StoredArrays, relative: str, dtype: Any) -> Any:
        reads.append(Path(relative).name)
        return read(self, relative, dtype)

    monkeypatch.setattr(StoredArrays, "read", counting)
    return reads


def test_labels_are_read_once(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count_label_reads(monkeypatch)
    train(dataset, **OPTIONS)
    assert sorted(reads) == ["labels.bin", "test.bin", "train.bin", "valid.bin"]


@pytest.mark.parametrize("splits", ["given", "drawn"])
def test_a_budget_without_room_for_labels_is_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: str
) -> None:
    arrays = random_arrays(2000)
    if splits == "given":
        arrays |= {"train_idx": np.arange(60), "val_idx": np.arange(60, 100), "test_idx": np.arange(100, 150)}
    graph = import_arrays(tmp_path, **arrays)
    reads = count_label_reads(monkeypatch)
    with pytest.raises(BudgetError, match=r"labels 16 KB.*the smallest that works is") as caught:
        train(graph, **{**OPTIONS, "memory_bytes": 15_999})
    assert "labels.bin" not in reads
    assert caught.value.smallest_bytes is not None
    smallest = {**OPTIONS, "memory_bytes": caught.value.smallest_bytes}
    assert train(graph, **smallest).result["plan"]["reserved"]["labels"] == 16_000
    with pytest.raises(BudgetError):
        train(graph, **{**smallest, "memory_bytes": caught.value.smallest_bytes - 1})


def test_memory_is_told_before_and_beside_the_graph(dataset: Dataset) -> None:
    result = train(dataset, **OPTIONS).result
    before, overhead, peak = (result[f"{name}_bytes"] for name in ("resident_before", "overhead", "peak_rss"))
    assert 50_000_000 < before <= overhead <= peak  # PyTorch alone is more.
    assert overhead == max(before, peak - sum(result["plan"]["reserved"].values()))


def test_no_batch_is_held_while_the_next_is_waited_for(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    delivered: list[weakref.ref[torch.Tensor]] = []
    take_next = BatchStream.__next__

    def watching(self: BatchStream) -> MiniBatch:
        try:
            batch = take_next(self)
        finally:
            assert all(x() is None for x in delivered), "the model's side still holds an earlier batch"
        delivered.append(weakref.ref(batch.x))
        return batch

    monkeypatch.setattr(BatchStream, "__next__", watching)
    for model in ("sage", "gcn", "gat"):
        train(dataset, model=model, **{**OPTIONS, "epochs": 2, "eval_batch_size": 10})
    assert len(delivered) > 3 * 2 * 6


def test_a_folder_with_something_in_it_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(DestinationError, match="already exists and is not empty"):
        train(dataset, out=tmp_path, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_loss_that_is_not_finite_stops_the_run(dataset: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) in epoch \d, batch \d, with learning rate 1e\+30"):
        train(dataset, **{**OPTIONS, "lr": 1e30})


def test_no_labels_is_told_in_one_line(tmp_path: Path) -> None:
    arrays = random_arrays()
    del arrays["y"]
    with pytest.raises(ConfigError, match="has no labels, which training needs"):
        train(import_arrays(tmp_path, **arrays), **OPTIONS)


def test_a_dataset_alone_is_enough_and_every_choice_has_a_reason(dataset: Dataset) -> None:
    config, choices, _ = resolve_config(dataset, {})
    assert config.model == "sage"
    named = {choice.option for choice in choices}
    assert named >= {"model", "fanout", "batch_size", "epochs", "metric", "memory_bytes", "store", "threads"}
    assert all(choice.value and choice.why for choice in choices)


def test_without_splits_one_is_drawn_of_the_labelled_nodes(tmp_path: Path) -> None:
    arrays = random_arrays(200)
    arrays["y"][150:] = -1
    arrays["x"][150:] = 0
    graph = import_arrays(tmp_path, **arrays)
    choices = resolve_config(graph, OPTIONS).choices
    assert ("split", "90 train, 30 valid, 30 test", "random, since the dataset has none") in choices
    assert train(graph, **{**OPTIONS, "epochs": 20, "lr": 0.01}).result["test"]["accuracy"] > 0.6


def test_nodes_without_label_are_left_out_and_counted(tmp_path: Path) -> None:
    arrays = random_arrays(200)
    arrays["y"][:10] = -1
    arrays |= {"train_idx": np.arange(60), "val_idx": np.arange(60, 100), "test_idx": np.arange(100, 150)}
    graph = import_arrays(tmp_path, **arrays)
    config, choices, _ = resolve_config(graph, OPTIONS)
    assert ("train", "50 nodes", "10 more of the split have no label") in choices
    assert run_config(graph, config).result["epochs"][0]["batches"] == 1


@pytest.mark.parametrize("store", ["direct", "shared"])
def test_without_features_the_degrees_are_learnt_from(tmp_path: Path, store: str) -> None:
    generator = np.random.default_rng(0)
    num_edges = 1500
    targets = generator.integers(0, 100, num_edges)  # The first half is cited, the second is not.
    arrays: dict[str, Any] = {
        "edge_index": np.stack([generator.integers(0, 200, num_edges), targets]),
        "y": (np.arange(200) < 100).astype(np.int64),
        "num_nodes": np.array(200),
    }
    options = {**OPTIONS, "epochs": 20, "lr": 0.01, "metric": "auc", "store": store}
    result = train(import_arrays(tmp_path, **arrays), **options).result
    assert result["test"]["auc"] > 0.95


def test_max_batches_and_no_evaluation_do_no_more_than_asked(dataset: Dataset) -> None:
    counter = StageCounter()
    result = train(dataset, callbacks=[counter], **{**OPTIONS, "max_batches": 2, "evaluate": False, "epochs": 3}).result
    assert counter.num_batches == {"train": 3 * 2}
    assert "test" not in result
    assert "best_valid" not in result
    assert all("valid" not in epoch for epoch in result["epochs"])
    assert result["best_epoch"] == 2


def test_patience_ends_a_run_that_gets_no_better(dataset: Dataset) -> None:
    # A step too small to change a prediction: the first epoch stays the best.
    result = train(dataset, **{**OPTIONS, "lr": 1e-12, "epochs": 50, "patience": 3}).result
    assert [epoch["epoch"] for epoch in result["epochs"]] == [0, 1, 2, 3]
    assert result["best_epoch"] == 0


def test_validation_is_as_often_as_asked_and_at_the_end(dataset: Dataset) -> None:
    result = train(dataset, **{**OPTIONS, "epochs": 5, "eval_every": 2}).result
    assert ["valid" in epoch for epoch in result["epochs"]] == [False, True, False, True, True]


def test_the_best_model_on_validation_is_the_one_that_is_tested(dataset: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "lr": 0.3, "epochs": 6}  # A rate that makes validation jump.
    result = train(dataset, out=tmp_path / "long", **options).result
    best = result["best_epoch"]
    assert best == int(np.argmax([epoch["valid"] for epoch in result["epochs"]]))
    shorter = train(dataset, out=tmp_path / "short", **{**options, "epochs": best + 1}).result
    assert shorter["test"] == result["test"]
    names = [tmp_path / run / "model.safetensors" for run in ("long", "short")]
    assert names[0].read_bytes() == names[1].read_bytes()
