"""Names of nodes, entities or relations: one per line of a file, streamed in the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, FormatError


def read_names(path: Path) -> Iterator[str]:
    """Yield the names of a file in the order of ids. Raises FormatError."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield line.removesuffix(b"\n").decode()
    except UnicodeDecodeError:
        raise FormatError(
            f"{path}: is damaged; 'diskhop verify' names the blocks: copy or import the dataset again"
        ) from None


class Names:
    """The `count` names of 'nodes', 'entities' or 'relations' of a dataset; ids stand in for missing names."""

    def __init__(self, dataset: Dataset, kind: str, count: int) -> None:
        self._path = dataset.path / "names" / f"{kind}.txt" if kind in dataset.manifest.names else None
        self._dataset = dataset
        self._kind = kind
        self._count = count

    @property
    def are_given(self) -> bool:
        """Whether the dataset has such names."""
        return self._path is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names in the order of ids."""
        return map(str, range(self._count)) if self._path is None else read_names(self._path)

    def find(self, name: str) -> int:
        """Return the id of a name. Raises ConfigError if it is unknown."""
        if self._path is None:
            if name.isascii() and name.isdigit() and int(name) < self._count:
                return int(name)
            raise ConfigError(
                f"{self._dataset.path}: {self._kind} have ids from 0 to {self._count - 1} and no names, got '{name}'"
            )
        for number, each in enumerate(self):
            if each == name:
                return number
        raise ConfigError(
            f"{self._dataset.path}: none of the {self._count:,} {self._kind} is named '{name}'; "
            f"the names are in {self._path}"
        )

    def of(self, ids: list[int]) -> list[str]:
        """Return the names of ids, in the order of the ids."""
        if self._path is None:
            return [str(each) for each in ids]
        wanted = set(ids)
        found = {number: name for number, name in enumerate(self) if number in wanted}
        return [found[each] for each in ids]
