"""Learned rows of one node type on disk, as a part of a model: the same values as LearnedRows, in a bounded memory.

Rows are read for a batch and written back after its step, in the order of the batches. state_dict() has the number of
a version and its checksum instead of the rows; loading them restores the version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from diskhop._native import Engine, RowUpdater
from diskhop.embedding.rows.cache import PageCache
from diskhop.embedding.rows.layout import RowLayout
from diskhop.embedding.rows.versions import (
    copy_rows,
    remove_versions,
    restore_rows,
    version_path,
    work_path,
    write_initial,
)
from diskhop.errors import TrainingError
from diskhop.io.atomic import Injector
from diskhop.nn.typed.embeddings import DEFAULT_LR, EPSILON
from diskhop.protocols import NodeIds

VERSION = "version"
# Copies of the rows on disk at most: the one in use, those of the last checkpoint and the next, and the best model's.
COPIES_ON_DISK = 4
# The rows before training, which no file has to keep.
_INITIAL = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowPlace:
    """Where the rows of a run are.

    folder: of their files. engine: reads and writes.
    """

    folder: Path
    engine: Engine
    injector: Injector | None = None


class StoredRows(nn.Module):
    """Learned rows in a file, of which cache_bytes are in memory; see LearnedRows.

    Use it between open() and close(). Before that, a batch gets rows of zeros, to measure a step on.
    """

    def __init__(self, name: str, layout: RowLayout, cache_bytes: int, *, seed: int, key: int = 0) -> None:
        super().__init__()
        self.name = name
        self.layout = layout
        self._num_cached = layout.pages_in(cache_bytes)
        self._seed, self._key = seed, key
        # Number of the version, and its checksum as a signed number. A view: what is loaded is loaded here.
        self.register_buffer(VERSION, torch.zeros(2, dtype=torch.int64))
        self._reads: list[tuple[NodeIds, Tensor]] = []
        self._updater = RowUpdater(torch.get_num_threads())
        self._place: RowPlace | None = None
        self._cache: PageCache | None = None

    def _apply(self, _function: Any, _recurse: bool = True) -> StoredRows:
        """See LearnedRows."""
        return self

    def forward(self, ids: NodeIds) -> Tensor:
        """Return a batch's rows, float32 (ids, dim), with a gradient unless torch computes none."""
        if self._cache is None:
            self._require_untrained()
            return torch.zeros(len(ids), self.layout.dim, requires_grad=torch.is_grad_enabled())
        found = torch.from_numpy(self._cache.gather(ids)[0])
        if torch.is_grad_enabled():
            found.requires_grad_()
            self._reads.append((ids, found))
        return found

    def step(self, lr: float = DEFAULT_LR, weight: float = 1.0) -> None:
        """Update the rows that were read since the last step; see NodeEmbeddings.step()."""
        reads = [(ids, rows.grad) for ids, rows in self._reads if rows.grad is not None]
        self._reads = []
        if not reads:
            return
        cache = self._opened
        ids, grads = np.concatenate([ids for ids, _ in reads]), torch.cat([grad for _, grad in reads])
        distinct, places = np.unique(ids, return_inverse=True)
        sums = torch.zeros(len(distinct), self.layout.dim).index_add_(0, torch.from_numpy(places), grads)
        if weight != 1.0:
            sums /= weight
        values, squares = cache.gather(distinct)
        self._updater.update(values, squares, torch.arange(len(distinct)), sums, lr, EPSILON)
        cache.scatter(distinct, values, squares)

    def open(self, place: RowPlace) -> None:
        """Write the initial rows and open them. Raises DestinationError or WriteError."""
        path = work_path(place.folder, self.name)
        path.unlink(missing_ok=True)
        write_initial(path, self.layout, place.engine, self._seed, self._key)
        self._place, self._cache = place, PageCache(path, self.layout, place.engine, self._num_cached)

    def keep(self) -> None:
        """Make a version of the rows as they are now, which is durable and has the next number."""
        cache, place = self._opened, self._place
        assert place is not None
        cache.flush()
        number = int(self.get_buffer(VERSION)[0]) + 1
        destination = version_path(place.folder, self.name, number)
        checksum = copy_rows(self._path, destination, self.layout, place.engine, place.injector)
        self.get_buffer(VERSION).copy_(torch.tensor([number, _signed(checksum)]))

    def drop(self, kept: Collection[int]) -> None:
        """Remove all versions except some."""
        assert self._place is not None
        remove_versions(self._place.folder, self.name, kept)

    def close(self) -> None:
        """Close the file in use and remove it. Versions stay."""
        if self._cache is not None:
            self._cache.close()
            self._path.unlink(missing_ok=True)
            self._cache = self._place = None

    def _require_untrained(self) -> None:
        """Refuse rows that are not open any more."""
        if int(self.get_buffer(VERSION)[0]) != _INITIAL:
            raise TrainingError(
                f"the learned rows of {self.name} exceed the memory and were closed with their run: use 'diskhop "
                "predict RUN', or train with a larger --memory"
            )

    @property
    def _opened(self) -> PageCache:
        assert self._cache is not None, "rows are open"
        return self._cache

    @property
    def _path(self) -> Path:
        assert self._place is not None
        return work_path(self._place.folder, self.name)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Restore the version that a state names. Raises ReadError for a damaged one."""
        super()._load_from_state_dict(state_dict, prefix, *rest)
        number, checksum = self.get_buffer(VERSION).tolist()
        if self._place is None or prefix + VERSION not in state_dict:
            return
        self._opened.forget()
        if number == _INITIAL:
            write_initial(self._path, self.layout, self._place.engine, self._seed, self._key)
        else:
            source = version_path(self._place.folder, self.name, number)
            restore_rows(source, self._path, self.layout, self._place.engine, checksum % (1 << 64))


def _signed(checksum: int) -> int:
    return checksum - (1 << 64) if checksum >= 1 << 63 else checksum
