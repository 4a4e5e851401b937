"""Checked access to a JSON object from an untrusted file: every invalid value raises FormatError."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diskhop.errors import FormatError

# Names become folders: they must not leave the dataset, be hidden, or have a meaning in a shell.
_COMPONENT = r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}"
TYPE_NAME = re.compile(_COMPONENT)
FILE_NAME = re.compile(rf"{_COMPONENT}(/{_COMPONENT}){{0,7}}")
_DIGEST = re.compile(r"[0-9a-f]{16}")


class Fields:
    """The keys of one JSON object; `where` names it in errors. unread() returns keys that were never read."""

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, dict):
            raise FormatError(f"{where}: must be a JSON object, got {_shown(document)}; import the graph again")
        self._document: dict[str, Any] = document
        self._where = where
        self._read: set[str] = set()

    def error(self, key: str, rule: str, value: object) -> FormatError:
        """Return the error for a key that breaks a rule."""
        return FormatError(f"{self._where}: {key!r} {rule}, got {_shown(value)}; import the graph again")

    def has(self, key: str) -> bool:
        """Return whether the key exists."""
        return key in self._document

    def value(self, key: str) -> Any:
        """Return the raw value, None if absent."""
        self._read.add(key)
        return self._document.get(key)

    def integer(self, key: str, least: int, most: int) -> int:
        """Return a whole number in [least, most]."""
        value = self.value(key)
        if type(value) is not int or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}", value)
        return value

    def text(self, key: str) -> str:
        """Return a string of 1 to 200 printable characters."""
        value = self.value(key)
        if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
            raise self.error(key, "must be 1 to 200 printable characters", value)
        return value

    def digest(self, key: str) -> str:
        """Return a string of 16 hex digits."""
        value = self.value(key)
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            raise self.error(key, "must be 16 hex digits", value)
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return one of the given strings."""
        value = self.value(key)
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, f"must be one of {', '.join(choices)}", value)
        return value

    def flag(self, key: str) -> bool:
        """Return a flag, which is stored as true or absent, so that each value has one spelling."""
        value = self.value(key)
        if self.has(key) and value is not True:
            raise self.error(key, "must be true or absent", value)
        return value is True

    def child(self, key: str) -> Fields:
        """Return the object under a key."""
        return Fields(self.value(key), f"{self._where}: {key}")

    def items(self, key: str, name: re.Pattern[str]) -> Iterator[tuple[str, Fields]]:
        """Yield (name, object) for each entry of the object under a key; names must match the pattern."""
        child = self.child(key)
        for entry, value in child._document.items():
            if not name.fullmatch(entry):
                raise self.error(
                    key, "must have names of letters, digits and _ . + = - (for files, joined by /)", entry
                )
            yield entry, Fields(value, f"{self._where}: {key}: {entry}")

    def lengths(self, key: str, most: int) -> tuple[int, ...]:
        """Return a list of whole numbers in [0, most], which may be empty."""
        value = self.value(key)
        if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= most for each in value):
            raise self.error(key, f"must be a list of whole numbers from 0 to {most}", value)
        return tuple(value)

    def counts(self, key: str, names: Sequence[str] | None, least: int, most: int) -> Mapping[str, int]:
        """Return a nonempty object of whole numbers, with the given names or, for None, any valid type names."""
        child = self.child(key)
        return _counts(child, names, least, most)

    def list_of_counts(self, key: str, names: Sequence[str], least: int, most: int) -> tuple[Mapping[str, int], ...]:
        """Return a nonempty list of objects as counts() returns them."""
        value = self.value(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "must be a list with at least one entry", value)
        return tuple(
            _counts(Fields(entry, f"{self._where}: {key}: {number}"), names, least, most)
            for number, entry in enumerate(value)
        )

    def unread(self) -> dict[str, Any]:
        """Return the keys that were not read; they are preserved, because a later format version may define them."""
        return {key: value for key, value in self._document.items() if key not in self._read}

    def refuse_unread(self) -> None:
        """Raise FormatError for keys that were not read, in objects that are never extended."""
        for key, value in self.unread().items():
            raise self.error(key, "is not known here", value)

    def _names(self) -> Iterator[str]:
        return iter(self._document)


def _counts(fields: Fields, names: Sequence[str] | None, least: int, most: int) -> Mapping[str, int]:
    counts = {}
    for name in fields._names():
        if name not in names if names is not None else not TYPE_NAME.fullmatch(name):
            raise fields.error(name, f"must be one of {', '.join(names)}" if names else "must be a valid name", name)
        counts[name] = fields.integer(name, least, most)
    if not counts:
        raise FormatError(f"{fields._where}: must have at least one entry; import the graph again")
    return counts


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'JSON object'} of {len(value)}"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number beyond 64 bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
