"""The split of a dataset's edges: which there is, and opening it, after writing it where it is missing.

A split is a folder of derived files, `links-KEY`, that dataset and split determine. Whoever needs it again, to
resume or to evaluate, finds it or writes the same bytes.

    plan = plan_split(dataset, "0.85,0.05,0.1", 0, budget)      # counts; nothing is written
    split = open_split(dataset, plan, scratch, budget)          # links of each part, graphs of messages
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.link import parse_shares
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists, MappedLists
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import SMALL_FILE_BYTES, check_length, map_array, read_whole
from diskhop.dataset.manifest import FileEntry
from diskhop.dataset.summed_files import read_entries
from diskhop.dataset.type_map import TypeMap
from diskhop.derived.clean import SPLIT_FILE
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError, FormatError, ReadError
from diskhop.io.atomic import Injector, destination_errors, remove_tree
from diskhop.io.locks import SharedLock, keep_directory
from diskhop.io.manifests import read_manifest
from diskhop.protocols import NodeIds
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.edge_split.blocks import block_bytes
from diskhop.sampling.edge_split.given import read_given
from diskhop.sampling.edge_split.rules import (
    PARTS,
    TEST,
    TRAIN,
    VALID,
    EdgeCounts,
    SplitRule,
    count_edges,
    draw_rule,
)
from diskhop.sampling.edge_split.target import SplitTarget
from diskhop.sampling.edge_split.write import (
    VERSION,
    WriteFiles,
    graph_file,
    graphs_of,
    positives_file,
    write_files,
    write_split,
    writing_bytes,
)
from diskhop.sampling.edge_split.write_typed import MERGED, typed_writing_bytes, write_typed_files

_VERSION = 1
_REMEDY = "remove its folder, and it is written again"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitPlan:
    """A split, before it is written.

    rule: says where each edge goes.
    counts: numbers of edges.
    key: what the folder is named by; other splits and other datasets have another.
    described: the split in words.
    lists: the edges that are split.
    target: their edge type, in a graph with several types; None without.
    """

    rule: SplitRule
    counts: EdgeCounts
    key: str
    described: str
    lists: EdgeLists
    target: SplitTarget | None = None


def plan_split(
    dataset: Dataset, wanted: str, number: int, budget: Budget, target: SplitTarget | None = None
) -> SplitPlan:
    """Draw or read a split, and count its edges.

    wanted: shares of training, validation and test edges, as '0.8,0.1,0.1', or a folder with valid.npy and test.npy.
    number: of the random split; runs with other seeds stay comparable.
    target: the edge type that is split, in a graph with several types; None without.
    Raises ConfigError for a part without edges, and for given edges that the graph does not have; BudgetError.
    """
    lists = EdgeLists.of(dataset.topology) if target is None else target.lists
    shares = parse_shares(wanted)
    with budget.reserve("splitting edges", block_bytes(lists.num_edges)):
        rule: SplitRule
        if shares is not None:
            rule = draw_rule(lists, shares, _draw_key(number))
            facts: dict[str, Any] = {"shares": list(shares), "number": number}
        else:
            given = read_given(dataset, Path(wanted), budget, target)
            rule, facts = given.rule, {"given": given.digest}
        with budget.reserve("given split", rule.num_bytes):
            counts = count_edges(lists, rule)
    _require_edges(dataset, wanted, shares, counts)
    identity = {"version": _VERSION, "dataset": dataset.hash, **facts, **_identity_of(target)}
    key = xxhash.xxh3_64_hexdigest(json.dumps(identity, sort_keys=True).encode())
    shown = ", ".join(f"{count:,} {name}" for name, count in zip(PARTS, counts.positives, strict=True))
    kind = "edges in both directions, counted once" if counts.is_undirected else "directed edges"
    if target is not None:
        others = ", ".join("__".join(target.types.edges[place].ends) for place in target.copies)
        kind += f" of {'__'.join(target.ends)}" + (f"; held out of {others} as well" if others else "")
    return SplitPlan(rule=rule, counts=counts, key=key, described=f"{shown} ({kind})", lists=lists, target=target)


def _identity_of(target: SplitTarget | None) -> dict[str, Any]:
    """Return what tells splits of several types apart: the edge types of the graphs, and those that are split."""
    if target is None:
        return {}
    names = ["__".join(edges.ends) for edges in target.types.edges]
    return {"types": names, "split_types": [names[place] for place in target.split_types]}


class HeldLinks:
    """The positives of a part of a split, as links; see LinkEnds. numbers: of the edges, int64, ascending."""

    def __init__(self, numbers: NDArray[np.int64], lists: EdgeLists, digest: str) -> None:
        self.numbers = numbers
        self._lists = MappedLists(lists)
        self._digest = digest

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, positions: NDArray[np.int64]) -> NodeIds:
        """See LinkEnds. Raises FormatError for damaged lists."""
        return self.ends_of(self.numbers[positions])

    def ends_of(self, numbers: NDArray[np.int64]) -> NodeIds:
        """Return both ends of edges of the dataset, int64 (2, edges), by their numbers."""
        found, lists = self._lists.ends(numbers), self._lists.lists
        if found.shape[1] and int(found[0].max()) >= lists.rows.stop:
            raise FormatError(f"{lists.files.indices_path}: is damaged; run 'diskhop verify'")
        return found

    def digest(self) -> str:
        """See LinkEnds."""
        return self._digest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeSplit:
    """A split that is written.

    path: its folder.
    plan: the split.
    lock: keeps `diskhop clean` from removing the folder while the split is referred to.
    links: the positives of training, validation and test.
    train_graph: the dataset with the edges of messages in training and validation alone.
    test_graph: the same for test, which may use validation edges.
    """

    path: Path
    plan: SplitPlan
    lock: SharedLock
    links: tuple[HeldLinks, HeldLinks, HeldLinks]
    train_graph: Dataset
    test_graph: Dataset


def open_split(
    dataset: Dataset,
    plan: SplitPlan,
    scratch: str | None,
    budget: Budget,
    *,
    progress: Progress = silent,
    injector: Injector | None = None,
) -> EdgeSplit:
    """Open a split, and write it first where it is missing or damaged, or wait for the process that does.

    dataset: that of the plan; with several types, merged (dataset/merged.py).
    scratch: see scratch_path().
    Raises DestinationError, ReadError, BudgetError.
    """
    path = scratch_path(dataset.path, scratch) / f"links-{plan.key}"

    def find() -> EdgeSplit | None:
        with contextlib.suppress(FormatError, ReadError):
            return _open(dataset, plan, path)
        return None

    def make() -> None:
        with WorkFolder(path, injector) as work:
            work.lock()  # of those who found damage, one removes it
            if find() is None:
                with destination_errors(path):
                    remove_tree(path, injector)
                write_split(path, _writer(dataset, plan, progress), facts, injector)
            work.remove()

    if (found := find()) is not None:
        return found
    num_bytes = writing_bytes(dataset) if plan.target is None else typed_writing_bytes(dataset.topology)
    with budget.reserve("splitting edges", num_bytes + plan.rule.num_bytes):
        facts = {"dataset_hash": dataset.hash, "edges": list(plan.counts.edges), "split": plan.described}
        make_once(path, make, progress, lambda _: find() is not None)
    return _open(dataset, plan, path)


def _writer(dataset: Dataset, plan: SplitPlan, progress: Progress) -> WriteFiles:
    if plan.target is None:
        return partial(write_files, dataset=dataset, rule=plan.rule, counts=plan.counts, progress=progress)
    return partial(
        write_typed_files,
        files=dataset.topology,
        target=plan.target,
        rule=plan.rule,
        counts=plan.counts,
        progress=progress,
    )


def _open(dataset: Dataset, plan: SplitPlan, path: Path) -> EdgeSplit:
    """Open a split that is there, checked as a dataset is. Raises FormatError, ReadError."""
    lock = keep_directory(path)
    files, by_type = _read_manifest(path / SPLIT_FILE)
    for name, entry in files.items():
        check = read_whole if entry.num_bytes < SMALL_FILE_BYTES else _check_length
        check(path / name, entry)

    def links(part: int) -> HeldLinks:
        entry = files[positives_file(part)]
        numbers = map_array(path / positives_file(part), np.int64, entry.num_bytes // 8)
        return HeldLinks(numbers, plan.lists, f"{plan.key} {PARTS[part]} {entry.xxh3_64}")

    def graph(name: str, num_edges: int) -> Dataset:
        if plan.target is not None:
            return _typed_graph(dataset, path, name, by_type[name], plan.key, lock)
        of_graph = {each.removeprefix(f"{name}/"): entry for each, entry in files.items() if each.startswith(name)}
        return dataset.with_edges(path / name, num_edges, of_graph, f"{plan.key}-{name}")

    counts, graphs = plan.counts, graphs_of(plan.counts)
    train_graph = graph("train", counts.edges[TRAIN])
    has_other = "test" in graphs
    test_graph = graph("test", counts.edges[TRAIN] + counts.edges[VALID]) if has_other else train_graph
    parts = links(TRAIN), links(VALID), links(TEST)
    return EdgeSplit(path=path, plan=plan, lock=lock, links=parts, train_graph=train_graph, test_graph=test_graph)


def _typed_graph(dataset: Dataset, path: Path, name: str, num_edges: list[int], key: str, lock: SharedLock) -> Dataset:
    """Return a merged dataset with the lists of a graph. num_edges: of each edge type."""
    types, whole = dataset.types, dataset.topology
    assert types is not None
    edges = (replace(each, num_edges=count) for each, count in zip(types.edges, num_edges, strict=True))
    lists = TopologyFiles(
        indptr_path=path / graph_file(name, MERGED, "indptr"),
        indices_path=path / graph_file(name, MERGED, "indices"),
        index_dtype=whole.index_dtype,
        num_nodes=whole.num_nodes,
        num_edges=sum(num_edges),
        types=TypeMap(types.num_nodes, tuple(edges)),
        lock=lock,
    )
    return dataset.with_merged_types(lists, f"{key}-{name}")


def _check_length(path: Path, entry: FileEntry) -> None:
    check_length(path, entry.num_bytes)


def _read_manifest(path: Path) -> tuple[dict[str, FileEntry], dict[str, list[int]]]:
    """Return the files, and the edges of each type by graph, which a graph without types does not have."""
    content = read_manifest(path, VERSION, "a split of edges", _REMEDY)
    return read_entries(path, content, _REMEDY), content.get("edges_by_type", {})


def _draw_key(number: int) -> int:
    return int(np.random.SeedSequence([number]).generate_state(1, np.uint64)[0])


def _require_edges(
    dataset: Dataset, wanted: str, shares: tuple[float, float, float] | None, counts: EdgeCounts
) -> None:
    """Refuse a split without edges to train on, and an empty part that is to have some."""
    for part, name in enumerate(PARTS):
        is_wanted = part == TRAIN or (shares is not None and shares[part] > 0)
        if is_wanted and counts.positives[part] == 0:
            raise ConfigError(
                f"{dataset.path}: --link-split {wanted} leaves no edges for {name}, of {counts.num_edges:,} in the "
                "graph; use other shares, or a larger graph"
            )
