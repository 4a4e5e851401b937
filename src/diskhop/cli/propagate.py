"""The command that makes hop tables ahead of training."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.hops.make.plan import PropagationPlan
from diskhop.hops.make.propagate import Propagated
from diskhop.hops.make.propagate import propagate as make_hop_tables
from diskhop.hops.spec import DEFAULT_HOPS, PropagationSpec
from diskhop.ui.progress import stage_progress


@app.command()
def propagate(
    dataset: DatasetPath,
    hops: Annotated[int, typer.Option(help="How often features are aggregated.")] = DEFAULT_HOPS,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="sgc, sign, row, ppr:alpha=0.1 or heat:t=3; may be given several times. Default: sign."),
    ] = None,
    direction: Annotated[
        str, typer.Option(help="Neighbours that are summed: in, out, or both, each pair once.")
    ] = "in",
    dtype: Annotated[str, typer.Option(help="Of the tables: float32, float16 or bfloat16.")] = "float32",
    rows: Annotated[
        str, typer.Option(help="Written out: all, labelled (nodes of any split), or a .npy file of node ids.")
    ] = "all",
    memory: Memory = None,
    disk: Annotated[
        str | None, typer.Option(help="That tables may take while they are made, as 100GB; default: what is free.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where they are put; default: DATASET/derived.")
    ] = None,
    engine: Annotated[str, typer.Option(help="How the disk is read: auto, uring, threads.")] = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Aggregate features over the graph ahead, hop by hop, into tables that `train` reads rows of."""
    spec = PropagationSpec(
        operators=tuple(operator or ["sign"]), hops=hops, direction=direction, dtype=dtype, rows=rows
    )
    plans: list[PropagationPlan] = []

    def tell(text: str) -> None:
        stderr.print(text, markup=False)

    def told(plan: PropagationPlan) -> None:
        plans.append(plan)
        tell(f"{dataset}, {plan}")

    started = time.perf_counter()
    with stage_progress(stderr) as progress:
        done = make_hop_tables(
            dataset,
            spec,
            memory=memory,
            disk=disk,
            scratch=scratch,
            threads=threads,
            engine=engine,
            progress=progress,
            told=told,
            tell=tell,
        )
    seconds = time.perf_counter() - started
    if as_json:
        print_json(_document(done, seconds))
    else:
        print_pairs([*_lines(done, seconds), ("next", _train_command(dataset, spec, scratch))])


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
            "stages": [asdict(stage) for stage in done.plan.stages],
        }
    return document


def _lines(done: Propagated, seconds: float) -> list[tuple[str, str]]:
    tables = done.tables
    lines = [
        ("propagated" if done.plan else "was propagated before", f"{tables.path}, {format_bytes(tables.num_bytes)}"),
        ("tables", f"{tables.num_tables} of {tables.num_rows:,} x {tables.dim} {tables.dtype}"),
    ]
    if done.plan is not None:
        predicted = {stage.name: stage.seconds for stage in done.plan.stages}
        for step in done.steps:
            about = f", {predicted[step['step']]:.1f} s predicted" if step["step"] in predicted else ""
            lines.append((step["step"], f"{step['seconds']:.1f} s{about}"))
        lines.append(("took", f"{seconds:.1f} s, {done.plan.seconds:.1f} s predicted"))
    return lines


def _train_command(dataset: Path, spec: PropagationSpec, scratch: Path | None) -> str:
    """The run that takes these tables, if they are of all rows or of the labelled ones."""
    usual = PropagationSpec()
    words = ["diskhop", "train", str(dataset), "--model", "sign", "--hops", str(spec.hops)]
    if spec.operators != usual.operators:
        words += [word for operator in spec.operators for word in ("--operator", operator)]
    if spec.direction != usual.direction:
        words += ["--direction", spec.direction]
    if spec.dtype != usual.dtype:
        words += ["--dtype", spec.dtype]
    if scratch is not None:
        words += ["--scratch", str(scratch)]
    return shlex.join(words)
