"""Names of nodes, entities or relations: one per line of a file (name_lines.py), streamed in the order of ids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.name_lines import damaged_names, name_of
from diskhop.errors import ConfigError

# Digits of the largest id, and characters of a name in an error.
_MOST_DIGITS, _MOST_SHOWN = 19, 60
_NOT_IN_A_FIELD = re.compile(r'[\t\n\r"]')
# Control characters, also of Unicode, and what XML does not allow.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")


def read_names(path: Path) -> Iterator[str]:
    """Yield the names of a file in the order of ids. Raises FormatError."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield name_of(line.removesuffix(b"\n").decode())
    except ValueError:
        raise damaged_names(path) from None


class Names:
    """The `count` names of 'nodes', 'entities' or 'relations' of a dataset; ids stand in for missing names.

    Names are numbered from 0, in the ascending order of the ids they belong to.

    ids: id of each number, ascending; None: numbers are the ids.
    """

    def __init__(self, dataset: Dataset, kind: str, count: int, ids: NDArray[np.int64] | None = None) -> None:
        self._path = dataset.content / "names" / f"{kind}.txt" if kind in dataset.manifest.names else None
        self._dataset = dataset
        self._kind = kind
        self._count = count
        self._ids = ids

    @property
    def are_given(self) -> bool:
        """Whether the dataset has such names."""
        return self._path is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names in the order of their numbers."""
        if self._path is not None:
            return read_names(self._path)
        return map(str, range(self._count) if self._ids is None else self._ids)

    def ids(self) -> NDArray[np.int64]:
        """Return the id of each number, ascending."""
        return np.arange(self._count) if self._ids is None else self._ids

    def find(self, name: str | int) -> int:
        """Return the number of a name, or of an id where there are no names. Raises ConfigError if it is unknown."""
        if not isinstance(name, str | int | np.integer) or isinstance(name, bool):
            raise ConfigError(
                f"{self._dataset.path}: one of the {self._kind} is given as text, got {name!r} of type "
                f"{type(name).__name__}; give it as text, such as {next(iter(self))!r}"
            )
        text = str(name)
        if self._path is None:
            return self._find_id(text)
        for number, each in enumerate(self):
            if each == text:
                return number
        raise self._unknown(text)

    def find_all(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers of names in their order, in one pass. Raises ConfigError for the first unknown one."""
        wanted = dict.fromkeys(names, -1)
        for number, each in enumerate(self):
            if each in wanted:
                wanted[each] = number
        for name, number in wanted.items():
            if number < 0:
                raise self._unknown(name)
        return np.array([wanted[name] for name in names], np.int64)

    def of(self, numbers: list[int]) -> list[str]:
        """Return the names of numbers, in the order of the numbers."""
        if self._path is None:
            return [str(each if self._ids is None else self._ids[each]) for each in numbers]
        wanted = set(numbers)
        found = {number: name for number, name in enumerate(self) if number in wanted}
        return [found[each] for each in numbers]

    def _unknown(self, name: str) -> ConfigError:
        return ConfigError(
            f"{self._dataset.path}: none of the {self._count:,} {self._kind} is named '{_shortened(name)}'; "
            f"the names are in {self._path}"
        )

    def _find_id(self, text: str) -> int:
        digits = text.lstrip("0") or text[-1:]
        if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
            wanted = int(digits)
            number = wanted if self._ids is None else int(np.searchsorted(self._ids, wanted))
            if number < self._count and (self._ids is None or self._ids[number] == wanted):
                return number
        first, last = (0, self._count - 1) if self._ids is None else (self._ids[0], self._ids[-1])
        raise ConfigError(
            f"{self._dataset.path}: none of the {self._count:,} {self._kind} has the id '{_shortened(text)}'; "
            f"they have ids from {first} to {last}: use one of these, such as {first}"
        )


def as_field(name: str) -> str:
    """Return a name as a field of tab-separated text, as Python's csv module reads it.

    A name with a tab, a line break or a quote is put in double quotes, and its own are doubled.
    """
    return '"' + name.replace('"', '""') + '"' if _NOT_IN_A_FIELD.search(name) else name


def as_shown(name: str) -> str:
    """Return a name for people: with control characters, or a quote or space at an end, it is written as JSON."""
    if not _CONTROLS.search(name) and name == name.strip('" '):
        return name
    quoted = json.dumps(name, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _shortened(name: str) -> str:
    shown = as_shown(name)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}... ({len(name):,} characters)"
