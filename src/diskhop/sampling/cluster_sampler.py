"""Cluster-GCN (Chiang et al., 2019): a batch has the nodes of some clusters, and all edges of the graph among them.

Batches start from numbers of clusters in place of seed nodes. An epoch has each cluster once, in an order of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, keyed_permutation
from diskhop.config.options import require
from diskhop.config.sampler import CLUSTER
from diskhop.dataset.edge_set import ClusterFiles
from diskhop.errors import ConfigError, ReadError
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch, SamplerSpec, SeedTimes
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.kind import SamplerKind
from diskhop.sampling.starts import EpochKey, Starts
from diskhop.sampling.subgraphs import make_inducer

CLUSTERS = "clusters"
_ID_BYTES = 8
_REMEDY = "remove its folder, and it is made again"


def cluster_spec(num_clusters: int) -> SamplerSpec:
    """Return the sampler of a number of clusters."""
    return SamplerSpec(CLUSTER, (), ((CLUSTERS, num_clusters),))


def check_clusters(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec with other parameters than cluster_spec() gives it."""
    is_known = [name for name, _ in spec.parameters] == [CLUSTERS] and not spec.fanouts
    value: Any = dict(spec.parameters).get(CLUSTERS)
    require(is_known and isinstance(value, int) and value >= 1, CLUSTERS, "a whole number", value, "for example 100")


class ClusterSampler:
    """Takes the nodes of clusters, and all edges among them; the seeds are numbers of clusters.

    It draws nothing: a batch depends on its clusters alone. Several threads may sample at once.
    """

    def __init__(self, topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> None:
        files, num_clusters = topology.clusters, int(dict(spec.parameters)[CLUSTERS])
        if files is None or files.num_clusters != num_clusters:
            raise ConfigError(
                f"the dataset was opened without {num_clusters} clusters, which the sampler '{CLUSTER}' needs; pass "
                "it on as find_clusters() returns it"
            )
        self._files: ClusterFiles = files
        self._starts = _read(files.starts_path, num_clusters + 1, 0)
        self._inducer = make_inducer(topology, pool)
        self._most_nodes = 0

    @property
    def workspace_bytes(self) -> int:
        """See Sampler."""
        return 3 * _ID_BYTES * self._most_nodes + self._starts.nbytes + self._inducer.workspace_bytes

    @property
    def reading_bytes(self) -> int:
        """See Sampler."""
        return self._inducer.reading_bytes

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        """See Sampler. Raises ReadError, and FormatError for damaged lists."""
        nodes = np.sort(np.concatenate([self._nodes_of(int(cluster)) for cluster in seeds]))
        self._most_nodes = max(self._most_nodes, len(nodes))
        return self._inducer.sample(nodes, purpose=purpose, epoch=epoch, number=number)

    def _nodes_of(self, cluster: int) -> NDArray[np.int64]:
        first, end = int(self._starts[cluster]), int(self._starts[cluster + 1])
        return _read(self._files.nodes_path, end - first, first)


def _read(path: Path, count: int, first: int) -> NDArray[np.int64]:
    """Read int64 numbers (count) from the first one on. Raises ReadError."""
    try:
        values = np.fromfile(path, "<i8", count=count, offset=_ID_BYTES * first)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    if len(values) != count:
        raise ReadError(f"{path}: ends before byte {_ID_BYTES * (first + count)}; {_REMEDY}")
    return values


def cluster_starts(spec: SamplerSpec, key: EpochKey) -> Starts:
    """Return the clusters in the order of an epoch, batch_size of them in a batch."""
    num_clusters = int(dict(spec.parameters)[CLUSTERS])
    order = keyed_permutation(num_clusters, key.seed, int(key.purpose), key.epoch)
    return Starts(seeds=NodeRows(order), batch_size=key.batch_size)


KIND = SamplerKind(
    name=CLUSTER, check=check_clusters, open=ClusterSampler, starts=cluster_starts, chooses_nodes=True, examples=()
)
