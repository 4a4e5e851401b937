"""The commands that look at a dataset."""

from __future__ import annotations

from diskhop.cli.app import command
from diskhop.cli.options import DatasetPath, Json
from diskhop.cli.output import print_json, print_pairs, stderr, stdout
from diskhop.errors import FormatError


@command("inspect")
def inspect(dataset: DatasetPath, as_json: Json = False) -> None:
    """Show the contents of a dataset."""
    from diskhop.api.dataset import inspect as inspect_dataset
    from diskhop.ui.facts import fact_rows
    from diskhop.ui.schema import draw_schema

    description = inspect_dataset(dataset).facts
    if as_json:
        print_json(description)
        return
    if "schema" in description:
        for line in draw_schema(description, stdout.width):
            stdout.print(line, markup=False)
        stdout.print()
        del description["schema"]
    print_pairs(list(fact_rows(description)))


@command("verify")
def verify_command(dataset: DatasetPath, as_json: Json = False) -> None:
    """Read every byte of a dataset and compare it with its checksum."""
    from diskhop.api.dataset import verify
    from diskhop.ui.progress import stage_progress

    with stage_progress(stderr) as progress:
        damages = verify(dataset, progress=progress).damages
    if as_json:
        print_json({"dataset": str(dataset), "damaged": [str(damage) for damage in damages]})
    for damage in damages:
        stderr.print(str(damage), markup=False)
    if damages:
        raise FormatError(f"{dataset}: {len(damages)} damaged; import the graph again or copy the dataset again")
    if not as_json:
        stdout.print(f"{dataset}: every checksum matches", markup=False)
