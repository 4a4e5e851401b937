"""The command that imports graphs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Executor, Json, Overwrite, Workers, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig
from diskhop.importing.options import ImportOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diskhop.importing.estimate import Estimate
    from diskhop.importing.evidence.decisions import Decision
    from diskhop.updating.run import UpdateEstimate


@command("import")
@takes_options(ImportOptions)
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def import_command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder with data.npz, .npy files or tables, or a text of edges.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="Folder of the new dataset.")],
    *,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Format of the source; detected by default.", rich_help_panel=COMMON
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the dataset; by default the source's.", rich_help_panel=COMMON),
    ] = None,
    features_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Embeddings of a run of 'diskhop embed' as features, by ids or names, for a graph without features; "
            "SOURCE may be a dataset.",
            rich_help_panel="Features",
        ),
    ] = None,
    executor: Executor = "",
    workers: Workers = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Import a graph: DEST appears once it is complete, or not at all."""
    from diskhop.api.import_graph import import_graph
    from diskhop.dataset.verify import describe
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    facts: dict[str, Any] = {}
    reports = Reports(source)
    with stage_progress(stderr) as progress:
        dataset = import_graph(
            source,
            destination,
            format=format_name,
            name=name,
            features_from=features_from,
            executor=executor,
            workers=workers,
            overwrite=overwrite,
            progress=progress,
            on_decisions=reports.decide,
            on_estimate=reports.estimate,
            on_facts=facts.update,
            **given,
        )
    if as_json:
        print_json({**describe(dataset), "import": {**facts, **reports.facts}})
    else:
        print_pairs(summarize_dataset(dataset, found=facts))


class Reports:
    """Prints what an import or update reports before its work, and keeps it for --json."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.facts: dict[str, Any] = {}

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Print the table of decisions."""
        from diskhop.ui.table import decision_lines

        self.facts["decisions"] = [each._asdict() for each in decisions]
        for line in decision_lines(decisions, stderr.width if stderr.is_terminal else None):
            stderr.print(line, markup=False)

    def estimate(self, estimate: Estimate | UpdateEstimate) -> None:
        """Print the estimate."""
        self.facts["estimate"] = asdict(estimate)
        stderr.print(f"{self._source}, {estimate}", markup=False)
