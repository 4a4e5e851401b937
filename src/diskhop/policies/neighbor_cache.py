"""Choosing the neighbour lists to cache: those that are read most often per byte.

A list is read about as often as its node is a neighbour of others, and takes memory by its length. Lists are therefore
chosen by the ratio of out-degree to in-degree (Ginex, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

NODES_PER_BLOCK = 16
_NODES_AT_ONCE = 1 << 15
# The upper half of a ratio as float32: a class is 0.8 % wide, and an array can count all classes.
_NUM_CLASSES = 1 << 15
# A smaller part of the capacity is not worth another pass over all nodes.
_NEGLIGIBLE = 256

PICK_LISTS_BYTES = 48 * _NODES_AT_ONCE + 32 * _NUM_CLASSES


def pick_lists(indptr: NDArray[np.int64], out_degrees: NDArray[Any], capacity: int) -> NDArray[np.uint16]:
    """Pick lists of at most `capacity` edges together, by the class of their ratio, ties to the lower id.

    A list that does not fit is skipped for later ones that do, until little capacity is left. Returns one bit per node:
    element i has those of nodes 16 i to 16 i + 15, the lowest first. Takes another PICK_LISTS_BYTES.
    """
    num_nodes = len(indptr) - 1
    picked = np.zeros(-(-num_nodes // NODES_PER_BLOCK), np.uint16)
    room = capacity
    while room > capacity // _NEGLIGIBLE:
        edges_by_class = _edges_by_class(_candidates(indptr, out_degrees, picked, room))
        edges_from_class = np.cumsum(edges_by_class[::-1])[::-1]
        if edges_from_class[0] == 0:
            break
        # The highest class that does not fit completely; -1 if all do.
        split_class = int(np.count_nonzero(edges_from_class > room)) - 1
        split_room = room - int(edges_from_class[split_class + 1]) if split_class + 1 < _NUM_CLASSES else room
        is_split_open = True
        for first, classes, lengths, are_picked in _candidates(indptr, out_degrees, picked, room):
            is_taken = (classes > split_class) & (lengths > 0)
            if is_split_open:
                split = np.flatnonzero((classes == split_class) & (lengths > 0))
                fits = np.cumsum(lengths[split]) <= split_room
                is_taken[split[fits]] = True
                split_room -= int(lengths[split[fits]].sum())
                is_split_open = bool(fits.all())
            room -= int(lengths[is_taken].sum())
            packed = np.packbits(are_picked | is_taken, bitorder="little")
            picked.view(np.uint8)[first // 8 : first // 8 + len(packed)] = packed
    return picked


def usefulness(out_degrees: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class of each list: the higher, the more often it is read per byte. Empty lists have the lowest."""
    ratios = np.zeros(len(lengths), np.float32)
    np.divide(out_degrees, lengths, out=ratios, where=lengths > 0, casting="same_kind")
    return (ratios.view(np.uint32) >> np.uint32(16)).astype(np.int64)


def edges_by_usefulness(indptr: NDArray[np.int64], out_degrees: NDArray[Any]) -> NDArray[np.int64]:
    """Return the edges of the lists of each class."""
    none_picked = np.zeros(-(-(len(indptr) - 1) // NODES_PER_BLOCK), np.uint16)
    return _edges_by_class(_candidates(indptr, out_degrees, none_picked, int(indptr[-1])))


def is_picked(picked: NDArray[np.uint16], first: int, last: int) -> NDArray[np.bool_]:
    """Return whether pick_lists() picked nodes first to last - 1; first is a multiple of NODES_PER_BLOCK."""
    words = picked[first // NODES_PER_BLOCK : -(-last // NODES_PER_BLOCK)]
    return np.unpackbits(words.view(np.uint8), count=last - first, bitorder="little").view(np.bool_)


def _edges_by_class(
    candidates: Iterable[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]],
) -> NDArray[np.int64]:
    edges_by_class = np.zeros(_NUM_CLASSES, np.int64)
    for _, classes, lengths, _ in candidates:
        # bincount adds in float64, which is exact for sums of lengths below 2^53.
        edges_by_class += np.bincount(classes, lengths, _NUM_CLASSES).astype(np.int64)
    return edges_by_class


def _candidates(
    indptr: NDArray[np.int64], out_degrees: NDArray[Any], picked: NDArray[np.uint16], room: int
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield blocks of nodes: first node, classes and lengths of lists (0: no candidate), and which are picked."""
    num_nodes = len(indptr) - 1
    for first in range(0, num_nodes, _NODES_AT_ONCE):
        last = min(first + _NODES_AT_ONCE, num_nodes)
        are_picked = is_picked(picked, first, last)
        lengths = np.diff(indptr[first : last + 1])
        lengths[are_picked | (lengths > room)] = 0
        yield first, usefulness(out_degrees[first:last], lengths), lengths, are_picked
