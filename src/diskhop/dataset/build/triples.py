"""Writing the triples of a part of a multi-relation graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.manifest import MOST_COUNT, Triples
from diskhop.errors import SourceError


def write_triples(
    files: DatasetFiles,
    node_type: str,
    part: str,
    blocks: Iterable[NDArray[Any]],
    known: Triples | None,
    *,
    num_nodes: int,
    num_relations: int | None,
    new_ids: NDArray[Any] | None,
    origin: str,
) -> Triples:
    """Write (source, relation, destination) rows of a part, and return all triples written so far.

    known: those written before. num_relations: default: the highest + 1. new_ids: new id of each node, if nodes were
    renumbered. origin: name of the source in errors.
    """
    most = [known.num_relations if known else 0]
    triples = _checked(blocks, part, num_nodes, num_relations, most, origin)
    if new_ids is not None:
        triples = (_renumbered(block, new_ids) for block in triples)
    written = files.write(f"triples/{part}.bin", triples)
    if written == 0:
        raise SourceError(f"{origin}: triples '{part}' are empty; add triples or remove the part")
    parts = {**(known.parts if known else {}), part: written // 24}
    return Triples(node_type=node_type, num_relations=num_relations or most[0], parts=parts)


def _checked(
    blocks: Iterable[NDArray[Any]],
    part: str,
    num_nodes: int,
    num_relations: int | None,
    relations_seen: list[int],
    origin: str,
) -> Iterator[NDArray[np.int64]]:
    """Check (source, relation, destination) rows; relations_seen[0] becomes at least the highest relation + 1."""
    most_relations = MOST_COUNT if num_relations is None else num_relations
    limits = {"source": num_nodes, "relation": most_relations, "destination": num_nodes}
    first_row = 0
    for block in blocks:
        for column, (what, limit) in enumerate(limits.items()):
            bad = np.flatnonzero((block[:, column] < 0) | (block[:, column] >= limit))
            if len(bad):
                raise SourceError(
                    f"{origin}: triple {first_row + int(bad[0])} of '{part}' has {what} {block[bad[0], column]}, "
                    f"but it must be from 0 to {limit - 1}; correct the triple"
                )
        relations_seen[0] = max(relations_seen[0], int(block[:, 1].max(initial=-1)) + 1)
        yield block.astype("<i8")
        first_row += len(block)


def _renumbered(block: NDArray[np.int64], new_ids: NDArray[Any]) -> NDArray[np.int64]:
    """Renumber the nodes of (source, relation, destination) rows."""
    renumbered = block.copy()
    for column in (0, 2):
        renumbered[:, column] = new_ids[block[:, column]]
    return renumbered
