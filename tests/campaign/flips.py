"""Bytes that change on disk: every flip is found, in the right file and block, and none ends the process."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from tests.campaign.cases import Case, Tries
from tests.campaign.children import tries_in_children
from tests.campaign.flip_folders import (
    Flippable,
    clusters,
    dataset_of,
    edge_split,
    embedded,
    hop_tables,
    merged,
    packed_layout,
    predictions,
    saint_norms,
    temporary_arrays,
    traces,
    trained,
    typed_dataset,
)

_LOT = 500
_LONGEST_BURST = 512
_RANGE = re.compile(r": bytes (\d+) to (\d+): ")


def damage(content: bytes, draws: random.Random) -> tuple[int, int, bytes]:
    """Return the first and last changed byte of a file, and its new content. Half of all flips are of one byte."""
    num_bytes = 1 if draws.random() < 0.5 else draws.randint(2, _LONGEST_BURST)
    first = draws.randrange(len(content))
    changed = bytearray(content)
    places = range(first, min(first + num_bytes, len(content)))
    for place in places:
        changed[place] ^= draws.randint(1, 255)
    return places[0], places[-1], bytes(changed)


def flip_once(made: Flippable, draws: random.Random) -> str:
    """Damage a file, look for the damage, and repair it. Returns "" or what is wrong."""
    path = draws.choice(made.files)
    content = path.read_bytes()
    intact = made.digest() if made.digest else None
    first, last, changed = damage(content, draws)
    _overwrite(path, changed)
    try:
        found = made.find()
        is_harmless = not found and (
            _is_same_json(path, content, changed) or (made.digest is not None and made.digest() == intact)
        )
    finally:
        _overwrite(path, content)
    where = f"{path.name}, bytes {first} to {last + 1}"
    if is_harmless:
        return ""
    if not found:
        return f"{where}: not found"
    if path.name not in found or "\n" in found:
        return f"{where}: not named in: {found}"
    ranges = [(int(begin), int(end)) for begin, end in _RANGE.findall(found)]
    if ranges and not any(begin <= last and first < end for begin, end in ranges):
        return f"{where}: another block is named in: {found}"
    return ""


def _is_same_json(path: Path, content: bytes, changed: bytes) -> bool:
    """Whether a document says the same: spaces differ, or a digit that no double has."""
    if path.suffix != ".json":
        return False
    try:
        return bool(json.loads(content) == json.loads(changed))
    except ValueError:
        return False


def _overwrite(path: Path, content: bytes) -> None:
    """Write the bytes of a file in place, as a disk changes them."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)


def run(name: str, make: Callable[[Path], Flippable], tries: Tries) -> Generator[str]:
    def outcomes(first: int) -> Generator[str]:
        folder = Path(tempfile.mkdtemp(dir=tries.folder))
        made = make(folder)
        if found := made.find():
            raise AssertionError(f"damage before any flip: {found}")
        while True:
            yield flip_once(made, tries.draws(name, first))
            first += 1

    try:
        yield from tries_in_children(outcomes, tries.first, tries.count, lot=_LOT)
    finally:
        for entry in tries.folder.iterdir():
            shutil.rmtree(entry, ignore_errors=True)


_KINDS: dict[str, tuple[int, Callable[[Path], Flippable]]] = {
    "dataset: topology": (900, dataset_of("edges/edge/ind*.bin")),
    "dataset: weights and times": (400, dataset_of("edges/edge/[wt]*.bin")),
    "dataset: features": (900, dataset_of("nodes/node/features.bin")),
    "dataset: labels": (300, dataset_of("nodes/node/labels.bin")),
    "dataset: splits": (300, dataset_of("nodes/node/splits/*.bin")),
    "dataset: ids and positions": (400, dataset_of("nodes/node/original_ids.bin", "nodes/node/positions.bin")),
    "dataset: names": (400, dataset_of("names/*")),
    "dataset: manifest": (800, dataset_of("manifest.json")),
    "dataset: block checksums": (300, dataset_of("checksums.bin")),
    "dataset of several types": (500, typed_dataset),
    "packed layout": (1000, packed_layout),
    "hop tables": (800, hop_tables),
    "access trace": (600, traces),
    "changesets of a superbatch": (300, temporary_arrays),
    "embeddings: partitions, relations, commit": (700, embedded),
    "model and checkpoint": (500, trained),
    "predictions: parquet": (250, predictions("parquet")),
    "predictions: npy": (150, predictions("npy")),
    "predictions: tsv": (150, predictions("tsv")),
    "merged lists": (100, merged),
    "clusters": (80, clusters),
    "norms of GraphSAINT": (80, saint_norms),
    "split of edges": (90, edge_split),
}


CASES = tuple(Case("byte flips", name, count, partial(run, name, make)) for name, (count, make) in _KINDS.items())
