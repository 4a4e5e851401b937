"""The page about a dataset: `diskhop inspect DATASET --html FILE`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.statistics.components import Components
from diskhop.dataset.statistics.homophily import share_by_chance
from diskhop.dataset.statistics.measure import Statistics
from diskhop.reporting.dataset_figures import (
    component_figure,
    degree_figure,
    label_figure,
    range_figure,
    relation_figure,
    sizes_figure,
    zeros_figure,
)
from diskhop.reporting.figures import Figure
from diskhop.reporting.html import plotly_for, render_page
from diskhop.reporting.values import Table, texts

# Rows of a table, and types whose charts are drawn: graphs may have thousands of types.
_MOST_ROWS, _MOST_DRAWN = 200, 12
# Columns of features that have a row each in a table.
_MOST_COLUMNS = 32

# Title, note and table.
Listing = tuple[str, str, Table]


def render_dataset(dataset: Dataset, facts: Mapping[str, Any], statistics: Statistics) -> str:
    """Return the page. facts: of describe()."""
    figures = [each for each in _figures(dataset, statistics) if each is not None]
    return render_page(
        "dataset.html",
        title=dataset.name,
        overview=_overview(dataset, facts, statistics),
        tables=list(_tables(dataset, facts, statistics)),
        figures=figures,
        files=_cut(["file", "size"], [[name, format_bytes(size)] for name, size in facts["files"].items()]),
        plotly=plotly_for(figures),
    )


def _overview(dataset: Dataset, facts: Mapping[str, Any], statistics: Statistics) -> dict[str, str]:
    found = {
        "path": facts["path"],
        "size": format_bytes(facts["bytes"]),
        "hash": facts["hash"],
        "nodes": f"{sum(nodes.num_nodes for nodes in dataset.nodes.values()):,}",
    }
    if dataset.edges:
        found["edges"] = f"{sum(edges.num_edges for edges in dataset.edges.values()):,}"
    if dataset.is_typed:
        found["types"] = f"{len(dataset.nodes):,} of nodes, {len(dataset.edges):,} of edges"
    if statistics.relations is not None:
        parts = ", ".join(f"{counts.sum():,} {part}" for part, counts in statistics.relations.by_part.items())
        found["triples"] = f"{parts}; {len(statistics.relations.totals):,} relations"
    found["components"] = _components_text(dataset, statistics)
    return found


def _components_text(dataset: Dataset, statistics: Statistics) -> str:
    found, total = statistics.components, sum(nodes.num_nodes for nodes in dataset.nodes.values())
    if isinstance(found, Components):
        return f"{found.number:,}; the largest has {found.largest:,} nodes ({_share(found.largest, total)})"
    needed = format_bytes(statistics.components_bytes)
    if found is None:
        return f"not counted: that takes {needed} of --memory"
    far = f"{found.num_limited / max(1, found.num_sampled):.1%} of {found.num_sampled:,} sampled nodes"
    what = f"{far} reach {found.limit:,} nodes or more against the direction of edges"
    if _has_opposites(dataset):
        what = f"about {found.number:,}, estimated: {far} are in components of {found.limit:,} nodes or more"
    return f"{what}; exact with --memory {needed} more"


def _has_opposites(dataset: Dataset) -> bool:
    return dataset.only_edges.reciprocal_share() == 1


def _tables(dataset: Dataset, facts: Mapping[str, Any], statistics: Statistics) -> Iterator[Listing]:
    nodes = [_node_row(name, each) for name, each in facts["nodes"].items()]
    yield "Nodes", "", _cut(["type", "nodes", "features", "labels", "labelled", "order"], nodes)
    edges = [_edge_row(dataset, statistics, name, each) for name, each in facts["edges"].items()]
    columns = ["source", "relation", "destination", "edges", "in-degree", "without in-edges", "homophily"]
    yield "Edges" if not dataset.is_typed else "Schema", _homophily_note(statistics), _cut(columns, edges)
    splits = [
        [name, number, *(split.get(part, "") for part in ("train", "valid", "test"))]
        for name, each in facts["nodes"].items()
        for number, split in enumerate(each.get("splits", ()))
    ]
    yield "Splits", "nodes of each part", _cut(["type", "split", "train", "valid", "test"], splits)
    yield from _column_tables(dataset, statistics)
    if statistics.relations is not None:
        names, counts = dataset.names("relations"), statistics.relations.by_part
        order = np.argsort(-statistics.relations.totals, kind="stable").tolist()
        rows = [
            [names[place] if names else place, *(int(part[place]) for part in counts.values())]
            for place in order[: _MOST_ROWS + 1]
        ]
        yield "Relations", "triples of each relation", _cut(["relation", *counts], rows, len(order))


def _node_row(name: str, facts: Mapping[str, Any]) -> list[Any]:
    features = f"{facts['features']['dim']:,} {facts['features']['dtype']}" if "features" in facts else ""
    labels, labelled = facts.get("labels", {}), ""
    kind = next(iter(labels), "")
    if kind:
        labelled = f"{labels['labelled']:,}"
    return [name, facts["count"], features, f"{labels[kind]:,} {kind}" if kind else "", labelled, facts["order"]]


def _edge_row(dataset: Dataset, statistics: Statistics, name: str, facts: Mapping[str, Any]) -> list[Any]:
    homophily, text = statistics.edges[name].homophily, ""
    if homophily is not None and homophily.share is not None:
        by_class = statistics.labels[facts["source"]].by_class
        text = f"{homophily.share:.3f} (by chance {share_by_chance(by_class):.3f})"
        if homophily.edges < facts["count"]:
            text += f", of a sample of {homophily.edges:,} edges"
        if homophily.labelled < homophily.edges:
            text += f", {homophily.labelled:,} with labels at both ends"
    degree = f"mean {facts['mean_in_degree']:.3g}, largest {facts['max_in_degree']:,}"
    ends = dataset.edges[name].ends
    return [*ends, facts["count"], degree, facts["without_in_edges"], text]


def _homophily_note(statistics: Statistics) -> str:
    if any(each.homophily is not None and each.homophily.labelled for each in statistics.edges.values()):
        return "homophily: share of edges that join nodes of the same class"
    return ""


def _column_tables(dataset: Dataset, statistics: Statistics) -> Iterator[Listing]:
    """Yield a table of the columns of features that are few, and of tasks and values."""
    found = {
        f"Features{_of(dataset, name)}": (each.ranges, each.num_rows) for name, each in statistics.features.items()
    }
    found |= {
        f"{each.kind.title()}{_of(dataset, name)}": (each.ranges, each.ranges.num_rows)
        for name, each in statistics.labels.items()
        if each.ranges is not None
    }
    for title, (ranges, num_rows) in found.items():
        if len(ranges.num_zeros) > _MOST_COLUMNS:
            continue
        rows = zip(
            range(len(ranges.num_zeros)),
            *(each.tolist() for each in (ranges.lowest, ranges.means, ranges.highest)),
            (ranges.num_zeros / max(1, ranges.num_rows)).tolist(),
            ranges.num_not_finite.tolist(),
            strict=True,
        )
        cells = [
            [number, *map(_number, bounds), f"{zeros:.1%}", not_finite] for number, *bounds, zeros, not_finite in rows
        ]
        note = "all rows" if ranges.num_rows == num_rows else f"{ranges.num_rows:,} evenly spaced rows of {num_rows:,}"
        yield title, note, _cut(["column", "lowest", "mean", "highest", "zeros", "not finite"], cells)


def _figures(dataset: Dataset, statistics: Statistics) -> Iterator[Figure | None]:
    for name, edges in _largest(statistics.edges, lambda each: each.degrees.total):
        yield degree_figure(f"In-degrees{_of(dataset, name)}", edges.degrees, "in-degree")
    relations = statistics.relations
    if relations is not None:
        if relations.degrees is not None:
            yield degree_figure("Triples by entity", relations.degrees, "triples of an entity")
        yield relation_figure(relations, dataset.names("relations"))
    for name, labels in islice(statistics.labels.items(), _MOST_DRAWN):
        yield label_figure(f"Classes{_of(dataset, name)}", labels.by_class, dataset.names("classes", name))
    for name, nodes in islice(dataset.nodes.items(), _MOST_DRAWN):
        if len(nodes.split_sizes) == 1:
            yield sizes_figure(f"Split{_of(dataset, name)}", dict(nodes.split_sizes[0]), "nodes")
    for name, features in _largest(statistics.features, lambda each: each.num_rows):
        yield range_figure(f"Feature ranges{_of(dataset, name)}", features)
        yield zeros_figure(f"Zeros of features{_of(dataset, name)}", features)
    if isinstance(statistics.components, Components):
        yield component_figure(statistics.components)


def _largest(parts: Mapping[str, Any], size: Any) -> Sequence[tuple[str, Any]]:
    return sorted(parts.items(), key=lambda each: -size(each[1]))[:_MOST_DRAWN]


def _of(dataset: Dataset, name: str) -> str:
    return f" of {name}" if dataset.is_typed else ""


def _cut(columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int | None = None) -> Table:
    total = len(rows) if total is None else total
    note = f"the first {_MOST_ROWS} of {total:,}" if total > _MOST_ROWS else ""
    return Table(columns, list(texts(rows[:_MOST_ROWS])), note)


def _number(value: float) -> str:
    return "" if not np.isfinite(value) else f"{value:.4g}"


def _share(part: int, whole: int) -> str:
    return f"{part / max(1, whole):.1%}"
