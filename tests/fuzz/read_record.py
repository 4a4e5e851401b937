"""The record of a sampled batch, as traces and packed chunks have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from diskhop.batches.record import decode_batch, decode_header, decode_node_ids, encode_batch
from diskhop.errors import FormatError
from tests.fuzz.forge import with_record_checksums
from tests.fuzz.target import Target
from tests.unit.batches import distinct_rows, large_batch, small_batch


def read(content: bytes, folder: Path) -> None:
    for each in (content, with_record_checksums(content)):
        try:
            decode_header(each)
            decode_node_ids(each)
        except FormatError:
            continue
        batch = decode_batch(each)
        assert batch.num_nodes == len(batch.node_ids)


def seeds(folder: Path) -> Sequence[bytes]:
    small = small_batch()
    weighted = replace(small, edge_weights=np.ones(3, np.float32))
    repeated = np.array([7, 1, 7], np.int64)
    disjoint = replace(
        small, node_ids=repeated, seed_of=np.array([0, 1, 0], np.int64), distinct=distinct_rows(repeated)
    )
    batches = (small, weighted, disjoint, large_batch(3, 40))
    return [encode_batch(each, num_nodes) for each in batches for num_nodes in (2**20, 2**40)]


TARGET = Target(name="record", read=read, errors=(FormatError,), seeds=seeds)
