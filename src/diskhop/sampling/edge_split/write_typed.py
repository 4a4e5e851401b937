"""Writing the graphs of a split of one edge type: merged lists of all types (dataset/merged.py) without held-out edges.

The edges of other types stay, but for those of types that have the held-out edges in the other direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.dataset.edge_lists import EdgeLists
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.manifest import FileEntry
from diskhop.runtime.progress import Progress
from diskhop.sampling.edge_split.blocks import block_bytes, read_edges
from diskhop.sampling.edge_split.rules import TRAIN, EdgeCounts, SplitRule
from diskhop.sampling.edge_split.target import SplitTarget
from diskhop.sampling.edge_split.write import GRAPHS, SplitWriter

# The name of the lists of all types in the folder of a graph.
MERGED = "merged"


def typed_writing_bytes(files: TopologyFiles) -> int:
    """Bytes of memory that write_typed_files() takes: the lengths of the lists of each graph, and a block of edges."""
    return len(GRAPHS) * 16 * files.num_lists + block_bytes(files.num_edges)


def write_typed_files(
    folder: Path,
    files: TopologyFiles,
    target: SplitTarget,
    rule: SplitRule,
    counts: EdgeCounts,
    progress: Progress,
) -> tuple[dict[str, FileEntry], Mapping[str, Any]]:
    """Write the positives of each part and the graphs. Return the files, and the edges of each type by graph.

    files: merged lists, with all edges.
    """
    writer = SplitWriter(folder, counts, MERGED, files.num_lists)
    num_kept: dict[str, list[int]] = {graph.name: [] for graph in writer.graphs}
    num_done = 0
    for number in range(len(target.types.edges)):
        lists = EdgeLists.of_merged(files, number)
        for block in read_edges(lists):
            parts = np.full(len(block), TRAIN, np.uint8)
            if number in target.split_types:
                parts = rule.parts(block)
            if number == target.number:
                writer.add_positives(block, parts)
            places = block.destinations - lists.first_destination + lists.first_list
            writer.add_messages(parts, block.sources.astype(files.index_dtype), places)
            num_done += len(block)
            progress("splitting edges", num_done, files.num_edges)
        for graph in writer.graphs:
            num_kept[graph.name].append(graph.num_edges - sum(num_kept[graph.name]))
    return writer.close(), {"edges_by_type": num_kept}
