"""The hop tables along paths that `diskhop propagate` builds from a few options."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merged import merged_spec, merged_types
from diskhop.hops.paths import PathSpec, all_paths
from diskhop.hops.spec import ALL_ROWS
from diskhop.runs.typed.target import find_reversed, find_target

DEFAULT_STEPS = 2


def find_path_spec(
    dataset: Dataset,
    *,
    target: str | None = None,
    paths: Sequence[str] = (),
    hops: int = DEFAULT_STEPS,
    reverse: Sequence[str] | None = None,
    dtype: str | None = None,
    rows: str = ALL_ROWS,
) -> PathSpec:
    """Complete options: what is not given is chosen as a run chooses it. Raises ConfigError.

    target: node type at the end of paths; None: where the paths end, or the only type with labels.
    hops: steps of the longest path, where no path is given.
    """
    if target is None and paths:
        target = paths[0].split(",")[-1]
        require_known("node type", target, dataset.nodes, f"--path {paths[0]}: ")
    target = target or find_target(dataset, None)
    require_known("node type", target, dataset.nodes, "--target: ")
    names = find_reversed(dataset, reverse)
    if not paths:
        paths = all_paths(dataset, merged_types(dataset, merged_spec(dataset, names)), target, hops)
    is_short = dataset.nodes[target].feature_dtype == "float16"
    return PathSpec(
        target=target,
        paths=tuple(paths),
        reversed_types=names,
        dtype=dtype or ("float16" if is_short else "float32"),
        rows=rows,
    )
