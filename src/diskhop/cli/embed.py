"""The command that trains graph embeddings."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import parse_bytes
from diskhop.cli.app import Json, Patience, app
from diskhop.cli.embeddings import EvalCandidates, EvalEdges, EvalFiltered, EvalSides, EvalTies
from diskhop.cli.output import print_json, print_pairs, print_table, stderr
from diskhop.errors import ConfigError
from diskhop.ui.summary import summarize_embedding


@app.command()
def embed(
    dataset: Annotated[
        Path | None, typer.Argument(metavar="DATASET", help="A dataset's folder.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="dot; with relations distmult, complex, transe, transe-l1, rotate.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="For graph data, as 2GB or 512MiB.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="A new folder for partitions and all else.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last commit in --out.")] = False,
    preset: Annotated[str | None, typer.Option(help="Options for a graph that is known, by its name.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options as RUN/config.toml has them.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over all edges.")] = None,
    patience: Patience = None,
    warm_start: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Begin with the embeddings of another run, by names.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Values of an embedding.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Edges a batch.")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Edges of a batch that share negatives.")] = None,
    negatives: Annotated[
        int | None, typer.Option(help="Nodes that an edge's ends are told from, at each side.")
    ] = None,
    degree_negatives: Annotated[float | None, typer.Option(help="The share of them that is drawn by degree.")] = None,
    mask_known: Annotated[
        bool | None, typer.Option(help="Leave out negatives that make an edge that is trained.", show_default=False)
    ] = None,
    loss: Annotated[str | None, typer.Option(help="softmax, contrastive, logistic or margin.")] = None,
    margin: Annotated[float | None, typer.Option(help="Of the losses logistic and margin.")] = None,
    lr: Annotated[float | None, typer.Option(help="Adagrad's learning rate.")] = None,
    lr_schedule: Annotated[
        str | None, typer.Option(help="constant, or linear: down to 0 at the end of the last epoch.")
    ] = None,
    adagrad: Annotated[str | None, typer.Option(help="A sum of squares for each row or each element.")] = None,
    init_scale: Annotated[float | None, typer.Option(help="Standard deviation of the first embeddings.")] = None,
    reciprocal: Annotated[
        bool | None, typer.Option(help="An embedding of relations for each direction.", show_default=False)
    ] = None,
    n3: Annotated[float | None, typer.Option(help="Weight of the sum of |x|^3 / 3.")] = None,
    l2: Annotated[float | None, typer.Option(help="Weight of the sum of x^2 / 2.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Of queries' values.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Default: the fewest that fit the memory.")] = None,
    buffer: Annotated[int | None, typer.Option(help="Partitions that are trained at once.")] = None,
    partition_order: Annotated[str | None, typer.Option(help="auto, searched, legend, beta or cover.")] = None,
    assignment: Annotated[str | None, typer.Option(help="Of nodes to partitions: random, or by input.")] = None,
    repartitions: Annotated[
        int | None, typer.Option(help="Times an epoch that nodes are dealt to partitions anew; 0: never.")
    ] = None,
    commit_states: Annotated[int | None, typer.Option(help="Commit after so many states, too; 0: epochs only.")] = None,
    overlap: Annotated[
        bool | None, typer.Option(help="Move partitions while others are trained.", show_default=False)
    ] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Train on all edges, measure nothing.")] = False,
    eval_every: Annotated[int | None, typer.Option(help="Epochs from one validation to the next.")] = None,
    eval_edges: EvalEdges = None,
    eval_candidates: EvalCandidates = None,
    eval_filtered: EvalFiltered = None,
    eval_sides: EvalSides = None,
    eval_ties: EvalTies = None,
    search: Annotated[
        int | None, typer.Option(metavar="N", help="Draw options for N runs in --out and print which are best.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="How the disk is read: auto, uring, threads.")] = None,
    threads: Annotated[int | None, typer.Option(help="For computing.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events to RUN, too.")] = False,
    as_json: Json = False,
) -> None:
    """Train embeddings of a graph's nodes, a few partitions in memory at a time; what was chosen is printed."""
    if out is None:
        raise ConfigError("--out is missing: name a new folder for the run, where the embeddings are going to be")
    # Here, not above: these bring PyTorch, which the other commands do without.
    from diskhop.runs import embed as train_embeddings
    from diskhop.ui.terminal import watching

    options: dict[str, Any] = {
        "model": model,
        "memory_bytes": None if memory is None else parse_bytes(memory),
        "seed": seed,
        "epochs": epochs,
        "patience": patience,
        "warm_start": None if warm_start is None else str(warm_start.resolve()),
        "dim": dim,
        "batch_size": batch_size,
        "chunk_size": chunk_size,
        "negatives": negatives,
        "degree_negatives": degree_negatives,
        "mask_known": mask_known,
        "loss": loss,
        "margin": margin,
        "lr": lr,
        "lr_schedule": lr_schedule,
        "adagrad": adagrad,
        "init_scale": init_scale,
        "reciprocal": reciprocal,
        "n3": n3,
        "l2": l2,
        "dropout": dropout,
        "partitions": partitions,
        "buffer": buffer,
        "partition_order": partition_order,
        "assignment": assignment,
        "repartitions": repartitions,
        "commit_states": commit_states,
        "overlap": overlap,
        "evaluate": False if no_eval else None,
        "eval_every": eval_every,
        "eval_edges": eval_edges,
        "eval_candidates": eval_candidates,
        "eval_filtered": eval_filtered,
        "eval_sides": eval_sides,
        "eval_ties": eval_ties,
        "engine": engine,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if search is not None:
        if resume or config is not None:
            raise ConfigError("--search goes on by itself: leave out --resume and --config")
        _search(search, dataset, out, preset, given, as_json=as_json)
        return
    with watching(stderr, out, tensorboard=tensorboard) as watcher:
        embedded = train_embeddings(
            dataset, out=out, resume=resume, preset=preset, config=config, watcher=watcher, **given
        )
    if as_json:
        print_json(embedded.result)
        return
    print_pairs(summarize_embedding(embedded.result, out))


def _search(
    trials: int, dataset: Path | None, out: Path, preset: str | None, given: dict[str, Any], *, as_json: bool
) -> None:
    """Run a search, a line for each trial as it is done, and print all of them, the best first."""
    from diskhop.runs import Trial
    from diskhop.runs import search as search_options

    def tell(number: int, trial: Trial) -> None:
        stderr.print(f"trial {number}/{trials}  {_valid_of(trial.valid)}  {trial.seconds:.1f} s  {trial.path}")

    found = search_options(dataset, out=out, trials=trials, preset=preset, done=tell, **given)
    if as_json:
        print_json({"trials": [{**asdict(trial), "path": str(trial.path)} for trial in found]})
        return
    drawn = list(found[0].options)
    rows = [
        [_valid_of(each.valid), f"{each.seconds:.1f}", *map(str, each.options.values()), each.path.name]
        for each in found
    ]
    print_table(["valid", "seconds", *drawn, "run"], rows)
    best = shlex.quote(str(found[0].path))
    print_pairs([("next", f"diskhop evaluate {best}, or diskhop embed --config {best}/config.toml --out RUN")])


def _valid_of(valid: float | None) -> str:
    return "not finite" if valid is None else f"{valid:.4f}"
