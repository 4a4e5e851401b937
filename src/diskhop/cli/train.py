"""The command that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import parse_bytes
from diskhop.cli.app import Json, Patience, app
from diskhop.cli.output import parse_counts, print_json, print_pairs, stderr
from diskhop.ui.summary import summarize


@app.command()
def train(
    dataset: Annotated[
        Path | None, typer.Argument(metavar="DATASET", help="A dataset's folder.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="sage, gcn, gat; or sgc, sign, hoga, on hops made before.")] = None,
    memory: Annotated[str | None, typer.Option(help="For graph data, as 2GB or 512MiB.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="A new folder for all that the run leaves.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch in --out.")] = False,
    preset: Annotated[str | None, typer.Option(help="Options that reach published figures, by name.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options as RUN/config.toml has them.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most.")] = None,
    fanout: Annotated[str | None, typer.Option(help="Neighbours drawn per hop, as 10,10; -1 for all.")] = None,
    eval_fanout: Annotated[str | None, typer.Option(help="The same for validation and test.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Seeds a batch.")] = None,
    eval_batch_size: Annotated[int | None, typer.Option(help="The same for validation and test.")] = None,
    max_batches: Annotated[int | None, typer.Option(help="Of an epoch; 0 for all.")] = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Draw samples once: every epoch has those of the first, in another order.")
    ] = False,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Neither validate nor test.")] = False,
    eval_every: Annotated[int | None, typer.Option(help="Epochs from one validation to the next.")] = None,
    patience: Patience = None,
    metric: Annotated[str | None, typer.Option(help="accuracy or auc.")] = None,
    split: Annotated[int | None, typer.Option(help="Which of several splits.")] = None,
    layers: Annotated[int | None, typer.Option(help="One for each hop; of sign and hoga, of the perceptron.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the hidden layers.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads (gat, hoga).")] = None,
    norm: Annotated[str | None, typer.Option(help="none, batch or layer.")] = None,
    residual: Annotated[bool | None, typer.Option(help="Add each layer's input to its output.")] = None,
    normalize_input: Annotated[bool | None, typer.Option(help="Scale each row of features to sum 1.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Of hidden values.")] = None,
    input_dropout: Annotated[float | None, typer.Option(help="Of features.")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Adam's.")] = None,
    precision: Annotated[str | None, typer.Option(help="Of linear layers: float32 or bfloat16.")] = None,
    matmul: Annotated[str | None, typer.Option(help="What multiplies matrices: mkl, blas, onednn or mixed.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="How rows come to the model: auto, memory, mapped, pread, direct, static, belady, shared, packed."
        ),
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Batches in their order, not as they are finished (shared).")
    ] = False,
    cache: Annotated[
        str | None, typer.Option(help="Of --memory, for rows kept between batches (static, belady, shared, packed).")
    ] = None,
    pinned: Annotated[
        str | None, typer.Option(help="By what static and packed choose their rows: degree or accesses.")
    ] = None,
    disk: Annotated[
        str | None, typer.Option(help="For batches sampled ahead (belady) and packed (packed), and for hops.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where those lie; default: DATASET/derived.")
    ] = None,
    hops: Annotated[int | None, typer.Option(help="That features are aggregated over (sgc, sign, hoga).")] = None,
    operator: Annotated[
        list[str] | None, typer.Option(help="Which aggregates: sgc, sign, row, ppr:alpha=0.1, heat:t=3; repeatable.")
    ] = None,
    direction: Annotated[str | None, typer.Option(help="Of edges that it takes: in, out or both.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of stored hops: float32, float16 or bfloat16.")] = None,
    shuffle: Annotated[str | None, typer.Option(help="An epoch's order, of rows or chunks; auto by placement.")] = None,
    chunk_rows: Annotated[int | None, typer.Option(help="Rows of a chunk; default: of a batch, if that mixes.")] = None,
    placement: Annotated[str | None, typer.Option(help="Where hops are trained from: auto, memory, disk.")] = None,
    engine: Annotated[str | None, typer.Option(help="How the disk is read: auto, uring, threads.")] = None,
    threads: Annotated[int | None, typer.Option(help="For sampling and computing together.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events to RUN, too.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model for node classification from disk; what was chosen is printed, with the reason."""
    # Here, not above: these bring PyTorch, which the other commands do without.
    from diskhop.runs import train as train_model
    from diskhop.ui.terminal import watching

    options: dict[str, Any] = {
        "model": model,
        "memory_bytes": None if memory is None else parse_bytes(memory),
        "seed": seed,
        "epochs": epochs,
        "fanout": None if fanout is None else parse_counts("--fanout", fanout),
        "eval_fanout": None if eval_fanout is None else parse_counts("--eval-fanout", eval_fanout),
        "batch_size": batch_size,
        "eval_batch_size": eval_batch_size,
        "max_batches": max_batches,
        "reuse": reuse or None,
        "evaluate": False if no_eval else None,
        "eval_every": eval_every,
        "patience": patience,
        "metric": metric,
        "split": split,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "norm": norm,
        "residual": residual,
        "normalize_input": normalize_input,
        "dropout": dropout,
        "input_dropout": input_dropout,
        "lr": lr,
        "weight_decay": weight_decay,
        "precision": precision,
        "matmul": matmul,
        "store": store,
        "ordered": ordered or None,
        "cache_bytes": None if cache is None else parse_bytes(cache),
        "pinned": pinned,
        "disk_bytes": None if disk is None else parse_bytes(disk),
        "scratch": None if scratch is None else str(scratch.absolute()),
        "hops": hops,
        "operators": tuple(operator) if operator else None,
        "direction": direction,
        "dtype": dtype,
        "shuffle": shuffle,
        "chunk_rows": chunk_rows,
        "placement": placement,
        "engine": engine,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with watching(stderr, out, tensorboard=tensorboard) as watcher:
        trained = train_model(dataset, out=out, resume=resume, preset=preset, config=config, watcher=watcher, **given)
    if as_json:
        print_json(trained.result)
        return
    print_pairs(summarize(trained.result, out))
