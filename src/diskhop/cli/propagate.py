"""The command that computes hop tables before training."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import DatasetPath, Executor, Json, Workers, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.options import option_fields, options_of
from diskhop.config.train import HopConfig
from diskhop.config.typed_hop import FIXED, TypedHopConfig
from diskhop.errors import ConfigError
from diskhop.hops.spec import PropagationSpec
from diskhop.run_files import HOP

if TYPE_CHECKING:
    from diskhop.dataset.dataset import Dataset
    from diskhop.hops.make.plan import PropagationPlan
    from diskhop.hops.make.propagate import Propagated

_OF_TYPES = ("target", "paths", "reverse")
_RESOURCES = ("memory_bytes", "disk_bytes", "scratch", "engine", "threads")


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
    from diskhop.dataset.dataset import open_dataset
    from diskhop.hops.make.propagate import propagate as make_hop_tables
    from diskhop.runs.data_use import edge_weights_of, ignored_parts
    from diskhop.ui.progress import stage_progress

    opened = open_dataset(dataset)
    if opened.has_several_types:
        if executor or workers:
            raise ConfigError("--executor and --workers are for graphs of one type: remove them")
        _propagate_paths(opened, as_json, given)
        return
    for name in _OF_TYPES:
        if name in given:
            raise ConfigError(
                f"{option_fields(TypedHopConfig)[name].main_flag} is for graphs with several types: remove it"
            )
    spec = PropagationSpec(**{name: value for name, value in given.items() if name not in _RESOURCES})

    def show(text: str) -> None:
        stderr.print(text, markup=False)

    def show_plan(plan: PropagationPlan) -> None:
        show(f"{dataset}, {plan}")

    started = time.perf_counter()
    with stage_progress(stderr) as progress:
        done = make_hop_tables(
            opened,
            spec,
            **_resources(given),
            executor=executor,
            workers=workers,
            progress=progress,
            on_plan=show_plan,
            log=show,
        )
    seconds = time.perf_counter() - started
    ignored = ignored_parts(opened, HOP)
    weights = edge_weights_of(opened, "sign", spec.direction, spec.edge_weights or None)
    if as_json:
        used = {} if weights is None else {"edge_weights": weights.value}
        print_json({**_document(done, seconds), **used, "ignored": [each.option for each in ignored]})
    else:
        words = ["diskhop", "train", str(dataset), "--model", "sign", "--hops", str(spec.hops)]
        shared = {name: value for name, value in given.items() if name not in ("hops", "rows")}
        train = shlex.join([*words, *spell_options(shared, HopConfig), "--out", "run"])
        lines = [*([] if weights is None else [weights]), *ignored]
        left_out = [(each.option.replace("_", " "), f"{each.value}: {each.why}") for each in lines]
        print_pairs([*_lines(done, seconds), *left_out, ("next", train)])


def _propagate_paths(dataset: Dataset, as_json: bool, given: dict[str, Any]) -> None:
    """Build tables along paths over the types of a graph."""
    from diskhop.hops.path_tables import propagate_paths
    from diskhop.runs.typed_hops.spec import find_path_spec
    from diskhop.ui.progress import stage_progress

    for name in FIXED:
        if name in given:
            flag = option_fields(HopConfig)[name].main_flag
            raise ConfigError(f"{flag} is for graphs of one type, and {dataset.path} has several: remove it")
    spec = find_path_spec(dataset, **{name: value for name, value in given.items() if name not in _RESOURCES})
    started = time.perf_counter()
    with stage_progress(stderr) as progress:
        done = propagate_paths(dataset, spec, **_resources(given), progress=progress)
    seconds = time.perf_counter() - started
    if as_json:
        print_json({**_document(done, seconds), "target": spec.target, "paths": list(spec.paths)})
        return
    paths = [word for path in spec.paths for word in ("--path", path)]
    train = shlex.join(
        ["diskhop", "train", str(dataset.path), "--model", "sign", "--target", spec.target, *paths, "--out", "run"]
    )
    shown = [("path" if number == 0 else "", path) for number, path in enumerate(spec.paths)]
    print_pairs([*_lines(done, seconds), *shown, ("next", train)])


def _resources(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of propagate() and propagate_paths() about this machine."""
    return {
        "memory": given.get("memory_bytes"),
        "disk": given.get("disk_bytes"),
        "scratch": given.get("scratch"),
        "threads": given.get("threads"),
        "engine": given.get("engine", "auto"),
    }


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


def _lines(done: Propagated, seconds: float) -> list[tuple[str, str]]:
    tables = done.tables
    lines = [
        ("propagated" if done.steps else "propagated before", f"{tables.path}, {format_bytes(tables.num_bytes)}"),
        ("tables", f"{tables.num_tables} of {tables.num_rows:,} x {tables.dim} {tables.dtype}"),
    ]
    if done.plan is not None:
        predicted = {stage.name: stage.seconds for stage in done.plan.steps}
        for step in done.steps:
            about = f", {predicted[step['step']]:.1f} s predicted" if step["step"] in predicted else ""
            lines.append((step["step"], f"{step['seconds']:.1f} s{about}"))
        lines.append(("took", f"{seconds:.1f} s, {done.plan.seconds:.1f} s predicted"))
    elif done.steps:
        lines.append(("took", f"{seconds:.1f} s"))
    return lines
