"""Clusters of a graph's nodes next to the dataset, for Cluster-GCN: found in passes over the neighbour lists.

Nodes join clusters by linear deterministic greedy partitioning (stream_clusters.hpp of the core): lists are read from
front to back, and memory is some bytes per node, whatever the number of edges. The folder has two arrays, the nodes
sorted by cluster and where each cluster begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, StreamClusters
from diskhop.budget import Budget
from diskhop.dataset.edge_set import ClusterFiles, TopologyFiles
from diskhop.dataset.summed_files import FILES, check_files, sum_files
from diskhop.derived.clean import CLUSTERS_FILE
from diskhop.derived.make import make_derived
from diskhop.errors import ConfigError, FormatError
from diskhop.io.atomic import Injector, require_free_space, write_file
from diskhop.io.locks import keep_directory
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.io.streams import TRANSFER_BYTES, read_in_order
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.topology import index_dtype_of, open_indptr

VERSION = 2
# A cluster may have this share of nodes more than the mean.
SLACK = 0.1
PASSES = 5
_WHAT, _REMEDY = "clusters of nodes", "remove the folder, and it is made again"
_NODES, _STARTS = "nodes.bin", "starts.bin"
# The core's clusters, a copy of them, and the nodes sorted by them, with what sorting takes.
_BYTES_PER_NODE, _BYTES_PER_CLUSTER = 32, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersSpec:
    """Everything that determines clusters.

    dataset_hash: of the graph.
    num_clusters: number of clusters.
    """

    dataset_hash: str
    num_clusters: int

    @property
    def key(self) -> str:
        """Text that is the same for equal clusters alone."""
        content = {"dataset": self.dataset_hash, "clusters": self.num_clusters, "passes": PASSES, "slack": SLACK}
        return json.dumps(content, sort_keys=True)

    def folder(self, scratch: Path) -> Path:
        """Return the folder of the clusters in a folder of derived files."""
        return scratch / f"clusters-{xxhash.xxh3_64_intdigest(self.key.encode()):016x}"


def most_nodes(num_nodes: int, num_clusters: int) -> int:
    """Most nodes of a cluster."""
    return min(num_nodes, -(-num_nodes // num_clusters) + int(SLACK * num_nodes / num_clusters))


def open_clusters(folder: Path, spec: ClustersSpec, num_nodes: int) -> ClusterFiles:
    """Open clusters and lock their folder. Raises ReadError, and FormatError for damaged ones."""
    lock = keep_directory(folder)
    content = read_manifest(folder / CLUSTERS_FILE, VERSION, _WHAT, _REMEDY)
    if content.get("of") != spec.key:
        raise FormatError(f"{folder}: has other clusters than its name says; {_REMEDY}")
    for name, num_values in ((_NODES, num_nodes), (_STARTS, spec.num_clusters + 1)):
        path = folder / name
        if not path.exists() or path.stat().st_size != 8 * num_values:
            raise FormatError(f"{path}: is missing or not {8 * num_values} bytes; {_REMEDY}")
    check_files(folder / CLUSTERS_FILE, content, _REMEDY)
    return ClusterFiles(
        nodes_path=folder / _NODES,
        starts_path=folder / _STARTS,
        num_clusters=spec.num_clusters,
        inner_share=float(content["inner_share"]),
        lock=lock,
    )


def make_clusters(
    spec: ClustersSpec,
    folder: Path,
    files: TopologyFiles,
    engine: Engine,
    budget: Budget,
    *,
    progress: Progress = silent,
    injector: Injector | None = None,
) -> int:
    """Find clusters and write them. Returns the bytes that were read.

    Raises ConfigError for more clusters than nodes, BudgetError, DestinationError, ReadError, and FormatError for
    damaged lists.
    """
    num_nodes, num_clusters = files.num_nodes, spec.num_clusters
    if not 1 <= num_clusters <= max(1, num_nodes):
        raise ConfigError(f"clusters must be from 1 to the {num_nodes} nodes, got {num_clusters}; use --clusters 2")
    num_bytes = _BYTES_PER_NODE * num_nodes + _BYTES_PER_CLUSTER * num_clusters + 2 * TRANSFER_BYTES
    with budget.reserve("finding clusters", num_bytes):

        def build(made: Path, _work: WorkFolder) -> None:
            cluster_of, inner_share = _find(files, num_clusters, engine, progress)
            require_free_space(made, 8 * (num_nodes + num_clusters + 1), "clusters")
            sizes = np.bincount(cluster_of, minlength=num_clusters)
            nodes = np.argsort(cluster_of, kind="stable").astype("<i8", copy=False)
            starts = np.concatenate([[0], np.cumsum(sizes)]).astype("<i8")
            write_file(made / _NODES, nodes.tobytes(), injector)
            write_file(made / _STARTS, starts.tobytes(), injector)
            facts = {"inner_share": inner_share, "most_nodes": int(sizes.max(initial=0))}
            content = {"of": spec.key, **facts, FILES: sum_files(made, (_NODES, _STARTS))}
            write_file(made / CLUSTERS_FILE, encode_manifest(content, VERSION), injector)

        make_derived(folder, spec.key, build, injector)
    return PASSES * files.index_dtype.itemsize * files.num_edges


def _find(
    files: TopologyFiles, num_clusters: int, engine: Engine, progress: Progress
) -> tuple[NDArray[np.uint32], float]:
    """Return the cluster of each node, and the share of edges within clusters that the last pass saw."""
    dtype = index_dtype_of(files)
    clusters = StreamClusters(
        open_indptr(files, "mapped", engine), num_clusters, most_nodes(files.num_nodes, num_clusters)
    )
    num_bytes, pool = dtype.itemsize * files.num_edges, BufferPool(2 * TRANSFER_BYTES)
    for number in range(PASSES):
        clusters.start_pass()
        done = 0
        try:
            if num_bytes:
                for part in read_in_order(File(str(files.indices_path), "read"), num_bytes, engine, pool):
                    clusters.feed(part.view(dtype))
                    done += len(part)
                    progress("finding clusters", number * num_bytes + done, PASSES * num_bytes)
            clusters.end_pass()
        except IndexError as error:
            raise FormatError(f"{files.indices_path}: {error}; run 'diskhop verify'") from error
    return clusters.cluster_of(), clusters.num_inner_edges / max(1, files.num_edges)
