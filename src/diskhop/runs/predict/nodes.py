"""Choosing the nodes to predict for: all, a part of the split, or those of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from diskhop.budget import Budget
from diskhop.config.predict import ALL_NODES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_arrays import read_id_array
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.dataset.name_lines import name_of
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runs.nodes.measured import read_measured_parts
from diskhop.runs.nodes.opened import OpenClassifier

# Bytes per wanted node: its id, its row, and both sorted.
_BYTES_PER_NODE = 48


def find_nodes(classifier: OpenClassifier, dataset: Dataset, nodes: str, budget: Budget) -> NodeRows | None:
    """Find the rows of nodes, ascending; None for all.

    nodes: all, a part of the split, or a file: .npy with integer ids, or text with an id or name per line, as in
        predicted ids.txt. Without a stored split, the run's own dataset has the one that its training drew.
    Raises ConfigError for an unknown part, an unreadable file and an id that no node has.
    """
    if nodes == ALL_NODES:
        return None
    if nodes in SPLIT_NAMES:
        return _rows_of_part(classifier, dataset, nodes, budget)
    path = Path(nodes)
    if not path.exists():
        raise ConfigError(
            f"--nodes '{nodes}' is none of all, {', '.join(SPLIT_NAMES)}, and no file; for example --nodes all"
        )
    if not path.is_file():
        raise ConfigError(f"--nodes {path}: is a folder; name a file of node ids, or use --nodes all")
    if path.suffix == ".npy":
        return _rows_of_ids(dataset, path, read_id_array(path, "--nodes").astype(np.int64), budget)
    try:
        text = path.read_bytes().decode()  # a name may have a carriage return
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text; --nodes needs .npy, or one node id per line") from None
    lines = text.removesuffix("\n").split("\n") if text else []
    names = dataset.names("nodes")
    if names is None:
        return _rows_of_ids(dataset, path, _read_ids(path, lines), budget)
    numbers = {name: number for number, name in enumerate(names)}
    found = [_number_of(line, numbers, path, dataset) for line in lines]
    return _rows_of_ids(dataset, path, np.array(found, np.int64), budget)


def _number_of(line: str, numbers: Mapping[str, int], path: Path, dataset: Dataset) -> int:
    """Return the number of the name on a line: the line itself, or with escapes (see dataset/name_lines.py)."""
    number = numbers.get(line)
    if number is None:
        with contextlib.suppress(ValueError):
            number = numbers.get(name_of(line))
    if number is None:
        number = numbers.get(line.removesuffix("\r"))
    if number is None:
        raise ConfigError(f"{path}: '{line}' is the name of no node of {dataset.path}; correct it, or leave it out")
    return number


def _rows_of_part(classifier: OpenClassifier, dataset: Dataset, part: str, budget: Budget) -> NodeRows:
    if dataset.num_splits == 0 and dataset.hash == classifier.dataset_hash:
        rows: NodeRows | None = read_measured_parts(classifier, dataset, part, budget).parts[part]
    else:
        rows = dataset.split_rows(part, classifier.config.split if dataset.num_splits > 1 else None)
    if rows is None or len(rows) == 0:
        raise ConfigError(f"{dataset.path}: has no nodes in split '{part}'; use --nodes all, or a file of ids")
    return NodeRows(np.sort(rows))


def _read_ids(path: Path, lines: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ids = np.empty(len(lines), np.int64)
    for number, line in enumerate(lines):
        try:
            ids[number] = int(line)
        except (ValueError, OverflowError):
            raise ConfigError(f"{path}:{number + 1}: '{line}' is no node id; write one id per line") from None
    if not lines:
        raise ConfigError(f"{path}: has no ids; write one per line")
    return ids


def _rows_of_ids(
    dataset: Dataset, path: Path, ids: np.ndarray[tuple[int], np.dtype[np.int64]], budget: Budget
) -> NodeRows:
    id_map = dataset.id_map()
    with budget.reserve("nodes to predict", _BYTES_PER_NODE * len(ids) + id_map.num_bytes):
        return NodeRows(np.unique(id_map.rows(SourceIds(ids), str(path))))
