"""The commands that use trained graph embeddings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite
from diskhop.cli.output import print_json, print_pairs

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of 'diskhop embed'.", show_default=False)]
Top = Annotated[int, typer.Option(metavar="N", help="Number of results.", rich_help_panel=COMMON)]


@command("neighbors")
def neighbors(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run of 'diskhop embed', or of 'diskhop train --task link'.",
            show_default=False,
        ),
    ],
    node: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a node.", show_default=False)],
    top: Top = 10,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Similarity: cosine, dot or l2; for links also decoder, the run's own score. "
            "[dim]\\[default: cosine, for links decoder][/dim]",
            rich_help_panel=COMMON,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the nodes with the most similar embeddings, or the likeliest partners of a node by a link model."""
    from diskhop.api.embeddings import neighbors as find_neighbors
    from diskhop.runs.neighbors import is_link_run, usual_similarity

    by = by or usual_similarity(run)
    found = find_neighbors(run, node, top=top, by=by)
    if as_json:
        names = ("name", "score", "is_known") if is_link_run(run) else ("name", "score")
        print_json(
            {"node": node, "by": by, "neighbors": [{name: getattr(each, name) for name in names} for each in found]}
        )
        return
    print_pairs(found.rows())


@command("score")
def score(
    run: Run,
    edge: Annotated[
        list[str],
        typer.Argument(metavar="HEAD [RELATION] TAIL", help="Names or ids; '?' for an end to predict."),
    ],
    top: Top = 10,
    as_json: Json = False,
) -> None:
    """Print how likely an edge is, or the likeliest ends of one with HEAD or TAIL '?'."""
    from diskhop.api.embeddings import Answers
    from diskhop.api.embeddings import score as score_edge

    found = score_edge(run, *edge, top=top)
    if not as_json:
        print_pairs(found.rows())
    elif isinstance(found, Answers):
        print_json({"edge": edge, "answers": [asdict(each) for each in found]})
    else:
        print_json({"edge": edge, **asdict(found)})


@command("map")
def draw(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE.svg", help="Picture to write.", show_default=False)],
    by: Annotated[
        str, typer.Option(metavar="NAME", help="Colour nodes by degree or label.", rich_help_panel=COMMON)
    ] = "degree",
    nodes: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of nodes to draw.", rich_help_panel=COMMON)
    ] = 2000,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the sample.", rich_help_panel=COMMON)] = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Draw a sample of embeddings in the plane in which they differ most."""
    from diskhop.api.embeddings import map as draw_map

    drawn = draw_map(run, file, by=by, nodes=nodes, seed=seed, overwrite=overwrite)
    if as_json:
        print_json({"path": str(file), "variance_share": drawn.variance_share})
        return
    print_pairs(drawn.rows())
