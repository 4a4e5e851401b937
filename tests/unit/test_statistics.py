"""Statistics of datasets equal plain computations, and pages about datasets show them."""

from __future__ import annotations

import re
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diskhop
from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.statistics.columns import ColumnRanges
from diskhop.dataset.statistics.components import Components, UnionFind, components_bytes
from diskhop.dataset.statistics.doubling import DoublingHistogram, bin_of
from diskhop.dataset.statistics.features import measure_features
from diskhop.dataset.statistics.homophily import HomophilyCounts, share_by_chance
from diskhop.dataset.statistics.lists import scan_lists
from diskhop.dataset.statistics.measure import measure_dataset, sampled_positions
from diskhop.dataset.statistics.reach import sample_reach
from diskhop.dataset.statistics.stored_rows import block_starts
from diskhop.reporting.figures import Figure
from diskhop.reporting.html import script_json, visible
from diskhop.reporting.palette import SERIES
from diskhop.reporting.values import values_of
from tests.embedding import small_triples
from tests.graphs import edges_of, make_dataset
from tests.typed import make_typed


def test_bins_double() -> None:
    values = np.array([0, 1, 2, 3, 4, 7, 8, 2**40 - 1, 2**40])
    assert bin_of(values).tolist() == [0, 1, 2, 2, 3, 3, 4, 40, 41]
    histogram = DoublingHistogram()
    histogram.add(values[:7])
    assert histogram.bars() == [("0", 1), ("1", 1), ("2 to 3", 2), ("4 to 7", 2), ("8 to 15", 1)]
    assert (histogram.highest, histogram.mean) == (8, 25 / 7)
    assert DoublingHistogram().bars() == []


@settings(max_examples=40)
@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60), st.integers(1, 9))
def test_components_are_those_of_networkx(num_nodes: int, pairs: list[tuple[int, int]], block: int) -> None:
    edges = np.array([(u % num_nodes, v % num_nodes) for u, v in pairs], np.int64).reshape(-1, 2)
    sets = UnionFind(num_nodes)
    for start in range(0, len(edges), block):
        sets.join(edges[start : start + block, 0], edges[start : start + block, 1])
    graph = networkx.Graph(edges.tolist())
    graph.add_nodes_from(range(num_nodes))
    sizes = sorted(map(len, networkx.connected_components(graph)))
    found = sets.count()
    assert (found.number, found.largest, found.sizes.total) == (len(sizes), sizes[-1], num_nodes)


def test_a_sample_of_every_node_counts_components() -> None:
    """A pair, a triangle and a path longer than the limit: two, and one that counts as no more than one."""
    lists = {
        0: [1],
        1: [0],
        2: [3, 4],
        3: [2, 4],
        4: [2, 3],
        **{v: [max(v - 1, 5), min(v + 1, 24)] for v in range(5, 25)},
    }
    found = sample_reach(25, lambda node, most: np.array(lists[node][:most]), np.arange(25), limit=10)
    assert (found.num_sampled, found.num_limited, found.number) == (25, 20, 3)


def test_columns_equal_numpy_whatever_the_blocks() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    rows[::3, 1], rows[5, 2], rows[:, 3] = 0, np.inf, np.nan
    ranges = ColumnRanges(4)
    for start in range(0, 50, 7):
        ranges.add(rows[start : start + 7])
    good = np.where(np.isfinite(rows), rows, np.nan)[:, :3]
    assert ranges.num_zeros.tolist() == [0, 17, 0, 0]
    assert ranges.num_not_finite.tolist() == [0, 0, 1, 50]
    np.testing.assert_allclose(ranges.means[:3], np.nanmean(good, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ranges.lowest[:3], np.nanmin(good, axis=0))
    np.testing.assert_array_equal(ranges.highest[:3], np.nanmax(good, axis=0))
    assert np.isnan([ranges.lowest[3], ranges.means[3], ranges.highest[3]]).all()


def test_homophily_counts_edges_with_two_labels() -> None:
    counts = HomophilyCounts()
    counts.add(np.array([0, 1, -1, 2]), np.array([0, 2, -1, -1]))
    assert (counts.edges, counts.labelled, counts.same, counts.share) == (4, 2, 1, 0.5)
    assert HomophilyCounts().share is None
    assert share_by_chance(np.array([3, 1])) == 0.625


def test_a_dataset_is_measured_edge_by_edge(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    found = measure_dataset(dataset, Budget(1 << 30))
    edges, labels = edges_of(dataset), dataset.label_rows()
    assert labels is not None
    homophily = found.edges["edge"].homophily
    assert homophily is not None
    assert homophily.share == np.mean([labels[u] == labels[v] for u, v in edges])
    assert found.edges["edge"].degrees.highest == dataset.degrees.max()
    assert found.labels["node"].by_class.tolist() == np.bincount(labels).tolist()
    assert isinstance(found.components, Components)
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(50))
    assert found.components.number == networkx.number_connected_components(graph)
    positions = np.array([0, 5, 5, 299])
    assert scan_lists(dataset.only_edges, positions)[1].tolist() == [edges[each][1] for each in positions]
    small = measure_dataset(dataset, Budget(components_bytes(50) - 1 + (64 << 20)))
    assert not isinstance(small.components, Components), "what does not fit is sampled"


def test_samples_are_bounded_spread_out_and_the_same_in_every_call() -> None:
    assert sampled_positions(10).tolist() == list(range(10))
    drawn = sampled_positions(10**12, most=100, sampled=50)
    assert len(drawn) == 50
    assert (np.diff(drawn) >= 0).all()
    assert drawn.tolist() == sampled_positions(10**12, most=100, sampled=50).tolist()
    starts, rows = block_starts(10**6, 1 << 10, most_bytes=8 << 20)
    assert (len(starts), rows, starts[0]) == (8, 1024, 0)
    assert starts[-1] > 800_000


def test_a_large_table_is_sampled_and_says_so(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=90_000, dim=8)
    whole, part = (measure_features(dataset.only_nodes, most_bytes=most) for most in (1 << 30, 1 << 20))
    assert whole is not None
    assert part is not None
    assert (whole.is_sample, part.is_sample, part.ranges.num_rows) == (False, True, 32768)


@pytest.mark.parametrize("kind", ["plain", "typed", "triples"])
def test_a_page_about_a_dataset(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    makers = {"plain": make_dataset, "typed": make_typed, "triples": small_triples}
    graph = str(makers[kind](tmp_path / "graph").path)  # type: ignore[operator]
    page = tmp_path / "page.html"
    assert run(["inspect", graph, "--html", str(page), "--memory", "100MB"]) == 0
    assert "open it in a browser" in " ".join(capsys.readouterr().out.split())  # a long path is folded
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert text.count('role="img" aria-label="') == text.count('<details class="values">') >= 1
    wanted = {"plain": "by chance", "typed": "Schema", "triples": "relation"}[kind]
    assert wanted in text
    assert run(["inspect", graph, "--html", str(page)]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_what_is_of_the_page_needs_it(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    with pytest.raises(diskhop.DiskhopError, match=r"--memory is of the page; add --html graph\.html"):
        diskhop.inspect(dataset, memory="1GB")
    with pytest.raises(diskhop.DiskhopError, match=r"is an \.html file; use --html .*page\.html"):
        diskhop.inspect(dataset, html=tmp_path / "page.txt")
    with pytest.raises(diskhop.DiskhopError, match="the smallest that works is --memory"):
        diskhop.inspect(dataset, html=tmp_path / "page.html", memory="1MB")
    assert not list(tmp_path.glob("*.html"))


def test_names_are_text_in_charts_and_tables() -> None:
    assert visible("a\nb\0\u202ec") == "a\\nb\\u0000\\u202ec"
    name = "<script>alert(1)</script>\u2028"
    figure = Figure(name, "", [{"type": "bar", "x": [name], "y": [1], "hovertemplate": "%{x}<extra></extra>"}], {})
    text = script_json(figure)
    assert "<" not in text
    assert "&lt;script>alert(1)&lt;/script>\\\\u2028" in text.replace("\\u003c", "<")
    assert values_of(figure).rows == [[name, "1"]]


def test_a_missing_value_is_no_number_in_json() -> None:
    figure = Figure("", "", [{"type": "scatter", "x": [0, 1], "y": [float("nan"), 1.0]}], {})
    assert '"y":[null,1.0]' in script_json(figure)


@pytest.mark.parametrize("color", SERIES)
@pytest.mark.parametrize("card", ["#ffffff", "#161b22"])
def test_colors_have_the_contrast_of_wcag(color: str, card: str) -> None:
    def luminance(text: str) -> float:
        parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(color), luminance(card)))
    assert (high + 0.05) / (low + 0.05) >= 3
