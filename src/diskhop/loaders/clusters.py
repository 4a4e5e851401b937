"""Cluster-GCN's loader, with the interface of PyTorch Geometric and features read from disk within a memory budget.

clusters = diskhop.ClusterData(dataset, num_parts=1500)
with diskhop.ClusterLoader(clusters, batch_size=20, shuffle=True, memory="2GB") as loader:
    for batch in loader:
        out = model(batch.x, batch.edge_index)[batch.train_mask]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diskhop.budget import Budget
from diskhop.config.options import require, require_known
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.loaders.batches import Batch
from diskhop.loaders.checks import budget_of, path_of, require_flags, whole_numbers
from diskhop.loaders.planned import PlannedLoader
from diskhop.loaders.settings import LoaderSettings
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

    data: a Dataset or its path.
    num_parts: number of clusters.
    save_dir: folder that keeps the clusters; default: scratch. They are found there by the next call.
    sparse_format: 'csr' sorts the edges of a batch by source, 'csc' by target, which is faster.
    log, filename: have no effect.
    memory: a Budget, bytes, or a size such as '2GB', for finding clusters; default: half of the free memory.
    scratch: folder for derived files; default: DATASET/derived.
    engine: strategy of reads by name.

    Clusters are found by streaming over the neighbour lists, not by METIS: recursive is refused, as is
    keep_inter_cluster_edges. Raises ConfigError, and BudgetError with the smallest memory that works.
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
        hint = "a batch has the edges among its own nodes"
        require(not keep_inter_cluster_edges, "keep_inter_cluster_edges", "False", keep_inter_cluster_edges, hint)
        dataset = as_dataset(data)
        if dataset.is_typed:
            raise ConfigError(
                f"{dataset.path}: has types of nodes and edges, and ClusterData is for graphs without; use "
                "diskhop.NeighborLoader"
            )
        rule = f"from 1 to the {dataset.num_nodes} nodes"
        require(1 <= num_parts <= max(1, dataset.num_nodes), "num_parts", rule, num_parts, "for example num_parts=2")
        self.num_parts, self.sparse_format = int(num_parts), sparse_format
        spec = ClustersSpec(dataset_hash=dataset.hash, num_clusters=self.num_parts)
        folder = spec.folder(
            Path(path_of("save_dir", save_dir) or scratch_path(dataset.path, path_of("scratch", scratch)))
        )
        opened = open_engine(engine).engine
        make_once(folder, lambda: make_clusters(spec, folder, dataset.topology, opened, budget_of(memory)))
        self.data = dataset.with_clusters(open_clusters(folder, spec, dataset.num_nodes))

    def __len__(self) -> int:
        """Number of clusters."""
        return self.num_parts

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
    """

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
            return batch if self.cluster_data.sparse_format == "csc" else self._by_source(batch, sampled)

        return pipeline.run(wanted, make)

    def _by_source(self, batch: Batch, sampled: SampledBatch) -> Batch:
        """Sort the edges of a batch by source, then target. `block` keeps its own order."""
        targets = np.repeat(np.arange(sampled.num_nodes), np.diff(sampled.indptr))
        order = np.lexsort((targets, sampled.sources))
        batch.edge_index = torch.from_numpy(batch.edge_index.numpy()[:, order])
        for name in self.data.names_per_edge(has_numbers=E_ID in batch):
            if name in batch:
                batch[name] = batch[name][torch.from_numpy(order)]
        return batch

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
