"""Commands that bring datasets in and look at them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from diskhop.budget import Budget, parse_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import print_description, print_json, print_pairs, stderr, stdout
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.verify import describe, verify
from diskhop.errors import FormatError
from diskhop.importing.estimate import Estimate
from diskhop.importing.options import ImportOptions
from diskhop.importing.sources import import_graph
from diskhop.io.engine import open_engine
from diskhop.ui.progress import stage_progress
from diskhop.ui.summary import summarize_dataset


@app.command("import")
def import_command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder with data.npz, .npy files or tables, or a text of edges.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The dataset to make.")],
    format_name: Annotated[str | None, typer.Option("--format", help="Of the source; default: detected.")] = None,
    name: Annotated[str | None, typer.Option(help="The dataset's name; default: the source's.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Store features as float32, float16, bfloat16 or int8; default: as they are.")
    ] = None,
    random_features: Annotated[
        int | None, typer.Option(metavar="DIM", help="So many normal values for each node, where there are none.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Between columns of edges: a character, tab, comma, semicolon or space.")
    ] = None,
    header: Annotated[bool | None, typer.Option(help="Whether a header leads the edges; default: as it looks.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Source and destination of edges, by number from 1 or header, as 1,2.")
    ] = None,
    ids: Annotated[str | None, typer.Option(help="Of edges: integer or string; default: as the first row.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Ids of edges are 0 to NODES - 1, used or not.")] = None,
    edge_columns: Annotated[
        str | None, typer.Option(help="Of tables: columns of source and destination, as src,dst.")
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Of tables: the nodes' column of ids.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Of tables: the nodes' columns of features, as a,b,c; default: all of numbers.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Of tables: the nodes' column of classes; of folders with several labels: which.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Of tables: the nodes' column of train, valid, test; of OGB's folders: which.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Of tables: the edges' column of weights.")] = None,
    time: Annotated[str | None, typer.Option(help="Of tables: the edges' column of times.")] = None,
    undirected: Annotated[
        bool | None, typer.Option("--undirected/--directed", help="Store each edge both ways; default: directed.")
    ] = None,
    self_loops: Annotated[str | None, typer.Option(help="keep or drop edges from a node to itself.")] = None,
    duplicates: Annotated[str | None, typer.Option(help="keep or drop edges that occur again.")] = None,
    order: Annotated[str | None, typer.Option(help="input, or hot: nodes by how often they are read.")] = None,
    memory: Memory = None,
    threads: Threads = None,
    workers: Annotated[
        int, typer.Option(metavar="N", help="Spread the work over so many processes, which share memory and threads.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Bring a graph in: DEST appears when it is complete, or not at all."""
    options = ImportOptions(
        dtype=dtype,
        random_features=random_features,
        delimiter=delimiter,
        header=header,
        columns=None if columns is None else tuple(columns.split(",")),
        ids=cast(Any, ids),
        nodes=nodes,
        edge_columns=None if edge_columns is None else tuple(edge_columns.split(",")),
        id=id_column,
        features=None if features is None else tuple(features.split(",")),
        label=label,
        split=split,
        weight=weight,
        time=time,
        undirected=undirected,
        self_loops=cast(Any, self_loops),
        duplicates=cast(Any, duplicates),
        order=cast(Any, order),
    )
    budget = None if memory is None else Budget(parse_bytes(memory))
    facts: dict[str, Any] = {}
    estimates: list[Estimate] = []

    def tell(estimate: Estimate) -> None:
        estimates.append(estimate)
        stderr.print(f"{source}, {estimate}", markup=False)

    with stage_progress(stderr) as progress:
        dataset = import_graph(
            source,
            destination,
            format_name=format_name,
            name=name,
            options=options,
            facts=facts,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            workers=workers,
            progress=progress,
            told=tell,
        )
    if as_json:
        print_json({**describe(dataset), "import": {**facts, "estimate": asdict(estimates[0])}})
    else:
        print_pairs(summarize_dataset(dataset, found=facts))


@app.command()
def inspect(dataset: DatasetPath, as_json: Json = False) -> None:
    """Show what is in a dataset."""
    print_description(describe(open_dataset(dataset)), as_json)


@app.command("verify")
def verify_command(dataset: DatasetPath, as_json: Json = False) -> None:
    """Read every byte and compare it with its checksum."""
    with stage_progress(stderr) as progress:
        damages = verify(dataset, progress)
    if as_json:
        print_json({"dataset": str(dataset), "damaged": [str(damage) for damage in damages]})
    for damage in damages:
        stderr.print(str(damage), markup=False)
    if damages:
        raise FormatError(f"{dataset}: {len(damages)} damaged; import the graph again or copy the dataset anew")
    if not as_json:
        stdout.print(f"{dataset}: every byte is as it was written", markup=False)
