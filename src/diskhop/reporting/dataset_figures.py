"""Charts of a dataset: degrees, labels, features, components and relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.statistics.columns import ColumnRanges
from diskhop.dataset.statistics.components import Components
from diskhop.dataset.statistics.doubling import DoublingHistogram
from diskhop.dataset.statistics.features import FeatureStatistics
from diskhop.dataset.statistics.relations import Relations
from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import BLUE, SERIES, VERMILION, translucent

# More bars than this cannot be read on one chart.
MOST_BARS = 40
# Columns of features that are drawn; of more, every n-th.
_MOST_COLUMNS = 2000


def degree_figure(title: str, degrees: DoublingHistogram, noun: str) -> Figure | None:
    """Return a histogram of degrees, both axes logarithmic; None for fewer than two bars."""
    mean = f"mean {degrees.mean:.3g}, largest {degrees.highest:,}"
    return _histogram(title, f"{mean}; both axes are logarithmic", degrees, noun, "nodes")


def component_figure(components: Components) -> Figure | None:
    """Return a histogram of the sizes of components."""
    return _histogram(
        "Components by size", "both axes are logarithmic", components.sizes, "nodes of a component", "components"
    )


def label_figure(title: str, by_class: NDArray[np.int64], names: Sequence[str] | None) -> Figure | None:
    """Return the nodes of each class, or of the largest ones; None for fewer than two classes."""
    return _largest(title, by_class, names, "class", "nodes", "classes")


def relation_figure(relations: Relations, names: Sequence[str] | None) -> Figure | None:
    """Return the triples of each relation, or of the most frequent ones; None for a single relation."""
    return _largest("Relations", relations.totals, names, "relation", "triples", "relations")


def range_figure(title: str, features: FeatureStatistics) -> Figure | None:
    """Return the mean of each column and the range around it; None for a single column."""
    ranges = features.ranges
    columns = _columns(ranges)
    if len(columns) < 2:
        return None
    x = columns.tolist()
    band = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    lowest, means, highest = ([_rounded(each[place]) for place in x] for each in _bounds(ranges))
    data = [
        {**band, "name": "lowest", "y": lowest},
        {
            **band, "name": "lowest to highest", "y": highest, "fill": "tonexty", "showlegend": True,
            "fillcolor": translucent(BLUE, 0.25),
        },
        {
            "type": "scatter", "mode": "lines" if len(x) > 60 else "lines+markers", "name": "mean", "x": x, "y": means,
            "line": {"color": BLUE, "width": 1.5},
        },
    ]  # fmt: skip
    return Figure(title, _note(features, len(columns)), data, _axes("column", "value"))


def zeros_figure(title: str, features: FeatureStatistics) -> Figure | None:
    """Return the share of zeros of each column; None if there are hardly any, or a single column."""
    ranges = features.ranges
    columns = _columns(ranges)
    shares = ranges.num_zeros / max(1, ranges.num_rows)
    if len(columns) < 2 or shares.mean() < 0.01:
        return None
    data = {
        "type": "scatter", "mode": "lines", "name": "zeros", "x": columns.tolist(), "fill": "tozeroy",
        "y": [_rounded(shares[place]) for place in columns.tolist()], "line": {"color": VERMILION, "width": 1},
    }  # fmt: skip
    layout = _axes("column", "share of zeros")
    layout["yaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    note = f"{shares.mean():.1%} of all values are 0; {_note(features, len(columns))}"
    return Figure(title, note, [data], layout)


def sizes_figure(title: str, sizes: dict[str, int], unit: str) -> Figure | None:
    """Return bars of a few parts, such as those of a split; None for fewer than two."""
    if len(sizes) < 2:
        return None
    return _bars(title, "", list(sizes), list(sizes.values()), _axes("part", unit))


def _histogram(title: str, note: str, histogram: DoublingHistogram, noun: str, unit: str) -> Figure | None:
    bars = histogram.bars()
    if len(bars) < 2:
        return None
    layout = _axes(noun, unit)
    layout["yaxis"] |= {"type": "log", "exponentformat": "power"}
    if max(count for _, count in bars) >= 100:
        layout["yaxis"]["dtick"] = 1
    # A bar of 1 would have no height on a logarithmic axis that begins at 1.
    layout["yaxis"]["range"] = [-0.3, float(np.log10(max(count for _, count in bars))) + 0.1]
    return _bars(title, note, [name for name, _ in bars], [count for _, count in bars], layout)


def _largest(
    title: str, counts: NDArray[np.int64], names: Sequence[str] | None, noun: str, unit: str, nouns: str
) -> Figure | None:
    if len(counts) < 2:
        return None
    shown = np.argsort(-counts, kind="stable")[:MOST_BARS]
    note = "" if len(shown) == len(counts) else f"the {len(shown)} largest of {len(counts):,} {nouns}"
    if note == "":
        shown = np.sort(shown)
    titles = [str(each) if names is None else f"{names[each]}" for each in shown.tolist()]
    # Equal names would share a bar.
    if len(set(titles)) < len(titles):
        titles = [f"{title} ({each})" for title, each in zip(titles, shown.tolist(), strict=True)]
    smallest, largest = int(counts.min()), int(counts.max())
    balance = f"smallest {smallest:,}, largest {largest:,} {unit}"
    note = f"{note}; {balance}" if note else balance
    return _bars(title, note, titles, counts[shown].tolist(), _axes(noun, unit))


def _bars(title: str, note: str, x: Sequence[str], y: Sequence[int], layout: dict[str, Any]) -> Figure:
    data = {"type": "bar", "x": list(x), "y": list(y), "marker": {"color": SERIES[0]}}
    layout["xaxis"]["type"] = "category"
    return Figure(title, note, [data], layout)


def _axes(x: str, y: str) -> dict[str, Any]:
    return {"xaxis": {"title": x}, "yaxis": {"title": y}}


def _bounds(ranges: ColumnRanges) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return ranges.lowest, ranges.means, ranges.highest


def _columns(ranges: ColumnRanges) -> NDArray[np.int64]:
    num_columns = len(ranges.num_zeros)
    return np.arange(0, num_columns, max(1, -(-num_columns // _MOST_COLUMNS)))


def _note(features: FeatureStatistics, num_columns: int) -> str:
    ranges = features.ranges
    rows = f"{ranges.num_rows:,} evenly spaced rows of {features.num_rows:,}" if features.is_sample else "all rows"
    columns = len(ranges.num_zeros)
    return rows if num_columns == columns else f"{rows}; {num_columns:,} evenly spaced columns of {columns:,}"


def _rounded(value: Any) -> float | None:
    """Return a number with the digits of float16; None for NaN, where a line ends."""
    return None if not np.isfinite(value) else float(f"{value:.4g}")
