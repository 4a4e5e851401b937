"""Paths over the types of a graph, along which features are averaged into hop tables (SeHGNN, Yang et al., 2023).

A path as author,writes,paper,cites,paper begins at a node type with features and ends at the target. Each of its steps
averages over the in-neighbours of one edge type, so a row of the result is the mean over what the path leads from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash

from diskhop.config.hop import TABLE_DTYPES
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merged import merged_spec, merged_types
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import ConfigError
from diskhop.hops.tables import VERSION
from diskhop.protocols import NodeRows

MOST_PATHS = 64


@dataclass(frozen=True, slots=True)
class TypePath:
    """A path.

    text: node types and relations in turn, with commas.
    steps: numbers of its edge types; none for the target's own features.
    """

    text: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSpec:
    """Hop tables along paths. Raises ConfigError.

    target: node type at the end of every path.
    paths: the paths, as author,writes,paper.
    reversed_types: edge types whose opposites paths may take, by their names in the dataset.
    dtype: float32, float16 or bfloat16.
    rows: see PropagationSpec, of nodes of the target.

    >>> diskhop.PathSpec(target="user", paths=("user,buys,item",)).target
    'user'
    """

    target: str
    paths: tuple[str, ...]
    reversed_types: tuple[str, ...] = ()
    dtype: str = "float32"
    rows: str = "all"

    def __post_init__(self) -> None:
        require_known("dtype", self.dtype, TABLE_DTYPES)
        for text in self.paths:
            if self.paths.count(text) > 1:
                raise ConfigError(f"--path {text} is given more than once; give it once")

    def types(self, dataset: Dataset) -> TypeMap:
        """Return the types of the graph that paths are of. Raises ConfigError for unknown types to reverse."""
        return merged_types(dataset, merged_spec(dataset, self.reversed_types))

    def parsed(self, dataset: Dataset) -> tuple[TypePath, ...]:
        """Return the path of each table: the target's own features, then the paths. Raises ConfigError."""
        require_known("node type", self.target, dataset.nodes)
        types = self.types(dataset)
        found = [parse_path(text, dataset, types, self.target) for text in self.paths]
        return (TypePath(self.target, ()), *found)

    def key(self, dataset_hash: str, rows: NodeRows | None) -> str:
        """Return a text that differs wherever a byte of the tables may. rows: stored rows of the target; None: all."""
        facts = {
            "format": VERSION,
            "dataset": dataset_hash,
            "target": self.target,
            "paths": list(self.paths),
            "reversed": list(self.reversed_types),
            "dtype": self.dtype,
            "rows": None if rows is None else f"{xxhash.xxh3_64_intdigest(rows.data):016x}",
        }
        return json.dumps(facts, sort_keys=True)


def parse_path(text: str, dataset: Dataset, types: TypeMap, target: str) -> TypePath:
    """Return a path. Raises ConfigError for one that the graph does not have, or that does not lead to the target."""
    words = text.split(",")
    if len(words) < 3 or len(words) % 2 == 0:
        raise ConfigError(
            f"--path {text} must be node types and relations in turn, with commas; for example --path "
            f"{_example(types, target)}"
        )
    for name in words[::2]:
        require_known("node type", name, dataset.nodes, f"--path {text}: ")
    known = {edges.ends: number for number, edges in enumerate(types.edges)}
    steps = []
    for place in range(0, len(words) - 1, 2):
        ends = words[place], words[place + 1], words[place + 2]
        if ends not in known:
            leading = ", ".join(",".join(each) for each in known if each[2] == ends[2]) or "none"
            raise ConfigError(
                f"--path {text}: {dataset.path} has no edge type {','.join(ends)}; those that lead to '{ends[2]}' are "
                f"{leading}"
            )
        steps.append(known[ends])
    if words[-1] != target:
        raise ConfigError(f"--path {text} leads to '{words[-1]}', and the target is '{target}': end it there")
    require_features(dataset, words[0], f"--path {text}")
    return TypePath(text, tuple(steps))


def require_features(dataset: Dataset, node_type: str, what: str) -> None:
    """Raise ConfigError for a node type without features. what: what needs them."""
    if dataset.nodes[node_type].feature_table() is None:
        having = [name for name, nodes in dataset.nodes.items() if nodes.feature_table() is not None]
        way = f"begin at one of {', '.join(having)}" if having else "import the graph with features"
        raise ConfigError(f"{what} begins at '{node_type}', whose nodes have no features: {way}")


def all_paths(dataset: Dataset, types: TypeMap, target: str, hops: int) -> tuple[str, ...]:
    """Return all paths of up to this number of steps from types with features to the target, shortest first.

    Raises ConfigError for too many.
    """
    found: list[str] = []
    ends: Sequence[str] = [target]
    for _ in range(hops):
        ends = [longer for text in ends for longer in _longer(text, types)]
        found += [text for text in ends if dataset.nodes[text.partition(",")[0]].feature_table() is not None]
        if len(found) > MOST_PATHS:
            raise ConfigError(
                f"{dataset.path}: has more than {MOST_PATHS} paths of up to {hops} steps to '{target}': use a smaller "
                f"--hops, or name paths, as --path {found[0]}"
            )
    if not found:
        raise ConfigError(
            f"{dataset.path}: no path of up to {hops} steps leads from a node type with features to '{target}'; use "
            "--model rgcn"
        )
    return tuple(found)


def _longer(text: str, types: TypeMap) -> Iterator[str]:
    first = text.partition(",")[0]
    for edges in types.edges:
        if edges.destination == first:
            yield f"{edges.source},{edges.ends[1]},{text}"


def _example(types: TypeMap, target: str) -> str:
    return next((",".join(edges.ends) for edges in types.edges if edges.destination == target), target)
