"""Drawing embeddings: a sample of nodes along their two principal axes, coloured by class or degree."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.dataset.names import as_shown
from diskhop.embedding.graph_edges import embedded_nodes, read_edge_parts
from diskhop.errors import ConfigError
from diskhop.io.destinations import new_file, require_new_file
from diskhop.protocols import NodeRows
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places

COLORS_BY = ("degree", "label")
# Blue to yellow, perceptually uniform: Viridis, at equal steps.
_SCALE = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
# Tableau's ten, which most people can distinguish.
_CLASSES = (
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac",
)  # fmt: skip
_SIDE, _MARGIN, _LEGEND, _RADIUS = 800, 40, 170, 2.5


class Colors(NamedTuple):
    """Colours of a map.

    of_nodes: the colour of each node.
    legend: colours and their texts.
    title: what colours show.
    """

    of_nodes: list[str]
    legend: list[tuple[str, str]]
    title: str


class EmbeddingMap(NamedTuple):
    """A sample of nodes in a plane.

    axes: float64 (nodes, 2).
    variance_share: the fraction of the sample's variance along these axes.
    names: a name per node.
    colors: a colour per node.
    title: of the picture.
    """

    axes: NDArray[np.float64]
    variance_share: float
    names: list[str]
    colors: Colors
    title: str


def draw_map(
    run: Path | str | OpenRun,
    path: Path | str,
    *,
    by: str = "degree",
    nodes: int = 2000,
    seed: int = 0,
    overwrite: bool = False,
) -> float:
    """Write make_map() as an SVG; return the fraction of the nodes' variance along its two axes.

    overwrite: whether a file that is there is replaced.
    """
    path = Path(path)
    if path.suffix != ".svg":
        raise ConfigError(f"{path}: a map is an .svg file; use {path.with_suffix('.svg')}")
    require_new_file(path, overwrite=overwrite)
    found = make_map(run, by=by, nodes=nodes, seed=seed)
    with new_file(path, overwrite=overwrite) as partial:
        partial.write_text(_svg(found), encoding="utf-8")
    return found.variance_share


def make_map(run: Path | str | OpenRun, *, by: str = "degree", nodes: int = 2000, seed: int = 0) -> EmbeddingMap:
    """Return a sample of nodes along the two principal axes of their embeddings.

    by: what colours show: 'degree', over all known edges, or 'label', for datasets with labels. nodes: the size of the
    sample. seed: of the sample. Raises ConfigError.
    """
    if by not in COLORS_BY:
        raise ConfigError(f"unknown colours '{by}'; use --by {' or --by '.join(COLORS_BY)}")
    if nodes < 1:
        raise ConfigError(f"nodes must be at least 1, got {nodes}")
    opened = run if isinstance(run, OpenRun) else open_run(run)
    places = Places(opened.dataset, opened.permutation)
    count = min(nodes, places.num_nodes)
    ranks = np.sort(np.random.default_rng(seed).choice(places.num_nodes, count, replace=False))
    at = places.of(ranks)
    colors = _by_degree(opened, at) if by == "degree" else _by_label(opened, places.rows(ranks))
    axes, share = principal_axes(opened.reader.gather(at))
    shown = f"{count:,} of {places.num_nodes:,} nodes, {share:.0%} of their variance"
    title = f"{opened.dataset.name}, {opened.config.model}: {shown}"
    return EmbeddingMap(axes, share, list(map(as_shown, places.names().of(ranks.tolist()))), colors, title)


def principal_axes(values: torch.Tensor) -> tuple[NDArray[np.float64], float]:
    """Return values (nodes, dim) along their two principal axes, (nodes, 2), and the fraction of variance there."""
    centred = values.double() - values.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    axes = torch.zeros(len(values), 2, dtype=torch.float64)
    axes[:, : len(directions[:2])] = centred @ directions[:2].t()
    total = float(sizes.square().sum())
    return axes.numpy(), float(sizes[:2].square().sum()) / total if total else 1.0


def _by_degree(run: OpenRun, at: NDArray[np.int64]) -> Colors:
    degrees = np.zeros(run.reader.layout.num_nodes, np.int64)
    for sources, _, destinations in read_edge_parts(run.dataset, run.config, run.permutation).known.blocks():
        for ends in (sources, destinations):
            degrees += np.bincount(ends, minlength=len(degrees))
    found = degrees[at]
    most = int(found.max(initial=1))
    steps = len(_SCALE) - 1
    numbers = np.round(np.log1p(found) / np.log1p(most) * steps).astype(int)
    legend = [(color, f"{np.expm1(np.log1p(most) * step / steps):,.0f}") for step, color in enumerate(_SCALE)]
    return Colors([_SCALE[number] for number in numbers], legend, "degree")


def _by_label(run: OpenRun, rows: NodeRows) -> Colors:
    labels = embedded_nodes(run.dataset).label_rows()
    if labels is None or labels.ndim != 1:
        raise ConfigError(f"{run.dataset.path}: nodes have no classes to colour by; use --by degree")
    found = labels[rows].tolist()
    classes = sorted(set(found))
    color_of = {each: _CLASSES[number % len(_CLASSES)] for number, each in enumerate(classes)}
    legend = [(color_of[each], "none" if each < 0 else f"class {each}") for each in classes[: len(_CLASSES)]]
    return Colors([color_of[each] for each in found], legend, "label")


def _svg(found: EmbeddingMap) -> str:
    axes, colors = found.axes, found.colors
    low, high = axes.min(0), axes.max(0)
    scaled = (axes - low) / np.maximum(high - low, 1e-12) * _SIDE + _MARGIN
    width, height = _SIDE + 2 * _MARGIN + _LEGEND, _SIDE + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 14}" font-size="16">{escape(found.title)}</text>',
    ]
    for (x, y), name, color in zip(scaled.tolist(), found.names, colors.of_nodes, strict=True):
        point = f'cx="{x:.1f}" cy="{height - y:.1f}" r="{_RADIUS}" fill="{color}" fill-opacity="0.7"'
        lines.append(f"<circle {point}><title>{escape(name)}</title></circle>")
    left = _SIDE + 2 * _MARGIN + 10
    lines.append(f'<text x="{left}" y="{_MARGIN + 5}" font-size="14">{colors.title}</text>')
    for number, (color, text) in enumerate(colors.legend):
        top = _MARGIN + 26 + 22 * number
        lines.append(f'<circle cx="{left + 6}" cy="{top - 5}" r="6" fill="{color}"/>')
        lines.append(f'<text x="{left + 20}" y="{top}" font-size="13">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])
