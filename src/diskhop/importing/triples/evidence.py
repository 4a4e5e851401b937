"""Decides what the rows of a knowledge graph are: which column is which, and whether they are names or ids.

The evidence, in this order: the option --columns, a header, the dictionaries (which values are names or ids of
relations), and what files of such a name usually have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import ConfigError, SourceError
from diskhop.importing.text.streams import at_line
from diskhop.importing.triples.names import DictionaryName, is_called_as_openke
from diskhop.importing.triples.rows import ENTITIES, NAME, NUMBER, RELATIONS, TRIPLE, RowKind
from diskhop.importing.triples.samples import Sample, header_of_triples, is_whole_number

# Places of head, relation and tail: as most texts have them, and as OpenKE's do.
USUAL, OPENKE = (0, 1, 2), (0, 2, 1)
_ORDERS = (USUAL, OPENKE, (1, 0, 2))
_FEW_ROWS = 2000


@dataclass(frozen=True, slots=True)
class TripleColumns:
    """Meaning of the columns of triples.

    places: columns of head, relation and tail, from 0.
    are_ids: whether they are ids of the dictionaries.
    why: the evidence for the columns, for people.
    """

    places: tuple[int, ...]
    are_ids: bool
    why: str


def dictionary_kind(name: DictionaryName, sample: Sample) -> RowKind | None:
    """Decide which column of a dictionary is the id; None: the file is no dictionary."""
    rows = [row for row in sample.rows if len(row) == 2]
    if not name.is_sure and (len(rows) < len(sample.rows) or not rows):
        return None
    fits = [place for place in (0, 1) if rows and all(is_whole_number(row[place]) for row in rows)]
    place = 1 if name.has_names_first else 0
    if not fits:
        return _dictionary_rows(place, sample.delimiter) if name.is_sure else None
    if place not in fits:
        place = fits[0]
    elif len(fits) == 2 and sample.is_whole:
        # Names are numbers too: the ids are those without gaps.
        numbered = [
            each for each in (place, 1 - place) if sorted(int(row[each]) for row in rows) == [*range(len(rows))]
        ]
        place = (numbered or [place])[0]
    return _dictionary_rows(place, sample.delimiter)


def decide(
    parts: Mapping[Path, Sample],
    dictionaries: Mapping[str, tuple[RowKind, Sample]],
    columns: Sequence[str] | None,
    *,
    are_ids: bool,
) -> TripleColumns:
    """Decide the columns of all parts of a graph. Raises SourceError, ConfigError.

    columns: the option.
    are_ids: whether files of this name have ids; otherwise the values decide.
    """
    is_openke = any(map(is_called_as_openke, parts))
    usual = OPENKE if is_openke else USUAL
    given = _stated_columns(parts, columns)
    if given is None:
        _require_three(parts)
    rows = [row for sample in parts.values() for row in sample.rows[:_FEW_ROWS] if len(row) >= len(TRIPLE)]
    if dictionaries and not are_ids:
        are_ids = _are_ids(rows, (given,) if given else _ORDERS, dictionaries)
    if given is not None:
        return TripleColumns(given, are_ids, "--columns" if columns is not None else "header")
    fits = [order for order in _ORDERS if dictionaries and _fits(rows, order, dictionaries, are_ids)]
    if fits and usual not in fits:
        return TripleColumns(fits[0], are_ids, "dictionaries")
    if fits == [usual]:
        return TripleColumns(usual, are_ids, "dictionaries")
    return TripleColumns(usual, are_ids, "usual in files of OpenKE" if is_openke else "usual")


def triple_kind(decided: TripleColumns, sample: Sample) -> RowKind:
    """Return the kind of a part's rows."""
    width = max((len(row) for row in sample.rows[:1]), default=len(TRIPLE))
    width = max(width, 1 + max(decided.places))
    named = dict(zip(decided.places, TRIPLE, strict=True))
    kind = NUMBER if decided.are_ids else NAME
    columns = {named.get(place, f"column {place + 1}"): kind for place in range(width)}
    return RowKind(columns, TRIPLE, sample.delimiter)


def _dictionary_rows(place: int, delimiter: str) -> RowKind:
    columns = {"id": NUMBER, "name": NAME}
    return RowKind(columns if place == 0 else dict(reversed(columns.items())), ("id", "name"), delimiter)


def _stated_columns(parts: Mapping[Path, Sample], columns: Sequence[str] | None) -> tuple[int, ...] | None:
    """Find the columns that the option or the headers name; None: neither does."""
    orders = {}
    for path, sample in parts.items():
        if columns is not None:
            orders[path] = _named(path, sample, columns)
        elif sample.header is not None:
            order = header_of_triples([sample.header])
            if order is None:
                raise SourceError(
                    f"{at_line(path, sample.first_line)}: the header does not say which columns are head, relation "
                    "and tail; name them, as --columns 1,2,3"
                )
            orders[path] = order
    if len(set(orders.values())) > 1:
        first, second = list(orders)[:2]
        raise SourceError(f"{second}: has its columns in another order than {first}; save all parts in one order")
    return next(iter(orders.values()), None)


def _named(path: Path, sample: Sample, columns: Sequence[str]) -> tuple[int, ...]:
    if len(columns) != len(TRIPLE):
        raise ConfigError(
            f"--columns {','.join(columns)} must name three columns of triples, head, relation and tail, "
            "as --columns 1,2,3"
        )
    header = list(sample.header or ())
    width = len(sample.rows[0]) if sample.rows else len(TRIPLE)
    numbers = [str(number) for number in range(1, width + 1)]
    found = []
    for column in columns:
        names = header if column in header else numbers
        if column not in names:
            known = f"1 to {width}" + (f" and {', '.join(header)}" if header else "")
            raise SourceError(f"{path}: has no column '{column}'; --columns can name {known}")
        found.append(names.index(column))
    return tuple(found)


def _require_three(parts: Mapping[Path, Sample]) -> None:
    for path, sample in parts.items():
        # A CR within a line makes one row of several: the import names it.
        first = sample.rows[0] if sample.rows else []
        if any(first[len(TRIPLE) :]) and "\r" not in "".join(first):
            raise SourceError(
                f"{at_line(path, sample.first_line)}: a row must have three columns, head, relation and tail, got "
                f"{len(sample.rows[0])}; name the three, as --columns 1,2,3 (others, such as times, are not imported)"
            )


def _are_ids(
    rows: Sequence[Sequence[str]],
    orders: Sequence[tuple[int, ...]],
    dictionaries: Mapping[str, tuple[RowKind, Sample]],
) -> bool:
    """Decide whether triples are ids: they are whole numbers, and in no order of columns names of the dictionaries."""
    places = {place for order in orders for place in order}
    if not rows or not all(is_whole_number(row[place]) for row in rows for place in places if place < len(row)):
        return False
    return not any(_fits(rows, order, dictionaries, False, among=(RELATIONS, ENTITIES)) for order in orders)


def _fits(
    rows: Sequence[Sequence[str]],
    order: tuple[int, ...],
    dictionaries: Mapping[str, tuple[RowKind, Sample]],
    are_ids: bool,
    among: tuple[str, ...] = (RELATIONS,),
) -> bool:
    """Check whether the values of an order's columns are in the dictionaries `among` which are known to their end."""
    for what, places in ((RELATIONS, order[1:2]), (ENTITIES, (order[0], order[2]))):
        kind, sample = dictionaries[what]
        if what not in among or not sample.is_whole:
            continue
        values = {row[place] for row in rows for place in places if place < len(row)}
        if are_ids and not all(is_whole_number(value) and int(value) < len(sample.rows) for value in values):
            return False
        if not are_ids and not values <= _names_of(kind, sample):
            return False
    return bool(rows)


def _names_of(kind: RowKind, sample: Sample) -> set[str]:
    place = list(kind.columns).index("name")
    return {row[place] for row in sample.rows if place < len(row)}
