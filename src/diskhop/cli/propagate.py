"""The command that computes hop tables before training."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from diskhop.cli.app import command
from diskhop.cli.options import DatasetPath, Executor, Json, Workers, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.hop import HopConfig
from diskhop.config.options import options_of
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.display import Row
from diskhop.hops.spec import PropagationSpec
from diskhop.run_files import HOP

if TYPE_CHECKING:
    from diskhop.dataset.dataset import Dataset
    from diskhop.hops.make.plan import PropagationPlan
    from diskhop.hops.make.propagate import Propagated

_OF_TYPES = ("target", "paths", "reverse")
_RESOURCES = ("memory_bytes", "total_memory_bytes", "disk_bytes", "scratch", "engine", "threads")


@command("propagate")
@takes_options(PropagationSpec, HopConfig, TypedHopConfig, only=(*options_of(PropagationSpec), *_RESOURCES, *_OF_TYPES))
def propagate(
    dataset: DatasetPath,
    *,
    executor: Executor = "",
    workers: Workers = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Aggregate features over the graph, hop by hop, into tables that `train --model sign` reads rows of."""
    from diskhop.api.propagate import propagate as make_hop_tables
    from diskhop.dataset.dataset import open_dataset
    from diskhop.ui.progress import stage_progress

    opened = open_dataset(dataset)

    def show(text: str) -> None:
        stderr.print(text, markup=False)

    def show_plan(plan: PropagationPlan) -> None:
        show(f"{dataset}, {plan}")

    started = time.perf_counter()
    with stage_progress(stderr) as progress:
        done = make_hop_tables(
            opened, executor=executor, workers=workers, progress=progress, on_plan=show_plan, log=show, **given
        )
    seconds = time.perf_counter() - started
    document = _document(done, seconds)
    facts, document_more, train = (_of_paths if opened.has_several_types else _of_hops)(opened, given)
    if as_json:
        print_json({**document, **document_more})
        return
    print_pairs([*_lines(done, seconds), *facts, ("next", shlex.join(train))])


def _of_hops(dataset: Dataset, given: Mapping[str, Any]) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Return further lines, further entries of the document, and the command that trains on the tables."""
    from diskhop.runs.data_use import edge_weights_of, ignored_parts

    spec = PropagationSpec(**{name: value for name, value in given.items() if name not in _RESOURCES})
    ignored = ignored_parts(dataset, HOP)
    weights = edge_weights_of(dataset, "sign", spec.direction, spec.edge_weights or None)
    used = {} if weights is None else {"edge_weights": weights.value}
    lines = [*([] if weights is None else [weights]), *ignored]
    left_out = [(each.option.replace("_", " "), f"{each.value}: {each.why}") for each in lines]
    words = ["diskhop", "train", str(dataset.path), "--model", "sign", "--hops", str(spec.hops)]
    # Training takes more memory than propagation.
    shared = {name: value for name, value in given.items() if name not in ("hops", "rows", "total_memory_bytes")}
    train = [*words, *spell_options(shared, HopConfig), "--out", "run"]
    return left_out, {**used, "ignored": [each.option for each in ignored]}, train


def _of_paths(dataset: Dataset, given: Mapping[str, Any]) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Return the same of tables along paths over the types of a graph."""
    from diskhop.runs.typed_hops.spec import find_path_spec

    spec = find_path_spec(dataset, **{name: value for name, value in given.items() if name not in _RESOURCES})
    paths = [word for path in spec.paths for word in ("--path", path)]
    words = ["diskhop", "train", str(dataset.path), "--model", "sign", "--target", spec.target]
    shown = [("path" if number == 0 else "", path) for number, path in enumerate(spec.paths)]
    return shown, {"target": spec.target, "paths": list(spec.paths)}, [*words, *paths, "--out", "run"]


def _document(done: Propagated, seconds: float) -> dict[str, Any]:
    tables = done.tables
    document = {
        "path": str(tables.path),
        "bytes": tables.num_bytes,
        "rows": tables.num_rows,
        "dim": tables.dim,
        "dtype": tables.dtype,
        "hops": tables.hops,
        "tables": [file.name for file in tables.files],
        "seconds": seconds,
        "preparation": done.steps,
        **done.memory,
    }
    if done.plan is not None:
        document |= {
            "columns": done.plan.columns,
            "passes": done.plan.num_passes,
            "predicted_seconds": done.plan.seconds,
            "predicted_bytes_read": done.plan.bytes_read,
            "predicted_bytes_written": done.plan.bytes_written,
            "reserved": done.reserved,
            "stages": [asdict(stage) for stage in done.plan.steps],
        }
    return document


def _lines(done: Propagated, seconds: float) -> list[Row]:
    predicted = "" if done.plan is None else f", {done.plan.seconds:.1f} s predicted"
    is_made = done.plan is not None or done.steps
    return [*done.rows(), *([("took", f"{seconds:.1f} s{predicted}")] if is_made else [])]
