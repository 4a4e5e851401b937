"""Choice of a prediction's sizes: of all that fit into memory, those that are predicted to take the least time.

Larger parts need fewer calls. A second worker keeps the cores busy, and one more than there are cores computes while
another waits. Both take memory from the blocks, and narrower blocks need more passes. Whatever fits also fits into more
memory, so that more memory is never predicted to be slower.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diskhop.disk.model import DiskModel
from diskhop.hops.make.passes import PIECE_EDGES
from diskhop.hops.stream.lists import stretch_edges
from diskhop.hops.tables import TILE_ROWS
from diskhop.planning.predict_costs import first_step, layer_steps
from diskhop.planning.predict_sizes import (
    Sizes,
    StreamedWork,
    first_rows_memory,
    product_rows,
    products_memory,
    reading_outputs_bytes,
    sums_memory,
)

_MOST_SUMMED_ROWS = 16 * TILE_ROWS
# Pieces of edges that are read together, see stretch_edges().
_PIECES = (31, 16, 4, 1)
Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Sizes, the tiles of each layer's blocks, and the seconds that all of it is predicted to take."""

    sizes: Sizes
    blocks: tuple[Blocks, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Memory, cores and disk that sizes are chosen for.

    memory_bytes: memory of all of it.
    later_bytes: memory of what reads the outputs, next to the readers.
    threads: threads that compute.
    cores: cores of the machine.
    disk: model of the disk.
    kept: tiles of the blocks of each layer, if they are given.
    """

    memory_bytes: int
    later_bytes: int
    threads: int
    cores: int
    disk: DiskModel
    kept: tuple[Blocks, ...] = ()


def choose_sizes(work: StreamedWork, room: Room) -> Choice:
    """Return the fastest sizes that fit; of equally fast ones the largest parts. If none fit, the smallest ones."""
    stretches = stretches_that_fit(work.graph.num_edges, work.graph.index_bytes, room.memory_bytes)
    fitting = [choice for edges in stretches for choice in Search(work, room, edges).choices()]
    if fitting:
        return min(fitting, key=lambda choice: choice.seconds)
    blocks = room.kept or tuple((1,) * shape.summed_tiles for shape in work.layers)
    rows = product_rows(work.widest, work.graph.num_nodes)
    return Choice(Sizes(rows, rows, PIECE_EDGES, 1, rows), blocks, math.inf)


def stretches_that_fit(num_edges: int, index_bytes: int, memory_bytes: int) -> list[int]:
    """Return numbers of edges that may be read together."""
    most = stretch_edges(num_edges, memory_bytes, index_bytes)
    return [PIECE_EDGES * pieces for pieces in _PIECES if PIECE_EDGES * pieces <= most]


def divide_tiles(num_tiles: int, last: int, num_others: int) -> Blocks:
    """Divide tiles into blocks: the last one of some tiles, the others alike."""
    if num_others == 0:
        return (num_tiles,)
    each, more = divmod(num_tiles - last, num_others)
    return (*(each + (number < more) for number in range(num_others)), last)


class Search:
    """All sizes with stretches of some edges that fit."""

    def __init__(self, work: StreamedWork, room: Room, stretch_edges: int) -> None:
        self._work = work
        self._room = room
        self._stretch_edges = stretch_edges
        self._most_summed: dict[tuple[int, int, int], int] = {}

    def choices(self) -> Iterator[Choice]:
        """Yield all sizes that fit, each with its fastest blocks: the largest parts first."""
        work, disk = self._work, self._room.disk
        numbers = range(len(work.layers))
        for sizes in self._part_sizes():
            first = first_step(work, sizes, self._room.threads).seconds(disk).item()
            most_of_last = [self._most_of_last(number, sizes) for number in numbers]
            for summed_rows in doubled(sizes.part_rows, _MOST_SUMMED_ROWS, work.graph.num_nodes):
                summed = replace(sizes, summed_rows=summed_rows)
                found = [self._layer(number, most_of_last[number], summed) for number in numbers]
                layers = [each for each in found if each is not None]
                if len(layers) == len(work.layers):
                    seconds = first + sum(each for _, each in layers)
                    yield Choice(summed, tuple(blocks for blocks, _ in layers), seconds)

    def _part_sizes(self) -> Iterator[Sizes]:
        """Yield sizes of parts for which the features and the outputs fit, the largest first."""
        work, room = self._work, self._room
        rows = product_rows(work.widest, work.graph.num_nodes)
        # More workers than threads would take more cores than the user gave, if there were any.
        most_workers = room.threads + (room.threads >= room.cores)
        for part_rows in doubled(rows, TILE_ROWS, TILE_ROWS):
            read_bytes = reading_outputs_bytes(work.wanted_tiles, part_rows, room.threads)
            for workers in range(most_workers, 0, -1):
                sizes = Sizes(part_rows, rows, self._stretch_edges, workers, part_rows)
                needed = max(room.later_bytes + read_bytes, _total(first_rows_memory(work, sizes)))
                divides = workers > room.threads or room.threads % workers == 0
                if divides and needed <= room.memory_bytes:
                    yield sizes

    def _layer(self, number: int, most_of_last: int, sizes: Sizes) -> tuple[Blocks, float] | None:
        """Return the fastest blocks of a layer, and the seconds of its steps; None if none fit."""
        room, shape = self._room, self._work.layers[number]
        most = self._most_of_others(number, sizes)
        if room.kept:
            *others, kept = room.kept[number]
            last = np.array([kept] if kept <= most_of_last and max(others, default=0) <= most else [], np.int64)
            num_others = np.full(len(last), len(others))
        else:
            last = np.arange(most_of_last, 0, -1)  # of equally fast ones the widest
            last = last if most > 0 else last[last == shape.summed_tiles]
            num_others = -(-(shape.summed_tiles - last) // max(1, most))
        if most < 0 or len(last) == 0:
            return None
        steps = layer_steps(self._work, number, last, num_others, sizes, room.threads)
        seconds = sum((step.seconds(room.disk) for step in steps), np.zeros(len(last)))
        best = int(seconds.argmin())
        divided = divide_tiles(shape.summed_tiles, int(last[best]), int(num_others[best]))
        return room.kept[number] if room.kept else divided, float(seconds[best])

    def _most_of_last(self, number: int, sizes: Sizes) -> int:
        """Return the most tiles of the last block that fit; 0 if none do."""
        # Narrow blocks of few rows may need more memory than wide ones, whose sums are not written.
        tiles = range(self._work.layers[number].summed_tiles, 0, -1)
        limit = self._room.memory_bytes
        return next((n for n in tiles if _total(products_memory(self._work, number, n, sizes)) <= limit), 0)

    def _most_of_others(self, number: int, sizes: Sizes) -> int:
        """Return the most tiles of other blocks that fit; -1 if not even a pass for the norms does."""
        key = number, sizes.workers, sizes.summed_rows
        if key not in self._most_summed:
            shape = self._work.layers[number]
            tiles = range(0 if shape.score_tiles else 1, shape.summed_tiles + 1)

            def needed(count: int) -> int:
                return _total(sums_memory(self._work, number, count, sizes))

            fitting = bisect_right(tiles, self._room.memory_bytes, key=needed)
            self._most_summed[key] = tiles.start + fitting - 1
        return self._most_summed[key]


def doubled(smallest: int, most: int, wanted: int) -> Sequence[int]:
    """Return the smallest number and those twice as large each, the largest first: up to most, and to one wanted."""
    found = [smallest]
    while 2 * found[-1] <= most and found[-1] < wanted:
        found.append(2 * found[-1])
    return found[::-1]


def _total(memory: Mapping[str, int]) -> int:
    return sum(memory.values())
