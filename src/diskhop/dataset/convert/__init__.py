"""Bringing graphs in. One file per kind of source; adding one is a file and a line in FORMATS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.convert.arrays import import_arrays, is_arrays
from diskhop.dataset.convert.edge_list import import_edges
from diskhop.dataset.convert.edge_options import EdgeOptions
from diskhop.dataset.convert.edge_text import is_edge_text
from diskhop.dataset.convert.npy import source_errors
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.progress import Progress
from diskhop.errors import ConfigError, SourceError
from diskhop.io.atomic import Injector
from diskhop.io.memory import default_memory_bytes, default_threads


@dataclass(frozen=True, slots=True)
class Format:
    """detects: whether a source looks like this; run: import it; looks_like: for people.

    is_edges: it takes EdgeOptions, and has no features.
    """

    detects: Callable[[Path], bool]
    run: Callable[..., Dataset]
    looks_like: str
    is_edges: bool = False


FORMATS = {
    "numpy": Format(is_arrays, import_arrays, "a folder with data.npz or .npy files, or a .npz file"),
    "edges": Format(
        is_edge_text,
        import_edges,
        "a text with an edge a line (.csv .tsv .txt .edges .el, or .gz of these), or a folder of such",
        is_edges=True,
    ),
}


def import_graph(
    source: Path,
    destination: Path,
    *,
    format_name: str | None = None,
    name: str | None = None,
    feature_dtype: str | None = None,
    options: EdgeOptions | None = None,
    facts: dict[str, Any] | None = None,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Make a dataset of a graph; the format is detected where it is not named.

    options: of a text of edges. facts: takes what only its import knows. budget: for sorting edges, half of the free
    memory where there is none. threads: all cores where None.
    """
    known = "; ".join(f"{key}: {each.looks_like}" for key, each in FORMATS.items())
    if format_name is not None and format_name not in FORMATS:
        raise ConfigError(f"format '{format_name}' is unknown; known are {known}")
    with source_errors(str(source)):
        if not source.exists():
            raise SourceError(f"{source}: does not exist; give the folder or file of a graph")
        detected = format_name or next((key for key, each in FORMATS.items() if each.detects(source)), None)
    if detected is None:
        raise SourceError(f"{source}: is of no known format; known are {known}")
    found = FORMATS[detected]
    options = options or EdgeOptions()
    unfit = ["--dtype"] * (feature_dtype is not None) if found.is_edges else options.given()
    if unfit:
        raise ConfigError(f"{source}: {', '.join(unfit)} does not apply to {found.looks_like}; leave it out")
    return found.run(
        source,
        destination,
        name=name,
        engine=engine,
        budget=budget or Budget(default_memory_bytes()),
        threads=threads or default_threads(),
        injector=injector,
        progress=progress,
        **({"options": options, "facts": facts} if found.is_edges else {"feature_dtype": feature_dtype}),
    )
