"""Print results as the tables of docs/reliability.md: python -m tests.campaign.table FILE.json ..."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.results import Row, read_rows


def table(rows: Sequence[Row]) -> str:
    """A line for each thing that faults are done to, and a column for each kind of fault."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    lines = [f"| | {' | '.join(kinds)} | differences |", "|---|" + "---|" * (len(kinds) + 1)]
    for what in [*dict.fromkeys(row.what for row in rows), ""]:
        of_line = [row for row in rows if what in ("", row.what)]
        counts = [sum(row.count for row in of_line if row.kind == kind) for kind in kinds]
        cells = [what or "all", *(f"{count:,}" if count else "" for count in counts)]
        lines.append(f"| {' | '.join(cells)} | {sum(row.failures for row in of_line)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    rows = [row for path in parser.parse_args().files for row in read_rows(path)]
    for part in dict.fromkeys(row.part for row in rows):
        print(f"{part}:\n\n{table([row for row in rows if row.part == part])}\n")


if __name__ == "__main__":
    main()
