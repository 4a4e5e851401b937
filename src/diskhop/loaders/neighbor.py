"""NeighborLoader: the loader of PyTorch Geometric, with features read from disk within a memory budget.

loader = diskhop.NeighborLoader(dataset, num_neighbors=[10, 10], batch_size=1000, input_nodes="train", memory="2GB")
for batch in loader:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from os import PathLike
from typing import Any

import numpy as np
import torch

from diskhop.batches.trace import hash_seeds
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.loaders.arguments import refuse_unsupported
from diskhop.loaders.batches import Batch, BatchSeedValues
from diskhop.loaders.input_nodes import InputNodes, resolve_input_nodes
from diskhop.loaders.opened import AnyBatchMaker
from diskhop.loaders.planned import PlannedLoader
from diskhop.loaders.settings import LoaderSettings
from diskhop.loaders.shares import made_together
from diskhop.loaders.typed_batches import TypedBatchMaker
from diskhop.loaders.typed_data import TypedLoaderData, find_seed_type, merged_rows
from diskhop.loaders.ways import is_disjoint, resolve_input_time, resolve_ways
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch
from diskhop.sampling.seeds import SeedSet


class NeighborLoader(PlannedLoader):
    """Mini-batches of sampled neighbourhoods, features read from disk within a memory budget.

    Each batch is a torch_geometric.data.Data with every attribute of the graph by its name (x, y, edge_attr ...), of
    the batch's nodes and edges, and edge_index, n_id, e_id, input_id, batch_size, num_sampled_nodes and
    num_sampled_edges, the seeds first; and block, the same edges for diskhop's own layers (diskhop.nn.models), which
    run many times faster. A graph with types of its own gives HeteroData. Where sums over neighbours need weights to be
    unbiased, edges have them as edge_importance.

    n_id: ids of the nodes in the source.
    e_id: numbers of the edges in the source, so that edge_attr[batch.e_id] is right for the edge_attr of the source.
        Missing if the dataset does not keep them (`diskhop import --edge-ids keep`).
    input_id: for each seed, its position in input_nodes; in a mask, the position of its entry.

    data: a Dataset or its path.
    num_neighbors: neighbours drawn per hop, -1 for all, or a dict of them by edge type; or a SamplerSpec.
    input_nodes: 'train', 'valid' or 'test', ids of the source, names if the nodes have some, a boolean mask in the
        order of Dataset.node_ids(), or None for all nodes in that order. Of a typed graph also 'type' or
        ('type', nodes).
    input_time: a time per input node, whole numbers; default: the times of the nodes. Batches give it as seed_time.
    replace: True to draw neighbours with replacement; a fan-out of -1 still takes each once.
    subgraph_type: 'directional' for the drawn edges; 'bidirectional' for those and their opposites, each once; or
        'induced' for all edges among a batch's nodes. The last two have no num_sampled_nodes and num_sampled_edges.
    disjoint: True for a subgraph per seed. A node is there once per subgraph, and `batch` has the seed of each node.
    temporal_strategy: 'uniform', or 'last' for the latest neighbours that are not later than the seed.
    time_attr: name of the times of nodes or edges. No neighbour is later than its seed. It implies disjoint.
    weight_attr: name of the edge weights that are the probabilities of draws. An edge of weight 0 is never drawn.
    directed: False is the old name of subgraph_type='induced'.
    batch_size: seed nodes per batch.
    shuffle: True to shuffle the seed nodes in every epoch.
    drop_last: True to drop the last batch if it is smaller than the others.
    custom_cls: class of the batches; default: Data or HeteroData.
    input_id: whole numbers that batches give as input_id of their seeds; default: as above.
    transform: called with each batch; its result is delivered. A batch whose edges it changes has no `block`.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    store, engine: strategies by name; default: chosen by predicted cost.
    cache: bytes of the memory for rows kept between batches (stores 'static', 'belady', 'shared' and 'packed').
    neighbor_cache: bytes of the neighbour lists that stay in memory; the others are read from disk. Default: chosen.
    pinned: how 'static' and 'packed' choose the rows to cache, by 'degree' or 'accesses'.
    disk: bytes for batches that 'belady' samples ahead and 'packed' packs; default: half of the free space.
    superbatch: batches that those sample ahead together at most; default: as many as `disk` has room for.
    scratch: folder for those batches; default: DATASET/derived.
    ordered: True for batches in order from the store 'shared' too, which otherwise delivers them as they finish.
    threads: CPU threads; default: chosen.
    seed: of shuffling and draws. The same seed gives the same batches, bit for bit, whatever store, engine, memory and
        machine.
    out_dtype: dtype that x is converted to.
    features: x of a graph without features: 'none' (no x, the default), 'degree' (a constant and log(1 + in-degree)),
        'onehot' (a column per node, for small graphs) or 'random' (64 values per node, the same in every batch).
    split: number of the split that input_nodes names a part of; default: the first.
    device: where batches are delivered, 'cuda', 'cuda:N' or 'auto' (a GPU if there is one): they are copied there while
        the one before is used. Default: memory, which 'cpu' means too.
    device_memory: bytes, or a size such as '8GB', of the device for the most accessed rows of features, which then lie
        there, and the next ones in pinned memory (stores 'static', 'packed', 'memory'). Types of nodes share it. Has
        no effect where 'auto' finds no GPU, which the plan says. Default: none.
    loader_arguments: of torch's DataLoader. sampler orders the seeds, or names how to sample: 'neighbor' (the default),
        'labor', 'ladies' or 'fastgcn' (num_neighbors of these two are nodes per hop). generator draws the seed,
        pin_memory pins batches where there is a GPU; num_workers and the like have no effect, because diskhop has
        threads of its own. With a sampler's name also importance (of 'labor': 1 prefers neighbours that several nodes
        have, LABOR-1) and batch_dependency (N consecutive batches share draws, so that a cache keeps more; 1: none do).

    In a process group of torch.distributed, the processes share out the batches of every pass: process r of n gets
    r, r + n, ... and all get the same number of them, for which the last round is filled with the first batches of the
    pass. `memory` is then for all processes of a machine, which have neighbour lists, attributes and resident tables in
    one copy: all processes make the loader together. loader_arguments may have num_replicas and rank, as torch's
    DistributedSampler; num_replicas=1 is for a loader that one process uses. Processes with input_nodes of their own
    each get all batches of these.

    Every pass over the loader is the next epoch. Several passes may be under way: each continues where it was, though
    one runs at a time. loader(positions) makes a single batch. `data` is the graph, see LoaderData, and
    len(loader.dataset) the number of seed nodes. A loader belongs to the process that made it.

    Raises ConfigError for unsupported arguments, and BudgetError with the smallest memory that works.

    >>> dataset = diskhop.open_dataset("my-graph")
    >>> with diskhop.NeighborLoader(
    ...     dataset, num_neighbors=[10, 5], batch_size=64, input_nodes="train", memory="200MB", seed=0
    ... ) as loader:
    ...     batch = next(iter(loader))
    >>> batch.batch_size, batch.x.shape[1]
    (64, 16)
    """

    _class_name = "NeighborLoader"

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        drop_last: bool = False,
        custom_cls: type[Batch] | None = None,
        input_id: Any = None,
        memory: Budget | int | str | None = None,
        store: str | None = None,
        cache: int | str | None = None,
        neighbor_cache: int | str | None = None,
        pinned: str | None = None,
        disk: int | str | None = None,
        superbatch: int | None = None,
        scratch: PathLike[str] | str | None = None,
        ordered: bool = False,
        engine: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        out_dtype: torch.dtype | None = None,
        features: str | None = None,
        split: int | None = None,
        device: torch.device | str | None = None,
        device_memory: int | str | None = None,
        **loader_arguments: Any,
    ) -> None:
        refused = {"transform_sampler_output": transform_sampler_output, "neighbor_sampler": neighbor_sampler}
        refuse_unsupported(self._class_name, refused)
        ways = resolve_ways(
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
            directed=directed,
        )
        settings = LoaderSettings(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            transform=transform,
            custom_cls=custom_cls,
            memory=memory,
            store=store,
            cache=cache,
            neighbor_cache=neighbor_cache,
            pinned=pinned,
            disk=disk,
            superbatch=superbatch,
            scratch=scratch,
            ordered=ordered,
            engine=engine,
            threads=threads,
            seed=seed,
            out_dtype=out_dtype,
            features=features,
            device=device,
            device_memory=device_memory,
        )
        loader_arguments |= {"is_sorted": is_sorted, "filter_per_worker": filter_per_worker}
        given = "input_nodes", "seed node"
        super().__init__(self._class_name, given, data, num_neighbors, ways, settings, loader_arguments, split=split)
        self._seed_type, nodes, id_map = self._find_seeds(input_nodes, split, input_id)
        self._take_seeds(nodes, input_time)
        seed_set = SeedSet(
            purpose=self._purpose,
            seeds=self._seeds,
            batch_size=self.batch_size,
            sampler=self._sampler,
            is_shuffled=self._is_reordered,
            may_repeat=self._may_repeat,
            times=self._times,
        )
        self._open(seed_set, id_map, {"seeds": self._seeds_bytes()})

    def _find_seeds(
        self, input_nodes: Any, split: int | None, input_id: Any
    ) -> tuple[str, InputNodes, IdMap | Mapping[str, IdMap]]:
        """Return the type of the seed nodes, '' for a graph of one type; the nodes; and the ids that batches need."""
        data = self.data
        if not isinstance(data, TypedLoaderData):
            id_map = data.id_map()
            return "", resolve_input_nodes(data, id_map, input_nodes, split, input_id), id_map
        seed_type, id_maps = find_seed_type(data, input_nodes), data.id_maps()
        own = data.of_node_type(seed_type)
        nodes = resolve_input_nodes(own, id_maps[seed_type], input_nodes, split, input_id)
        return seed_type, replaced(nodes, rows=merged_rows(data.type_map, seed_type, nodes.rows)), id_maps

    def _take_seeds(self, nodes: InputNodes, input_time: Any) -> None:
        """Keep the seed nodes, their times and what orders them."""
        self._seeds, self._purpose, self._input_ids = nodes.rows, nodes.purpose, nodes.input_ids
        self._take_order(len(self._seeds))
        self._times = resolve_input_time(self.data, self._sampler, input_time, len(self._seeds))
        self._merges = not is_disjoint(self._sampler)
        repeats = self._order is not None or len(np.unique(self._seeds)) < len(self._seeds)
        self._may_repeat = self._merges and repeats

    def _seeds_bytes(self) -> int:
        """Bytes of the seeds, their order, the seeds in that order, and their input_id and times."""
        num_bytes = self._seeds.nbytes + 16 * self._num_ordered
        if self._input_ids is not None:
            num_bytes += self._input_ids.nbytes
        if self._times is not None:
            num_bytes += self._times.nbytes + 8 * self._num_ordered
        return num_bytes

    def _run(
        self, order: NodeIds | None, numbers: Sequence[int], batch_size: int, purpose: Purpose, epoch: int
    ) -> BatchStream:
        drawn = self._order_of(epoch) if order is None else order
        pipeline, maker = self._graph.get()
        wanted = Pass(
            seeds=NodeRows(self._seeds[drawn]),
            numbers=numbers,
            batch_size=batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=purpose,
            epoch=epoch,
            may_repeat=self._may_repeat or (self._merges and purpose == Purpose.INFER),
            times=None if self._times is None else self._times[drawn],
        )

        def make(sampled: SampledBatch, x: Any) -> Batch:
            positions = drawn[sampled.number * batch_size :][:batch_size]
            input_id = positions if self._input_ids is None else self._input_ids[positions]
            times = None if self._times is None else self._times[positions]
            return self._make(maker, sampled, x, BatchSeedValues(self._seeds[positions], input_id, times))

        return pipeline.run(wanted, make, self._destination)

    def _make(self, maker: AnyBatchMaker, sampled: SampledBatch, x: Any, seeds: BatchSeedValues) -> Batch:
        """Make a batch, on a thread of the pipeline. x: a tensor, or one per node type."""
        if isinstance(maker, TypedBatchMaker):
            return maker.make(sampled, x, seeds, self._seed_type)
        return maker.make(sampled, x, seeds)

    def _inputs_hash(self) -> str:
        return hash_seeds(self._seeds, self._times)
