"""The command that says what a run would take, every way to run it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import parse_counts, print_json, print_pairs, print_table, stdout
from diskhop.config.options import require_known

if TYPE_CHECKING:
    from diskhop.planning.options import Option, Ranking


@app.command()
def plan(
    dataset: DatasetPath,
    model: Annotated[
        str | None, typer.Option(help="As in training, or one of embeddings: dot, distmult, complex, transe, rotate.")
    ] = None,
    memory: Memory = None,
    cache: Annotated[str | None, typer.Option(help="Of --memory, for rows kept between batches.")] = None,
    disk: Annotated[str | None, typer.Option(help="For what is sampled, packed or propagated ahead, as 100GB.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where that is put; default: DATASET/derived.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of the run: what is done once pays in many.")] = None,
    max_batches: Annotated[int | None, typer.Option(help="Of an epoch; 0 for all.")] = None,
    reuse: Annotated[bool, typer.Option("--reuse", help="Every epoch has the samples of the first.")] = False,
    fanout: Annotated[str | None, typer.Option(help="Neighbours drawn per hop, as 10,10; -1 for all.")] = None,
    eval_fanout: Annotated[str | None, typer.Option(help="The same for validation and test.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Seeds a batch; of embeddings, edges.")] = None,
    eval_batch_size: Annotated[int | None, typer.Option(help="Seeds a batch of validation and test.")] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Of a run that neither validates nor tests.")] = False,
    layers: Annotated[int | None, typer.Option(help="One for each hop; of sign and hoga, of the perceptron.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the hidden layers.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads (gat, hoga).")] = None,
    precision: Annotated[str | None, typer.Option(help="Of linear layers: float32 or bfloat16.")] = None,
    pinned: Annotated[str | None, typer.Option(help="How rows to be pinned are chosen: degree or accesses.")] = None,
    hops: Annotated[int | None, typer.Option(help="That features are aggregated (sgc, sign, hoga).")] = None,
    operator: Annotated[list[str] | None, typer.Option(help="Of these hops, as sign or ppr:alpha=0.1.")] = None,
    direction: Annotated[str | None, typer.Option(help="Neighbours that are summed: in, out or both.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of stored hops: float32, float16 or bfloat16.")] = None,
    dim: Annotated[int | None, typer.Option(help="Values of an embedding.")] = None,
    negatives: Annotated[int | None, typer.Option(help="Nodes that an edge's ends are told from.")] = None,
    split: Annotated[int | None, typer.Option(help="Which of several splits.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    preset: Annotated[str | None, typer.Option(help="Options that reach published figures, by name.")] = None,
    engine: Annotated[str | None, typer.Option(help="How the disk is read: auto, uring, threads.")] = None,
    threads: Threads = None,
    explain: Annotated[str | None, typer.Option(metavar="OPTION", help="All that is known of one way to run.")] = None,
    as_json: Json = False,
) -> None:
    """Say what would run and why: every way to run, with its predicted cost; nothing is trained."""
    # Here, not above: this brings PyTorch, which the other commands do without.
    from diskhop.planning.options import OPTION_COLUMNS
    from diskhop.runs.plan import plan_run

    options: dict[str, Any] = {
        "model": model,
        "scratch": None if scratch is None else str(scratch.absolute()),
        "epochs": epochs,
        "max_batches": max_batches,
        "reuse": reuse or None,
        "fanout": None if fanout is None else parse_counts("--fanout", fanout),
        "eval_fanout": None if eval_fanout is None else parse_counts("--eval-fanout", eval_fanout),
        "batch_size": batch_size,
        "eval_batch_size": eval_batch_size,
        "evaluate": False if no_eval else None,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "precision": precision,
        "pinned": pinned,
        "hops": hops,
        "operators": tuple(operator) if operator else None,
        "direction": direction,
        "dtype": dtype,
        "dim": dim,
        "negatives": negatives,
        "split": split,
        "seed": seed,
        "engine": engine,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    ranking = plan_run(dataset, preset=preset, memory=memory, cache=cache, disk=disk, **given)
    if explain is not None:
        names = [option.name for option in ranking.options]
        require_known("option", explain, names)
        option = ranking.options[names.index(explain)]
        if as_json:
            print_json(option.to_dict())
        else:
            print_pairs(_explained(option))
        return
    if as_json:
        print_json({"epochs": ranking.epochs, "options": [option.to_dict() for option in ranking.options]})
        return
    print_table(OPTION_COLUMNS, list(ranking.rows()))
    stdout.print()
    rows = [("chosen" if number == 0 else "", reason) for number, reason in enumerate(ranking.best.reasons)]
    rows += [(f"not {option.name}", option.reason) for option in ranking.options[1:]]
    print_pairs([*rows, ("next", _next_command(dataset, ranking, model))])


def _explained(option: Option[Any]) -> list[tuple[str, str]]:
    rows = [("option", option.name), ("why", option.reason)]
    if option.predicted is None or option.plan is None:
        return rows
    for name, value in option.predicted.to_dict().items():
        if name.endswith("_bytes") or name.startswith("bytes_"):
            shown = format_bytes(value)
        elif name.endswith("_seconds"):
            shown = f"{value:.3g} s"
        else:
            shown = f"{value:.0%}" if name == "hit_rate" else f"{value:,}"
        rows.append((name.replace("_", " "), shown))
    reserved = {name: num_bytes for name, num_bytes in option.plan.reserved.items() if num_bytes}
    rows += [(f"memory for {name}", format_bytes(num_bytes)) for name, num_bytes in reserved.items()]
    rows += [("plan" if number == 0 else "", reason) for number, reason in enumerate(option.plan.reasons)]
    return rows


def _next_command(dataset: Path, ranking: Ranking[Any], model: str | None) -> str:
    is_embedding = hasattr(ranking.best, "num_partitions")
    words = ["diskhop", "embed" if is_embedding else "train", str(dataset)]
    words += [] if model is None else ["--model", model]
    return f"{shlex.join(words)} --out RUN, with the same options"
