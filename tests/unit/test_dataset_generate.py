"""Generated graphs have the statistics they were asked for, stream, and repeat themselves to the byte."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import FaultInjector, FaultRule, permute_ids, rmat_edges
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DestinationError
from diskhop.generating import GraphConfig, features_alone_accuracy, generate_graph, result_bytes
from diskhop.generating.edges import generated_edges
from diskhop.generating.nodes import GeneratedNodes, class_means
from tests.graphs import folder_bytes, threads_engine

KINDS = ["kronecker", "uniform", "sbm"]
SMALL: dict[str, Any] = {"num_nodes": 3000, "num_edges": 20_000, "dim": 24, "num_classes": 7, "seed": 3}
SBM: dict[str, Any] = {
    "kind": "sbm",
    "num_nodes": 20_000,
    "num_edges": 240_000,
    "dim": 20,
    "num_classes": 7,
    "homophily": 0.6,
    "signal": 1.5,
    "train_fraction": 0.1,
    "eval_fraction": 0.05,
    "seed": 3,
}


def generated(path: Path, threads: int = 1, memory_bytes: int = 1 << 30, **wanted: Any) -> Dataset:
    budget = Budget(memory_bytes)
    return generate_graph(path, GraphConfig(**wanted), engine=threads_engine(), budget=budget, threads=threads)


def all_edges(**wanted: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    edges = generated_edges(GraphConfig(**wanted))
    return edges.read(0, edges.num_edges)


def topology_of(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and destinations, by destination."""
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    sources = np.fromfile(dataset.topology.indices_path, np.uint32).astype(np.int64)
    return sources, np.repeat(np.arange(dataset.num_nodes), np.diff(indptr))


def features_of(dataset: Dataset) -> NDArray[np.float32]:
    table = dataset.feature_table()
    assert table is not None
    return np.fromfile(table.path, np.float32).reshape(dataset.num_nodes, -1)


@pytest.fixture(scope="module")
def sbm(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return generated(tmp_path_factory.mktemp("sbm") / "graph", **SBM)


# -- Edges --


@given(num_nodes=st.integers(1, 2000), seed=st.integers(0, 2**63 - 1), part=st.sampled_from(["ids", "splits"]))
def test_the_permutation_is_a_bijection(num_nodes: int, seed: int, part: Any) -> None:
    for dtype in ("uint32", "int64"):
        ids = np.arange(num_nodes, dtype=dtype)
        permute_ids(num_nodes, seed, part, ids)
        np.testing.assert_array_equal(np.sort(ids), np.arange(num_nodes))


def test_the_permutation_mixes() -> None:
    """Neighbours of a random permutation land a third of the range apart on average."""
    ids = np.arange(100_000)
    permute_ids(100_000, 1, "ids", ids)
    assert np.abs(np.diff(ids)).mean() == pytest.approx(100_000 / 3, rel=0.02)
    assert abs(np.corrcoef(np.arange(100_000), ids)[0, 1]) < 0.02
    other = np.arange(100_000)
    permute_ids(100_000, 2, "ids", other)
    assert (ids == other).sum() < 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("directed", [True, False])
@given(data=st.data())
def test_edges_are_a_function_of_their_number(kind: str, directed: bool, data: st.DataObject) -> None:
    num_nodes = data.draw(st.sampled_from([16, 1000, 1024, 1025, 4_000_000, 2**32 - 1, 2**32, 2**40 + 7]))
    config = GraphConfig(kind=kind, num_nodes=num_nodes, num_edges=2**40, dim=0, num_classes=5, directed=directed)
    edges = generated_edges(config)
    first, count = data.draw(st.integers(0, 2**40)), data.draw(st.integers(0, 3000))
    whole = np.stack(edges.read(first, count))
    assert whole.dtype == (np.uint32 if num_nodes < 2**32 else np.int64)
    assert whole.shape == (2, count)
    assert (whole >= 0).all()
    assert (whole < num_nodes).all()
    cut = data.draw(st.integers(0, count))
    parts = [edges.read(first, cut), edges.read(first + cut, count - cut)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


GOLDEN_EDGES = {
    "kronecker": [[254, 427, 12, 733, 657, 545], [375, 798, 858, 226, 847, 381]],
    "uniform": [[755, 475, 422, 14, 302, 66], [446, 764, 42, 274, 720, 235]],
    "sbm": [[715, 761, 252, 159, 301, 676], [755, 475, 422, 14, 302, 66]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_edges_stay_what_they_are(kind: str) -> None:
    edges = generated_edges(GraphConfig(kind=kind, num_nodes=1000, num_edges=6, dim=0, num_classes=5, seed=42))
    assert np.stack(edges.read(0, 6)).tolist() == GOLDEN_EDGES[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_what_edges_depend_on_is_in_their_identity(kind: str) -> None:
    base: dict[str, Any] = {"kind": kind, **SMALL}
    changes: list[dict[str, Any]] = [{"num_nodes": 3001}, {"num_edges": 9}, {"seed": 4}, {"directed": False}]
    if kind == "kronecker":
        changes.append({"rmat": (0.4, 0.3, 0.2, 0.1)})
    if kind == "sbm":
        changes += [{"homophily": 0.1}, {"num_classes": 5}]
    identities = [generated_edges(GraphConfig(**(base | change))).identity for change in ({}, *changes)]
    assert len(set(identities)) == len(changes) + 1


def test_kronecker_halves_the_matrix_by_its_chances_at_every_level() -> None:
    """Ids are as they were drawn. With 3000 nodes, not a power of 2, draws outside are left out."""
    chances = (0.5, 0.1, 0.3, 0.1)
    sources, destinations = np.empty(100_000, np.uint32), np.empty(100_000, np.uint32)
    rmat_edges(4096, chances, 1, 0, sources, destinations, is_permuted=False)
    for level in range(12):
        shares = np.bincount(2 * (sources >> level & 1) + (destinations >> level & 1), minlength=4) / 100_000
        for share, chance in zip(shares, chances, strict=True):
            assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / 100_000)
    kept = np.empty((2, 100_000), np.uint32)
    rmat_edges(3000, chances, 1, 0, kept[0], kept[1], is_permuted=False)
    assert kept.max() < 3000
    is_inside = (sources < 3000) & (destinations < 3000)
    assert (kept[0][is_inside] == sources[is_inside]).all(), "a first draw that is inside stays"
    # The others are drawn again, whole, and distributed alike.
    again = kept[0][~is_inside]
    assert len(again) > 10_000
    assert np.mean(again < 1000) == pytest.approx(np.mean(sources[is_inside] < 1000), abs=0.02)


def test_kronecker_ids_are_permuted() -> None:
    plain, permuted = np.empty((2, 5000), np.uint32), np.empty((2, 5000), np.uint32)
    rmat_edges(3000, (0.45, 0.22, 0.22, 0.11), 1, 0, plain[0], plain[1], is_permuted=False)
    rmat_edges(3000, (0.45, 0.22, 0.22, 0.11), 1, 0, permuted[0], permuted[1])
    for ids in plain:
        permute_ids(3000, 1, "ids", ids)
    np.testing.assert_array_equal(plain, permuted)


def test_kronecker_degrees_are_skewed_and_uniform_ones_are_not() -> None:
    share = {}
    for kind in ("kronecker", "uniform"):
        degrees = np.bincount(all_edges(kind=kind, **SMALL | {"num_edges": 100_000})[0], minlength=3000)
        share[kind] = np.sort(degrees)[-300:].sum() / 100_000
    assert share["kronecker"] > 0.3
    assert share["uniform"] < 0.15


def test_uniform_ends_are_uniform() -> None:
    sources, destinations = all_edges(kind="uniform", **SMALL | {"num_nodes": 1000, "num_edges": 200_000})
    for cells in (
        np.bincount(sources),
        np.bincount(destinations),
        np.bincount(sources // 50 * 20 + destinations // 50),
    ):
        expected = 200_000 / len(cells)
        # Degrees of freedom: one less than cells; six deviations above the mean.
        assert ((cells - expected) ** 2 / expected).sum() < len(cells) + 6 * math.sqrt(2 * len(cells))


def test_sbm_neighbours_are_homophilous_sorted_and_never_the_node_itself(sbm: Dataset) -> None:
    sources, destinations = topology_of(sbm)
    labels = sbm.labels
    assert labels is not None
    degrees = np.bincount(destinations, minlength=sbm.num_nodes)
    assert verify(sbm.path) == []
    assert sbm.num_edges == 240_000
    assert degrees.var() == pytest.approx(12, rel=0.05)
    assert (np.diff(sources)[np.diff(destinations) == 0] >= 0).all()
    assert (sources != destinations).all()
    # 240 000 draws: three standard deviations are 0.003.
    assert (labels[sources] == labels[destinations]).mean() == pytest.approx(0.6, abs=0.003)
    out_degrees = np.bincount(sources, minlength=sbm.num_nodes)
    assert out_degrees.var() == pytest.approx(12, rel=0.1), "every member of a class is as likely as any other"


@pytest.mark.parametrize("kind", KINDS)
def test_undirected_graphs_are_symmetric(kind: str, tmp_path: Path) -> None:
    dataset = generated(tmp_path / "graph", kind=kind, directed=False, **SMALL)
    sources, destinations = topology_of(dataset)
    assert len(sources) == 40_000
    both = [sorted(zip(*pair, strict=True)) for pair in ((sources, destinations), (destinations, sources))]
    assert both[0] == both[1]


# -- What nodes have --


def test_features_are_class_means_and_unit_noise(sbm: Dataset) -> None:
    labels = sbm.labels
    assert labels is not None
    features = features_of(sbm).astype(np.float64)
    means = np.stack([features[labels == each].mean(axis=0) for each in range(7)])
    # Orthonormal up to the signal; each mean is over 2 857 nodes.
    np.testing.assert_allclose(means @ means.T, 1.5**2 * np.eye(7), atol=0.2)
    noise = features - means[labels]
    assert noise.std() == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(20), atol=0.05)


def test_noise_is_normal() -> None:
    """Kolmogorov and Smirnov's distance of 400 000 values: above 1.95 / sqrt(n) in one of 1000 such tests."""
    config = GraphConfig(kind="uniform", num_nodes=5000, num_edges=0, dim=80, num_classes=0, seed=1)
    values = np.sort(GeneratedNodes(config).features(0, 5000).reshape(-1).astype(np.float64))
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values[::40]])
    ranks = np.arange(len(values))[::40] / len(values)
    assert np.abs(below - ranks).max() < 1.95 / math.sqrt(len(values))
    assert 4 < np.abs(values).max() < 6.7


def test_feature_values_depend_on_node_and_column_only() -> None:
    narrow, wide = (
        GraphConfig(kind="kronecker", num_nodes=500, num_edges=0, dim=dim, num_classes=0, seed=9) for dim in (7, 200)
    )
    whole = GeneratedNodes(wide).features(0, 500)
    np.testing.assert_array_equal(GeneratedNodes(narrow).features(0, 500), whole[:, :7])
    np.testing.assert_array_equal(GeneratedNodes(wide).features(123, 321), whole[123:321])
    order = np.random.default_rng(0).permutation(500).astype(np.uint32)
    np.testing.assert_array_equal(GeneratedNodes(wide, order).features(0, 500), whole[order])


def test_the_first_rows_stay_what_they_are() -> None:
    nodes = GeneratedNodes(GraphConfig(kind="kronecker", num_nodes=9, num_edges=0, dim=3, num_classes=2, seed=42))
    assert nodes.features(0, 2).view(np.uint32).tolist() == [
        [1067153676, 3216160516, 3203757886],
        [1069773112, 3220326822, 1054788932],
    ]
    assert nodes.classes(0, 9).tolist() == [0, 1, 0, 0, 0, 1, 0, 1, 0]
    assert nodes.part("train", 0, 9).tolist() == [6]


@pytest.mark.parametrize(("num_classes", "dim"), [(7, 20), (16, 16), (47, 128), (172, 128), (5, 1)])
def test_class_means_are_orthonormal_as_far_as_there_is_room(num_classes: int, dim: int) -> None:
    means = class_means(num_classes, dim).astype(np.float64)
    products = means @ means.T
    width = 1 << (dim.bit_length() - 1)
    for begin in range(0, num_classes, width):
        group = products[begin : begin + width, begin : begin + width]
        np.testing.assert_allclose(group, np.eye(len(group)), atol=1e-6)
    assert (np.abs(np.triu(products, 1)) < 0.6).all() or dim == 1


def test_the_best_of_features_alone_is_the_nearest_mean(sbm: Dataset) -> None:
    labels, features = sbm.labels, features_of(sbm)
    assert labels is not None
    means = np.stack([features[labels == each].mean(axis=0) for each in range(7)])
    accuracy = (np.argmax(features @ means.T, axis=1) == labels).mean()
    assert accuracy == pytest.approx(features_alone_accuracy(7, 1.5), abs=0.012)


@pytest.mark.parametrize(("num_classes", "signal"), [(2, 0.5), (7, 1.5), (40, 1.0), (40, 3.0), (172, 2.0)])
def test_the_accuracy_agrees_with_drawing(num_classes: int, signal: float) -> None:
    projections = np.random.default_rng(5).standard_normal((60_000, num_classes), np.float32)
    projections[:, 0] += signal
    drawn = (projections.argmax(axis=1) == 0).mean()
    assert features_alone_accuracy(num_classes, signal) == pytest.approx(drawn, abs=0.007)


def test_the_accuracy_has_its_limits() -> None:
    assert features_alone_accuracy(10, 0.0) == pytest.approx(0.1, abs=1e-9)
    assert features_alone_accuracy(10, 30.0) == pytest.approx(1.0, abs=1e-9)
    # Two classes: Phi(signal / sqrt(2)).
    assert features_alone_accuracy(2, 1.0) == pytest.approx(0.7602499389065233, abs=1e-9)


def test_classes_are_uniform() -> None:
    config = GraphConfig(kind="kronecker", num_nodes=47_000, num_edges=0, dim=0, num_classes=47)
    counts = np.bincount(GeneratedNodes(config).classes(0, 47_000), minlength=47)
    assert len(counts) == 47
    # 46 degrees of freedom: six deviations above the mean.
    assert ((counts - 1000) ** 2 / 1000).sum() < 46 + 6 * math.sqrt(2 * 46)


def test_splits_are_apart_and_of_their_size(sbm: Dataset) -> None:
    parts = [ids for part in ("train", "valid", "test") if (ids := sbm.split(part)) is not None]
    assert [len(ids) for ids in parts] == [2000, 1000, 1000]
    everyone = np.concatenate(parts)
    assert len(np.unique(everyone)) == len(everyone)
    assert (np.diff(parts[0]) > 0).all()
    assert parts[0].mean() == pytest.approx(10_000, rel=0.05)


@pytest.mark.parametrize(
    ("num_nodes", "train_fraction", "sizes"),
    [(1000, 0.1, [100, 20, 20]), (1000, 0.98, [980, 10, 10]), (1000, 1.0, [1000]), (1, 0.1, [1]), (3, 0.1, [1, 1, 1])],
)
def test_splits_by_default(num_nodes: int, train_fraction: float, sizes: list[int], tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"num_nodes": num_nodes, "num_edges": 3, "dim": 0, "num_classes": 2}
    dataset = generated(tmp_path / "graph", kind="uniform", train_fraction=train_fraction, **wanted)
    parts = [ids for part in ("train", "valid", "test") if (ids := dataset.split(part)) is not None]
    assert [len(ids) for ids in parts] == sizes


# -- Whole datasets --


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["input", "hot"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads_and_budget_change_no_byte(kind: str, order: str, dtype: str, tmp_path: Path) -> None:
    wanted = {"kind": kind, "order": order, "dtype": dtype, **SMALL}
    expected = folder_bytes(generated(tmp_path / "one", **wanted).path)
    assert folder_bytes(generated(tmp_path / "two", threads=2, memory_bytes=60_000_000, **wanted).path) == expected
    told = result_bytes(GraphConfig(**wanted))
    actual = sum(len(content) for name, content in expected.items() if name.endswith(".bin") and "/" in name)
    assert told == pytest.approx(actual, rel=0.001)


def test_edges_that_memory_does_not_hold_give_the_same_bytes(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {
        "kind": "kronecker",
        "num_nodes": 5000,
        "num_edges": 3_000_000,
        "dim": 0,
        "num_classes": 0,
    }
    expected = folder_bytes(generated(tmp_path / "in-memory", **wanted).path)
    for threads, memory_bytes in ((1, 30_000_000), (2, 45_000_000)):
        made = generated(tmp_path / f"{threads}", threads=threads, memory_bytes=memory_bytes, **wanted)
        assert folder_bytes(made.path) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_hot_order_is_the_same_graph(kind: str, tmp_path: Path) -> None:
    plain, hot = (generated(tmp_path / order, kind=kind, order=order, **SMALL) for order in ("input", "hot"))
    original_ids = hot.original_ids()
    assert original_ids is not None
    assert plain.original_ids() is None
    assert hot.manifest.node_types["node"].order == "hot"
    assert verify(hot.path) == []
    sources, destinations = topology_of(plain)
    out_degrees = np.bincount(sources, minlength=3000)
    assert original_ids.tolist() == sorted(range(3000), key=lambda node: (-out_degrees[node], node))
    hot_sources, hot_destinations = topology_of(hot)
    renamed = np.stack([original_ids[hot_destinations], original_ids[hot_sources]])
    np.testing.assert_array_equal(renamed[:, np.lexsort(renamed[::-1])], [destinations, sources])
    np.testing.assert_array_equal(features_of(hot), features_of(plain)[original_ids])
    plain_labels, hot_labels = plain.labels, hot.labels
    assert plain_labels is not None
    assert hot_labels is not None
    np.testing.assert_array_equal(hot_labels, plain_labels)
    for part in ("train", "valid", "test"):
        ids, hot_ids = plain.split(part), hot.split(part)
        assert ids is not None
        assert hot_ids is not None
        assert sorted(hot_ids) == ids.tolist()


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    one, other = (folder_bytes(generated(tmp_path / f"{seed}", **SBM | {"seed": seed}).path) for seed in (3, 4))
    differing = {name for name, content in other.items() if one[name] != content}
    assert {"edges/edge/indices.bin", "nodes/node/features.bin", "nodes/node/splits/train.bin"} <= differing


def test_without_features_and_labels_nothing_is_kept_for_them(tmp_path: Path) -> None:
    dataset = generated(tmp_path / "graph", kind="kronecker", **SMALL | {"dim": 0, "num_classes": 0})
    assert dataset.feature_table() is None
    assert dataset.labels is None
    assert dataset.num_splits == 0
    assert {path.name for path in dataset.path.rglob("*.bin")} == {"indptr.bin", "indices.bin", "checksums.bin"}


def test_memory_does_not_grow_with_the_features(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"kind": "uniform", "num_nodes": 300_000, "num_edges": 1000, "dim": 64, "num_classes": 7}
    tracemalloc.start()
    dataset = generated(tmp_path / "graph", threads=2, **wanted)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert features_of(dataset).nbytes == 76_800_000
    assert peak_bytes < 24_000_000


def test_class_means_are_held_once() -> None:
    config = GraphConfig(kind="uniform", num_nodes=10, num_edges=10, dim=1024, num_classes=500)
    tracemalloc.start()
    GeneratedNodes(config)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1.2 * 4 * 1024 * 500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "star"}, "kind 'star' is unknown; the known ones are kronecker, uniform, sbm"),
        ({"order": "cold"}, "order must be one of input, hot, got 'cold'"),
        ({"dtype": "float64"}, "dtype must be one of float32, float16, bfloat16, int8, got 'float64'"),
        ({"num_classes": 0}, "--classes must be at least 2 for kind 'sbm', got 0; for example --classes 16"),
        ({"kind": "uniform", "homophily": None, "num_classes": 1}, "classes must be 0 for no labels, or at least 2"),
        ({"num_nodes": 13}, "nodes must be at least 2 for each class, got 13"),
        ({"num_nodes": 0}, "nodes must be from 1 to"),
        ({"num_edges": -1}, "edges must be from 0 to"),
        ({"num_edges": 2**48, "directed": False}, "edges must be from 0 to"),
        ({"dim": 7}, "dim must be 0, or so large that a power of 2 holds all classes, got 7"),
        ({"dim": -1}, "dim must be from 0 to"),
        ({"homophily": 1.1}, "homophily must be from 0 to 1, got 1.1"),
        ({"kind": "uniform"}, "homophily is for kind 'sbm' only"),
        ({"rmat": (0.25,) * 4}, "rmat is for kind 'kronecker' only"),
        ({"kind": "kronecker", "homophily": None, "rmat": (0.25,) * 3}, "rmat must be four chances"),
        ({"kind": "kronecker", "homophily": None, "rmat": (0.5, 0.5, 0.5, -0.5)}, "rmat must be four chances"),
        ({"kind": "kronecker", "homophily": None, "rmat": (0.0, 0.3, 0.3, 0.4)}, "a at least 0.01, got [0.0, 0.3, 0.3"),
        ({"signal": float("nan")}, "signal must be from 0 to 1000, got nan"),
        ({"train_fraction": 0.0}, "train_fraction must be more than 0"),
        ({"train_fraction": float("nan")}, "train_fraction must be more than 0"),
        ({"eval_fraction": 0.46}, "--eval-fraction must be from 0 to half of what --train-fraction leaves"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_what_cannot_be_made_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GraphConfig(**(SBM | change))
    assert words in str(caught.value)


def test_a_small_graph_needs_little_whatever_the_threads(tmp_path: Path) -> None:
    wanted = SMALL | {"kind": "uniform", "order": "hot"}
    expected = generated(tmp_path / "one", **wanted).hash
    assert generated(tmp_path / "many", threads=64, memory_bytes=20_000_000, **wanted).hash == expected


def test_features_are_made_by_as_many_threads_as_the_budget_has_room_for(tmp_path: Path) -> None:
    wanted = SMALL | {"kind": "uniform", "num_nodes": 20_000, "dim": 256}
    expected = generated(tmp_path / "one", **wanted).hash
    assert generated(tmp_path / "many", threads=64, memory_bytes=20_000_000, **wanted).hash == expected


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="are free"):
        generated(tmp_path / "graph", **SBM | {"num_nodes": 2**40})
    with pytest.raises(BudgetError, match="hot order") as caught:
        generated(tmp_path / "graph", memory_bytes=10_000_000, **SBM | {"order": "hot"})
    assert caught.value.smallest_bytes is not None
    with pytest.raises(BudgetError, match="class means"):
        generated(tmp_path / "graph", memory_bytes=60_000_000, **SMALL | {"kind": "uniform", "num_classes": 10**6})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_failed_is_gone_on_with_by_its_own_graph_only(seed: int, tmp_path: Path) -> None:
    """Partly spilled to disk with seed 1: the same graph goes on from there, another one starts over."""
    wanted: dict[str, Any] = {
        "kind": "kronecker",
        "num_nodes": 5000,
        "num_edges": 3_000_000,
        "dim": 0,
        "num_classes": 0,
    }
    expected = folder_bytes(generated(tmp_path / "whole", seed=seed, **wanted).path)
    (tmp_path / "root").mkdir()
    graph = tmp_path / "root" / "graph"
    engine = threads_engine(FaultInjector([FaultRule("no_space", "writes", 60, once=False)]))
    with pytest.raises(DestinationError) as caught:
        generate_graph(graph, GraphConfig(seed=1, **wanted), engine=engine, budget=Budget(30_000_000), threads=1)
    assert "run the same command again to resume" in str(caught.value.__notes__)
    assert not graph.exists()
    assert folder_bytes(generated(graph, memory_bytes=30_000_000, seed=seed, **wanted).path) == expected
    assert list((tmp_path / "root").iterdir()) == [graph]
