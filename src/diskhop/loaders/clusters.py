"""Cluster-GCN's loader, with the interface of PyTorch Geometric and features read from disk within a memory budget.

clusters = diskhop.ClusterData(dataset, num_parts=1500)
with diskhop.ClusterLoader(clusters, batch_size=20, shuffle=True, memory="2GB") as loader:
    for batch in loader:
        out = model(batch.x, batch.edge_index)[batch.train_mask]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.loader.cluster import Partition

from diskhop.budget import Budget
from diskhop.config.options import require, require_known
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.edge_set import destinations_of
from diskhop.dataset.files import map_array
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.loaders.batches import Batch, sort_by_source
from diskhop.loaders.checks import budget_of, path_of, require_flags, whole_numbers
from diskhop.loaders.partition import (
    KEPT_BYTES_PER_EDGE,
    KEPT_BYTES_PER_NODE,
    SORTING_BYTES_PER_EDGE,
    SORTING_BYTES_PER_NODE,
    edges_of_part,
    partition_of,
)
from diskhop.loaders.planned import PlannedLoader
from diskhop.loaders.settings import LoaderSettings
from diskhop.loaders.shares import made_together
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.batch_values import E_ID
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch
from diskhop.sampling.cluster_sampler import cluster_spec
from diskhop.sampling.clusters import ClustersSpec, make_clusters, open_clusters
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.seeds import SeedSet

_FORMATS = ("csr", "csc")


class ClusterData:
    """A dataset with its nodes in clusters that have many edges within. len() is their number.

    clusters[i] is the graph of one cluster, as a Data that is read from disk; to train, use ClusterLoader.

    data: a Dataset or its path.
    num_parts: number of clusters.
    save_dir: folder that keeps the clusters; default: scratch. They are found there by the next call.
    sparse_format: 'csr' sorts the edges of a batch by source, 'csc' by target, which is faster.
    log, filename: have no effect.
    keep_inter_cluster_edges: True gives clusters[i] all edges at its nodes, from them with 'csr' and to them with
        'csc'. The other end is a place in partition.node_perm. Batches of ClusterLoader are the same either way.
    memory: a Budget, bytes, or a size such as '2GB', for finding clusters, for single ones and for `partition`;
        default: half of the free memory.
    scratch: folder for derived files; default: DATASET/derived.
    engine: strategy of reads by name.

    Clusters are found by streaming over the neighbour lists, not by METIS: recursive is refused. Raises ConfigError,
    and BudgetError with the smallest memory that works.

    >>> clusters = diskhop.ClusterData("my-graph", num_parts=12, memory="200MB")
    >>> len(clusters)
    12
    """

    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_parts: int,
        recursive: bool = False,
        save_dir: PathLike[str] | str | None = None,
        filename: str | None = None,
        log: bool = True,
        keep_inter_cluster_edges: bool = False,
        sparse_format: str = "csr",
        *,
        memory: Budget | int | str | None = None,
        scratch: PathLike[str] | str | None = None,
        engine: str = "auto",
    ) -> None:
        (num_parts,) = whole_numbers("num_parts", [num_parts], "100")
        require_flags(recursive=recursive, log=log, keep_inter_cluster_edges=keep_inter_cluster_edges)
        require_known("sparse_format", sparse_format, _FORMATS)
        require(not recursive, "recursive", "False", recursive, "clusters are not found by bisection here")
        dataset = as_dataset(data)
        if dataset.is_typed:
            raise ConfigError(
                f"{dataset.path}: has types of nodes and edges, and ClusterData is for graphs without; use "
                "diskhop.NeighborLoader"
            )
        rule = f"from 1 to the {dataset.num_nodes} nodes"
        require(1 <= num_parts <= max(1, dataset.num_nodes), "num_parts", rule, num_parts, "for example num_parts=2")
        self.num_parts, self.sparse_format = int(num_parts), sparse_format
        self.keep_inter_cluster_edges = bool(keep_inter_cluster_edges)
        spec = ClustersSpec(dataset_hash=dataset.hash, num_clusters=self.num_parts)
        folder = spec.folder(
            Path(path_of("save_dir", save_dir) or scratch_path(dataset.path, path_of("scratch", scratch)))
        )
        opened = open_engine(engine).engine
        self._engine, self._budget = engine, budget_of(memory)
        self._partition_by_id: Partition | None = None
        # Position in the dataset of each edge of the partition.
        self._edge_rows = np.empty(0, np.int64)
        make_once(folder, lambda: make_clusters(spec, folder, dataset.topology, opened, self._budget))
        self.data = dataset.with_clusters(open_clusters(folder, spec, dataset.num_nodes))

    def __len__(self) -> int:
        """Number of clusters."""
        return self.num_parts

    def __getitem__(self, number: int) -> Batch:
        """Read one cluster, see ClusterLoader. Raises IndexError, and BudgetError."""
        if not 0 <= number < self.num_parts:
            raise IndexError(f"cluster {number} is out of range; clusters are 0 to {self.num_parts - 1}")
        with ClusterLoader(self, memory=self._budget, store="direct", engine=self._engine) as loader:
            batch: Batch = loader([number])
            if self.keep_inter_cluster_edges:
                ends, places = edges_of_part(self.partition, number)
                batch.edge_index = torch.from_numpy(ends)
                del batch["block"]
                for name, values in loader.values_of_edges(self._edge_rows[places]).items():
                    batch[name] = values
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Read one cluster after another."""
        return (self[number] for number in range(self.num_parts))

    @property
    def partition(self) -> Partition:
        """Nodes and edges sorted by cluster, as PyG has them; it stays in memory, about 24 bytes per edge.

        node_perm and edge_perm are the source's numbers of nodes and edges. Raises BudgetError.
        """
        if self._partition_by_id is None:
            files = self.data.topology
            num_nodes, num_edges = files.num_nodes, files.num_edges
            sorting_bytes = SORTING_BYTES_PER_NODE * num_nodes + SORTING_BYTES_PER_EDGE * num_edges
            with self._budget.reserve("sorting edges by cluster", sorting_bytes):
                indptr = map_array(files.indptr_path, np.int64, num_nodes + 1)
                sources = map_array(files.indices_path, files.index_dtype, num_edges)
                edge_index = np.stack([sources.astype(np.int64), destinations_of(indptr, 0, num_edges)])
                made = self._partition(torch.from_numpy(edge_index), torch.from_numpy(self._cluster_of()))
            self._budget.reserve("partition", KEPT_BYTES_PER_NODE * num_nodes + KEPT_BYTES_PER_EDGE * num_edges)
            self._edge_rows = made.edge_perm.numpy()
            numbers = self.data.edge_ids()
            if numbers is not None:
                made.edge_perm = torch.from_numpy(numbers[self._edge_rows].astype(np.int64))
            made.node_perm = torch.from_numpy(self.data.id_map().ids(NodeRows(made.node_perm.numpy())))
            self._partition_by_id = made
        return self._partition_by_id

    def _partition(self, edge_index: torch.Tensor, cluster: torch.Tensor) -> Partition:
        """Sort nodes and edges by cluster; PyG's ClusterData has it by this name."""
        return partition_of(edge_index.numpy(), cluster.numpy(), self.num_parts, self.sparse_format)

    def _cluster_of(self) -> NDArray[np.int64]:
        """Return the cluster of each row (nodes)."""
        files = self.data.clusters
        assert files is not None
        starts = map_array(files.starts_path, np.int64, files.num_clusters + 1)
        cluster_of = np.empty(self.data.num_nodes, np.int64)
        nodes = map_array(files.nodes_path, np.int64, self.data.num_nodes)
        cluster_of[nodes] = np.repeat(np.arange(files.num_clusters), np.diff(starts))
        return cluster_of

    def __repr__(self) -> str:
        return f"ClusterData({self.num_parts})"


class ClusterLoader(PlannedLoader):
    """Mini-batches of the nodes of several clusters, and all edges of the graph among them.

    Each batch is a torch_geometric.data.Data with every attribute of the graph by its name, of the batch's nodes and
    edges, and edge_index, n_id, e_id and block as NeighborLoader gives them. An epoch has each cluster once.

    cluster_data: the clusters.
    batch_size: clusters per batch.
    shuffle: True for another order of the clusters in every epoch.
    drop_last: True to drop the last batch if it has fewer clusters.
    memory, store, engine, cache, pinned, disk, scratch, ordered, threads, seed, features: see NeighborLoader.
    loader_arguments: of torch's DataLoader, see NeighborLoader; sampler orders the clusters.

    loader(clusters) makes a single batch. Raises ConfigError for unsupported arguments, and BudgetError with the
    smallest memory that works.

    >>> clusters = diskhop.ClusterData("my-graph", num_parts=12, memory="200MB")
    >>> with diskhop.ClusterLoader(clusters, batch_size=4, shuffle=True, memory="200MB") as loader:
    ...     len(list(loader))
    3
    """

    _gives_adj_t = False

    @made_together
    def __init__(
        self,
        cluster_data: ClusterData,
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        drop_last: bool = False,
        memory: Budget | int | str | None = None,
        store: str | None = None,
        cache: int | str | None = None,
        pinned: str | None = None,
        disk: int | str | None = None,
        scratch: PathLike[str] | str | None = None,
        ordered: bool = False,
        engine: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        features: str | None = None,
        **loader_arguments: Any,
    ) -> None:
        is_known = isinstance(cluster_data, ClusterData)
        require(
            is_known, "cluster_data", "a ClusterData", cluster_data, "pass diskhop.ClusterData(dataset, num_parts=10)"
        )
        _require_no_neighbor_sampler(loader_arguments)
        settings = LoaderSettings(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            transform=None,
            custom_cls=None,
            memory=memory,
            store=store,
            cache=cache,
            pinned=pinned,
            disk=disk,
            scratch=scratch,
            ordered=ordered,
            engine=engine,
            threads=threads,
            seed=seed,
            out_dtype=None,
            features=features,
        )
        given = "cluster_data", "cluster"
        super().__init__("ClusterLoader", given, cluster_data.data, [-1], NeighborWays(), settings, loader_arguments)
        self.cluster_data = cluster_data
        self._sampler = cluster_spec(len(cluster_data))
        self._purpose = Purpose.TRAIN
        self._take_order(len(cluster_data))
        seed_set = SeedSet(
            purpose=self._purpose,
            seeds=NodeRows(self._order_of(0)),
            batch_size=self.batch_size,
            sampler=self._sampler,
            is_shuffled=self._is_reordered,
        )
        self._open(seed_set, self.data.id_map(), {"clusters": 24 * len(cluster_data)})

    def __repr__(self) -> str:
        return f"ClusterLoader({self.data!r}, {len(self)} batches of {self.batch_size} clusters)"

    def values_of_edges(self, positions: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return the attributes and numbers of edges at some positions of the dataset."""
        _, maker = self._graph.get_for_one_type()
        return maker.values.of_edges(positions)

    def _run(
        self, order: NodeIds | None, numbers: Sequence[int], batch_size: int, purpose: Purpose, epoch: int
    ) -> BatchStream:
        pipeline, maker = self._graph.get_for_one_type()
        wanted = Pass(
            seeds=NodeRows(self._order_of(epoch) if order is None else order),
            numbers=numbers,
            batch_size=batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=purpose,
            epoch=epoch,
        )

        def make(sampled: SampledBatch, x: torch.Tensor) -> Batch:
            batch = maker.make_graph(sampled, x)
            batch.num_nodes = sampled.num_nodes
            if self.cluster_data.sparse_format == "csr":
                sort_by_source(batch, self.data.names_per_edge(has_numbers=E_ID in batch))
            return batch

        return pipeline.run(wanted, make)

    def _inputs_hash(self) -> str:
        return f"of {len(self.cluster_data)} clusters"


def _require_no_neighbor_sampler(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of samplers of neighbours; `sampler` may be torch's, which orders the clusters."""
    given = [name for name in ("importance", "batch_dependency") if name in arguments]
    if isinstance(arguments.get("sampler"), str):
        given.insert(0, "sampler")
    if given:
        raise ConfigError(
            f"ClusterLoader: {given[0]}={arguments[given[0]]!r} is for loaders that sample neighbours, and batches "
            f"have whole clusters here; leave {given[0]} out"
        )
