"""Results of a campaign: a row for each case, in a JSON file that is written after every few tries."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from diskhop.io.atomic import write_file

# Failures that a row describes; all are counted.
_MOST_DESCRIBED = 20


@dataclass(frozen=True, slots=True)
class Row:
    """A case and its tries so far.

    count: of tries. failures: of them. seconds: that they took. notes: what went wrong, of the first failures.
    """

    part: str
    kind: str
    what: str
    count: int = 0
    failures: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def added(self, failure: str, seconds: float) -> Row:
        """The row after one more try. failure: "" or what went wrong."""
        notes = (*self.notes, f"try {self.count}: {failure}")[:_MOST_DESCRIBED] if failure else self.notes
        return replace(
            self,
            count=self.count + 1,
            failures=self.failures + bool(failure),
            seconds=round(self.seconds + seconds, 3),
            notes=notes,
        )


def read_rows(path: Path) -> list[Row]:
    return [Row(**{**each, "notes": tuple(each["notes"])}) for each in json.loads(path.read_text())["rows"]]


class Results:
    """Rows of one seed by part, kind and what, those of an earlier start of the campaign included."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self._path, self._seed = path, seed
        self._rows: dict[tuple[str, str, str], Row] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text())["seed"]
            if found != seed:
                raise SystemExit(f"{path}: has results of --seed {found}, not {seed}; name another file")
            for row in read_rows(path):
                self.put(row, save=False)

    def row(self, part: str, kind: str, what: str) -> Row:
        return self._rows.get((part, kind, what), Row(part, kind, what))

    def put(self, row: Row, *, save: bool = True) -> None:
        self._rows[row.part, row.kind, row.what] = row
        if save and self._path is not None:
            document = {"seed": self._seed, "rows": [asdict(each) for each in self._rows.values()]}
            write_file(self._path, json.dumps(document, indent=1).encode())
