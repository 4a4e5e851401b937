"""Training with LABOR, LADIES and FastGCN: the same run from any store, it learns, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import SAMPLERS
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import neighbor_spec
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import pack
from diskhop.runs.nodes.samplers import draws_all, eval_sampler, train_sampler
from diskhop.runs.start import train
from diskhop.sampling import samplers
from diskhop.sampling.importance import importance_spec
from tests.runs import OPTIONS, assert_same_run, import_arrays, random_arrays, small_graph

CHOICES: list[dict[str, Any]] = [
    {"sampler": "labor"},
    {"sampler": "labor", "importance": 1, "batch_dependency": 4},
    {"sampler": "ladies", "fanout": (200, 200)},
    {"sampler": "fastgcn", "fanout": (450, 450)},
]


def words(chosen: dict[str, Any]) -> str:
    return "-".join(f"{name}={value}" for name, value in chosen.items())


each_choice = pytest.mark.parametrize("chosen", CHOICES, ids=words)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def run(dataset: Dataset, out: Path, **options: Any) -> dict[str, Any]:
    return train(dataset, **{**OPTIONS, "model": "sage", "self_term": False, **options}, out=out).result


def test_training_has_every_sampler_of_the_registry_that_starts_from_seeds() -> None:
    assert set(SAMPLERS) <= set(samplers.SAMPLERS)


@pytest.fixture(scope="module")
def plain_loss(dataset: Dataset, module_folder: Path) -> float:
    """The first epoch's, by neighbour sampling without options."""
    return float(run(dataset, module_folder / "plain", store="memory")["epochs"][0]["loss"])


@pytest.mark.fast(2)
@each_choice
def test_a_run_is_the_same_from_any_store(
    dataset: Dataset, tmp_path: Path, chosen: dict[str, Any], plain_loss: float
) -> None:
    results = [
        run(dataset, tmp_path / store, **chosen, store=store, threads=threads)
        for store, threads in (("memory", 1), ("direct", 4), ("belady", 2), ("packed", 1))
    ]
    for store in ("direct", "belady", "packed"):
        assert_same_run(tmp_path / "memory", tmp_path / store)
    assert len({str(result["test"]) for result in results}) == 1
    assert plain_loss != results[0]["epochs"][0]["loss"]


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    ("chosen", "model"),
    [
        pytest.param(chosen, model, marks=pytest.mark.slow if (number + (model == "gcn")) % 2 else ())
        for number, chosen in enumerate(CHOICES)
        for model in ("sage", "gcn")
    ],
    ids=str,
)
def test_it_learns_what_neighbour_sampling_learns(
    dataset: Dataset, tmp_path: Path, chosen: dict[str, Any], model: str
) -> None:
    options = {"model": model, "epochs": 20, "lr": 0.01}
    plain = run(dataset, tmp_path / "plain", **options)["test"]["accuracy"]
    assert run(dataset, tmp_path / "other", **options, **chosen)["test"]["accuracy"] > plain - 0.05


def test_weights_of_the_graph_multiply_those_of_the_sampler(tmp_path: Path) -> None:
    arrays = random_arrays()
    weights = (1 + arrays["edge_index"][0] % 5).astype("float32")
    graph = import_arrays(tmp_path, **arrays, edge_weight=weights)
    chosen = {"sampler": "ladies", "fanout": (100, 100), "model": "gcn"}
    used, ignored = (
        run(graph, tmp_path / edge_weights, **chosen, edge_weights=edge_weights)["epochs"][0]["loss"]
        for edge_weights in ("use", "ignore")
    )
    assert used != ignored


def test_batches_that_were_packed_ahead_are_those_of_the_sampler(dataset: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "scratch": str(tmp_path / "scratch"), "disk_bytes": 10**9}
    labor: dict[str, Any] = {"sampler": "labor", "batch_dependency": 8}
    pack(dataset, **options, **labor)
    packed = run(dataset, tmp_path / "packed", **options, **labor, store="packed")
    assert packed["plan"]["layout"]
    run(dataset, tmp_path / "direct", **labor, store="direct")
    assert_same_run(tmp_path / "packed", tmp_path / "direct")
    other = run(dataset, tmp_path / "other", **options, sampler="labor", store="packed")
    assert other["plan"]["layout"] != packed["plan"]["layout"]


def test_validation_draws_neighbours(dataset: Dataset) -> None:
    config, _, _ = resolve_config(dataset, {**OPTIONS, "sampler": "ladies", "fanout": (50,), "eval_fanout": (7,)})
    assert isinstance(config, SampledConfig)
    assert train_sampler(config) == importance_spec("ladies", (50, 50))
    assert eval_sampler(config) == neighbor_spec((7, 7))
    assert not draws_all(config)
    options = {**OPTIONS, "sampler": "labor", "importance": 1, "batch_dependency": 64, "fanout": (-1, -1)}
    config, _, _ = resolve_config(dataset, options)
    assert isinstance(config, SampledConfig)
    assert train_sampler(config) == importance_spec("labor", (-1, -1), importance=1, batch_dependency=64)
    assert not draws_all(config)
    config, _, _ = resolve_config(dataset, {**options, "importance": 0})
    assert isinstance(config, SampledConfig)
    assert draws_all(config)


def test_numbers_of_nodes_are_chosen(dataset: Dataset) -> None:
    options = {name: value for name, value in OPTIONS.items() if "fanout" not in name}
    assert dataset.num_nodes == 600
    for sampler, count in (("ladies", 150), ("fastgcn", 450), ("labor", 10)):
        config, _, _ = resolve_config(dataset, {**options, "sampler": sampler})
        assert isinstance(config, SampledConfig)
        assert config.fanout == (count, count)


@pytest.mark.parametrize(
    ("sampler", "fanout", "batch_size"),
    [("neighbor", -1, 140), ("fastgcn", 450, 140), ("saint-node", -1, 600), ("cluster", -1, 6)],
)
def test_presets_leave_to_a_sampler_what_it_counts(
    dataset: Dataset, sampler: str, fanout: int, batch_size: int
) -> None:
    assert dataset.num_nodes == 600
    config, _, _ = resolve_config(dataset, {"sampler": sampler}, "cora")
    assert isinstance(config, SampledConfig)
    assert (config.fanout, config.batch_size) == ((fanout, fanout), batch_size)
    config, _, _ = resolve_config(dataset, {"sampler": sampler, "batch_size": 7}, "cora")
    assert config.batch_size == 7


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch_dependency": 0, "sampler": "labor"}, "batch_dependency must be from 1"),
    ({"batch_dependency": 4}, "--batch-dependency 4 is for --sampler labor, ladies, fastgcn, got neighbor: remove it"),
    ({"importance": 1, "sampler": "ladies"}, "--importance 1 is for --sampler labor, got ladies: remove it"),
    ({"importance": 2, "sampler": "labor"}, "importance must be"),
    ({"sampler": "labour"}, "sampler must be"),
    ({"sampler": "labor", "weighted": True}, "--weighted is for --sampler neighbor, got labor: remove it"),
    ({"sampler": "fastgcn", "replace": True}, "--replace is for --sampler neighbor, got fastgcn"),
    ({"sampler": "ladies", "subgraph_type": "induced"}, "--subgraph-type is for --sampler neighbor, got ladies"),
    ({"sampler": "ladies", "model": "gat"}, "gat weighs edges itself, and --sampler ladies gives them weights"),
    (
        {"sampler": "labor", "importance": 1, "model": "gat"},
        "gat weighs edges itself, and --sampler labor --importance",
    ),
    ({"sampler": "ladies", "fanout": (5, 5), "layers": 3}, "fanout must be one count for each of 3 layers"),
]


@pytest.mark.parametrize(("options", "error"), REFUSED, ids=str)
def test_options_that_do_not_fit_are_refused_in_one_line(
    dataset: Dataset, tmp_path: Path, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error) as raised:
        run(dataset, tmp_path / "run", **options)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="--sampler is for sage, gcn, gat"):
        train(dataset, model="sgc", sampler="labor", epochs=1)


def test_gat_learns_from_labor(dataset: Dataset, tmp_path: Path) -> None:
    result = run(dataset, tmp_path / "gat", model="gat", sampler="labor", epochs=2)
    assert len(result["epochs"]) == 2


@pytest.mark.parametrize("chosen", [CHOICES[1], pytest.param(CHOICES[2], marks=pytest.mark.slow)], ids=words)
def test_links_are_predicted_from_any_store(dataset: Dataset, tmp_path: Path, chosen: dict[str, Any]) -> None:
    options = {**OPTIONS, **chosen, "task": "link", "metric": "auc", "model": "sage", "evaluate": True}
    for store in ("memory", "belady"):
        train(dataset, **{**options, "store": store}, out=tmp_path / store)
    assert_same_run(tmp_path / "memory", tmp_path / "belady")
