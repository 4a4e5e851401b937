"""The commands that use graph embeddings that are trained."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import Json, Memory, Threads, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.errors import ConfigError
from diskhop.ui.progress import stage_progress
from diskhop.ui.summary import summarize_ranking

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of 'diskhop embed'.", show_default=False)]
Top = Annotated[int, typer.Option(help="How many are printed.")]
EvalEdges = Annotated[int | None, typer.Option(help="Edges that are measured, at most; 0: all.")]
EvalCandidates = Annotated[int | None, typer.Option(help="Drawn nodes that each is ranked among; 0: all there are.")]
EvalFiltered = Annotated[
    bool | None,
    typer.Option(
        "--eval-filtered/--eval-raw", help="Leave out nodes that make an edge of any part.", show_default=False
    ),
]
EvalSides = Annotated[str | None, typer.Option(help="both, tail or head: which end is looked for.")]
EvalTies = Annotated[str | None, typer.Option(help="realistic, optimistic or pessimistic.")]


@app.command()
def evaluate(
    run: Run,
    part: Annotated[str, typer.Option(help="test or valid.")] = "test",
    eval_edges: EvalEdges = None,
    eval_candidates: EvalCandidates = None,
    eval_filtered: EvalFiltered = None,
    eval_sides: EvalSides = None,
    eval_ties: EvalTies = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Rank edges by trained embeddings; options that are left out are the run's."""
    from diskhop.runs import evaluate_run

    options = {
        "eval_edges": eval_edges,
        "eval_candidates": eval_candidates,
        "eval_filtered": eval_filtered,
        "eval_sides": eval_sides,
        "eval_ties": eval_ties,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with stage_progress(stderr) as progress:
        found = evaluate_run(run, part=part, memory=memory, progress=partial(progress, "ranking edges"), **given)
    if as_json:
        print_json(found)
        return
    print_pairs(summarize_ranking(part, found))


@app.command()
def neighbors(
    run: Run,
    node: Annotated[str, typer.Argument(metavar="NAME", help="A node's name, or its id.", show_default=False)],
    top: Top = 10,
    by: Annotated[str, typer.Option(help="cosine, dot or l2.")] = "cosine",
    as_json: Json = False,
) -> None:
    """Print the nodes whose embeddings are nearest to one's, among all there are."""
    from diskhop.runs import neighbors as find_neighbors

    found = find_neighbors(run, node, top=top, by=by)
    if as_json:
        print_json({"node": node, "by": by, "neighbors": [{"name": each.name, "score": each.score} for each in found]})
        return
    print_pairs([(f"{each.score:.4f}", each.name) for each in found])


@app.command()
def score(
    run: Run,
    edge: Annotated[
        list[str],
        typer.Argument(metavar="HEAD [RELATION] TAIL", help="By name or id; '?' for an end that is looked for."),
    ],
    top: Top = 10,
    as_json: Json = False,
) -> None:
    """Print how likely an edge is, or the likeliest ends of one whose HEAD or TAIL is '?'."""
    from diskhop.runs import complete
    from diskhop.runs import score as score_edge

    if len(edge) not in (2, 3):
        raise ConfigError(f"an edge is HEAD TAIL, or HEAD RELATION TAIL where edges have relations, got {len(edge)}")
    head, relation, tail = edge[0], edge[1] if len(edge) == 3 else None, edge[-1]
    if "?" in (head, tail):
        answers = complete(run, head, relation, tail, top=top)
        if as_json:
            print_json({"edge": edge, "answers": [asdict(each) for each in answers]})
            return
        print_pairs([(f"{each.score:.4f}", each.name + ("  (known)" if each.is_known else "")) for each in answers])
        return
    found = score_edge(run, head, relation, tail)
    if as_json:
        print_json({"edge": edge, **asdict(found)})
        return
    among = f"of {found.num_nodes:,}, known ones left out"
    print_pairs(
        [
            ("score", f"{found.score:.4f}"),
            ("rank", f"{found.tail_rank:g} as a tail, {found.head_rank:g} as a head, {among}"),
            ("known", "yes, an edge of the dataset" if found.is_known else "no"),
        ]
    )


@app.command("map")
def draw(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE.svg", help="The picture to write.", show_default=False)],
    by: Annotated[str, typer.Option(help="What colours tell: degree, or label.")] = "degree",
    nodes: Annotated[int, typer.Option(help="How many are drawn, at most.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of which they are.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a map of a sample of embeddings: the plane in which they differ most."""
    from diskhop.runs import draw_map

    share = draw_map(run, file, by=by, nodes=nodes, seed=seed)
    if as_json:
        print_json({"path": str(file), "variance_share": share})
        return
    print_pairs([("drawn", f"{file}: two axes with {share:.0%} of the variance of what is drawn")])
