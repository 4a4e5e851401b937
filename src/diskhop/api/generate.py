"""diskhop.generate(): the command `diskhop generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.config.options import option_fields
from diskhop.config.train import TrainConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError
from diskhop.generating import (
    expand_graph,
    expanded_bytes,
    generate_graph,
    generate_typed_graph,
    result_bytes,
    typed_result_bytes,
)
from diskhop.generating.config import DEFAULT_NODES, EDGES_PER_NODE, TYPED, GraphConfig
from diskhop.generating.expand_config import EXPAND, ExpandConfig
from diskhop.generating.typed_config import TypedConfig
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent


@takes_words(GraphConfig)
@takes_words(TypedConfig, only=("shape",))
@takes_words(ExpandConfig, only=("factor",))
@takes_words(TrainConfig, only=("memory_bytes", "threads"))
def generate(
    kind: str,
    *folders: Path | str,
    name: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    on_estimate: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> Dataset:
    """Generate a random graph, or expand one, and open it: the same bytes with any memory and threads.

    kind: kronecker (R-MAT, power law), uniform, sbm, typed or expand.
    folders: the new dataset's folder; of kind expand, first the dataset to expand.
    name: the dataset's name; default: kind.
    overwrite: whether a dataset at the destination is replaced.
    progress: called with a stage, and what is done of it and in total.
    on_estimate: called with the bytes of the result before anything is written.

    Raises ConfigError for an option that does not apply, BudgetError, DestinationError.

    >>> dataset = diskhop.generate("uniform", "random", nodes=100, edges=500, dim=8, seed=0, memory="200MB")
    >>> dataset.num_nodes
    100
    """
    memory_bytes, threads = options.pop("memory_bytes", None), options.pop("threads", None)
    if not folders:
        raise ConfigError(f"the folder of the new dataset is missing: diskhop.generate({kind!r}, 'my-graph')")
    *graphs, destination = map(Path, folders)
    make, num_bytes = _expansion(graphs, options) if kind == EXPAND else _drawn(kind, graphs, options)
    on_estimate(num_bytes)
    return make(
        destination,
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
        name=name,
        progress=progress,
        overwrite=overwrite,
    )


def _expansion(graphs: Sequence[Path], options: Mapping[str, Any]) -> tuple[Callable[..., Dataset], int]:
    """Return what expands a graph, and the bytes of the result."""
    if len(graphs) != 1:
        raise ConfigError("kind 'expand' takes a dataset and a folder: diskhop generate expand GRAPH DEST --factor 4")
    unfit = [option_fields(GraphConfig)[name].main_flag for name in options if name in option_fields(GraphConfig)]
    if unfit or "shape" in options:
        raise ConfigError(f"{unfit[0] if unfit else '--shape'} has no effect on kind '{EXPAND}'; leave it out")
    config, graph = ExpandConfig(**options), open_dataset(graphs[0])
    return partial(expand_graph, graph, config=config), expanded_bytes(graph, config)


def _drawn(kind: str, graphs: Sequence[Path], options: Mapping[str, Any]) -> tuple[Callable[..., Dataset], int]:
    """Return what draws a graph of a kind, and the bytes of the result."""
    if "factor" in options:
        raise ConfigError(f"--factor is for kind '{EXPAND}' only; leave it out for '{kind}'")
    if kind == TYPED:
        typed = _typed_config(options)
        make, num_bytes = partial(generate_typed_graph, config=typed), typed_result_bytes(typed)
    else:
        config = _config(kind, options)
        make, num_bytes = partial(generate_graph, config=config), result_bytes(config)
    if graphs:
        raise ConfigError(f"kind '{kind}' takes one folder, got {len(graphs) + 1}; leave out {graphs[0]}")
    return make, num_bytes


def _config(kind: str, options: Mapping[str, Any]) -> GraphConfig:
    if "shape" in options:
        raise ConfigError(f"--shape is for kind '{TYPED}' only; leave it out for '{kind}'")
    return GraphConfig(kind=kind, **{"num_edges": EDGES_PER_NODE * options.get("num_nodes", DEFAULT_NODES), **options})


def _typed_config(options: Mapping[str, Any]) -> TypedConfig:
    fields = option_fields(GraphConfig)
    unfit = [fields[name].main_flag for name in options if name not in option_fields(TypedConfig) and name in fields]
    if unfit:
        raise ConfigError(f"{unfit[0]} has no effect on kind '{TYPED}'; leave it out")
    return TypedConfig(**options)
