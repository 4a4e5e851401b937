"""NeighborLoader: the loader of PyTorch Geometric, with features read from disk within a memory budget.

loader = diskhop.NeighborLoader(dataset, num_neighbors=[10, 10], batch_size=1000, input_nodes="train", memory="2GB")
for batch in loader:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch

from diskhop._native import keyed_permutation
from diskhop.batches.trace import hash_seeds
from diskhop.budget import Budget
from diskhop.config.options import check_arguments, check_options
from diskhop.config.train import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import refuse_unsupported, resolve_sampler, seed_of, torch_arguments
from diskhop.loaders.batches import Batch, batch_class
from diskhop.loaders.checks import (
    budget_of,
    path_of,
    require_dtype,
    require_flags,
    require_function,
    require_texts,
    size_of,
)
from diskhop.loaders.input_nodes import InputNodes, resolve_input_nodes
from diskhop.loaders.opened import OpenGraph, graph_of
from diskhop.loaders.orders import SeedOrder, checked_positions
from diskhop.loaders.sampled import SampledLoader
from diskhop.loaders.ways import is_disjoint, resolve_input_time, resolve_ways
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch
from diskhop.sampling.seeds import SeedSet, count_batches


class NeighborLoader(SampledLoader):
    """Mini-batches of sampled neighbourhoods, features read from disk within a memory budget.

    Each batch is a torch_geometric.data.Data with every attribute of the graph by its name (x, y, edge_attr ...), of
    the batch's nodes and edges, and edge_index, n_id, e_id, input_id, batch_size, num_sampled_nodes and
    num_sampled_edges, the seeds first; and block, the same edges for diskhop's own layers (diskhop.nn.models), which
    run many times faster. A graph with types of its own gives HeteroData.

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
    pinned: how 'static' and 'packed' choose the rows to cache, by 'degree' or 'accesses'.
    disk: bytes for batches that 'belady' samples ahead and 'packed' packs; default: half of the free space.
    scratch: folder for those batches; default: DATASET/derived.
    ordered: True for batches in order from the store 'shared' too, which otherwise delivers them as they finish.
    threads: CPU threads; default: chosen.
    seed: of shuffling and draws. The same seed gives the same batches, bit for bit, whatever store, engine, memory and
        machine.
    out_dtype: dtype that x is converted to.
    features: x of a graph without features: 'none' (no x, the default), 'degree' (a constant and log(1 + in-degree)),
        'onehot' (a column per node, for small graphs) or 'random' (64 values per node, the same in every batch).
    split: number of the split that input_nodes names a part of; default: the first.
    loader_arguments: of torch's DataLoader. sampler orders the seeds, generator draws the seed, pin_memory pins batches
        where there is a GPU; num_workers and the like have no effect, because diskhop has threads of its own.

    Every pass over the loader is the next epoch. Several passes may be under way: each continues where it was, though
    one runs at a time. loader(positions) makes a single batch. `data` is the graph, see LoaderData, and
    len(loader.dataset) the number of seed nodes. A loader belongs to the process that made it.

    Raises ConfigError for unsupported arguments, and BudgetError with the smallest memory that works.
    """

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
        pinned: str | None = None,
        disk: int | str | None = None,
        scratch: PathLike[str] | str | None = None,
        ordered: bool = False,
        engine: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        out_dtype: torch.dtype | None = None,
        features: str | None = None,
        split: int | None = None,
        **loader_arguments: Any,
    ) -> None:
        refused = {"transform_sampler_output": transform_sampler_output, "neighbor_sampler": neighbor_sampler}
        refuse_unsupported("NeighborLoader", refused)
        ways = resolve_ways(
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
            directed=directed,
        )
        loader_arguments |= {"is_sorted": is_sorted, "filter_per_worker": filter_per_worker}
        given = torch_arguments("NeighborLoader", loader_arguments)
        shuffle = False if shuffle is None else shuffle
        check_options({"batch_size": batch_size, "seed": seed}, "NeighborLoader", (SampledConfig,))
        check_arguments("NeighborLoader", SampledConfig, split=split, threads=threads)
        require_flags(shuffle=shuffle, drop_last=drop_last, ordered=ordered)
        require_texts(store=store, engine=engine, pinned=pinned, features=features)
        require_function("transform", transform)
        require_dtype("out_dtype", out_dtype)
        super().__init__("NeighborLoader", budget_of(memory), transform=transform, pin_memory=given.pin_memory)
        self._seed = seed_of(int(seed), given.generator)
        self.data = graph_of(data, features, self._seed)
        self.batch_size = int(batch_size)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        edge_type = self.data.only_edges.ends if self.data.is_typed else None
        self._sampler = resolve_sampler(num_neighbors, ways, edge_type)
        id_map = self.data.id_map()
        nodes = resolve_input_nodes(self.data, id_map, input_nodes, split, input_id)
        self._take_seeds(nodes, input_time, given.order)
        self._open(
            id_map,
            out_dtype,
            batch_class(custom_cls, self.data),
            cache_bytes=size_of("cache", cache),
            disk_bytes=size_of("disk", disk),
            store=store,
            engine=engine,
            threads=threads,
            pinned=pinned,
            scratch=path_of("scratch", scratch),
            ordered=bool(ordered) or given.in_order,
        )

    def _take_seeds(self, nodes: InputNodes, input_time: Any, order: Any) -> None:
        """Keep the seed nodes, their times and what orders them."""
        self._seeds, self._purpose, self._input_ids = nodes.rows, nodes.purpose, nodes.input_ids
        self._times = resolve_input_time(self.data, self._sampler, input_time, len(self._seeds))
        self._merges = not is_disjoint(self._sampler)
        repeats = order is not None or len(np.unique(self._seeds)) < len(self._seeds)
        self._may_repeat = self._merges and repeats
        self._order = None if order is None else SeedOrder(order, len(self._seeds), shuffle=self.shuffle)

    def _open(self, id_map: IdMap, out_dtype: torch.dtype | None, make: type[Batch] | None, **choices: Any) -> None:
        """Plan and open the graph. choices: those of a Workload."""
        seed_set = SeedSet(
            purpose=self._purpose,
            seeds=self._seeds,
            batch_size=self.batch_size,
            sampler=self._sampler,
            is_shuffled=self.shuffle or self._order is not None,
            may_repeat=self._may_repeat,
            times=self._times,
        )
        self._graph = OpenGraph(
            "NeighborLoader",
            self.data,
            seed_set,
            self.budget,
            id_map=id_map,
            held=self._held_bytes(id_map),
            choices={**choices, "seed": self._seed},
            out_dtype=out_dtype,
            make=make,
        )

    def _held_bytes(self, id_map: IdMap) -> dict[str, int]:
        """Bytes that the loader holds: seeds, their order, the seeds in that order, and their input_id and times."""
        num_ordered = len(self._seeds) if self._order is None else len(self._order)
        held = {"seeds": self._seeds.nbytes + 16 * num_ordered}
        if self._input_ids is not None:
            held["seeds"] += self._input_ids.nbytes
        if self._times is not None:
            held["seeds"] += self._times.nbytes + 8 * num_ordered
        return held | ({"original ids": id_map.num_bytes} if id_map.num_bytes else {})

    def __len__(self) -> int:
        """Number of batches per epoch."""
        num_seeds = len(self.dataset) if self._order is None else len(self._order)
        return num_seeds // self.batch_size if self.drop_last else count_batches(num_seeds, self.batch_size)

    @property
    def dataset(self) -> range:
        """Positions of the seed nodes, as torch's loaders have them: its length is their number."""
        return range(len(self._seeds))

    def __call__(self, positions: Sequence[int] | NodeIds | torch.Tensor) -> Any:
        """Make one batch, of the seed nodes at some positions of input_nodes.

        Every call draws other neighbours: the n-th call of a loader with the same arguments gives the same batch. More
        positions than batch_size take memory that the budget has left. Raises ConfigError, or BudgetError if that is
        too little.
        """
        chosen = checked_positions("positions", positions, len(self._seeds))

        def start(number: int) -> BatchStream:
            return self._run(chosen, range(1), len(chosen), Purpose.INFER, number)

        return self._single(start, len(chosen), self.batch_size)

    def __repr__(self) -> str:
        sampler = list(self._sampler.fanouts) if self._sampler.is_neighbor else self._sampler
        return f"NeighborLoader({self.data!r}, {sampler}, {len(self)} batches of {self.batch_size})"

    def _begin(self, epoch: int) -> Callable[[Sequence[int]], BatchStream]:
        order = None if self._order is None else self._order.draw()

        def start(numbers: Sequence[int]) -> BatchStream:
            # An order of our own is made again for a pass that was suspended: the budget has room for that of one pass.
            drawn = self._order_of(epoch) if order is None else order
            return self._run(drawn, numbers, self.batch_size, self._purpose, epoch)

        return start

    def _order_of(self, epoch: int) -> NodeIds:
        """Return the positions of the seeds of an epoch."""
        if self.shuffle:
            return keyed_permutation(len(self._seeds), self._seed, int(self._purpose), epoch)
        return np.arange(len(self._seeds))

    def _run(
        self, order: NodeIds, numbers: Sequence[int], batch_size: int, purpose: Purpose, epoch: int
    ) -> BatchStream:
        """Start a stream of the batches with these numbers. order: positions of the seeds in input_nodes."""
        pipeline, maker = self._graph.get()
        wanted = Pass(
            seeds=NodeRows(self._seeds[order]),
            numbers=numbers,
            batch_size=batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=purpose,
            epoch=epoch,
            may_repeat=self._may_repeat or (self._merges and purpose == Purpose.INFER),
            times=None if self._times is None else self._times[order],
        )

        def make(sampled: SampledBatch, x: torch.Tensor) -> Batch:
            positions = order[sampled.number * batch_size :][:batch_size]
            input_id = positions if self._input_ids is None else self._input_ids[positions]
            times = None if self._times is None else self._times[positions]
            return maker.make(sampled, x, self._seeds[positions], input_id, times)

        return pipeline.run(wanted, make)

    def _arguments(self) -> dict[str, Any]:
        if self._order is not None:
            raise ConfigError("a loader with sampler has no state, because the order is not its own; leave sampler out")
        sampler = self._sampler
        return {
            "dataset": self.data.hash,
            "seed": self._seed,
            "num_neighbors": list(sampler.fanouts) if sampler.is_neighbor else sampler.to_dict(),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "input_nodes": f"{len(self._seeds)} nodes, hash {hash_seeds(self._seeds, self._times)}",
            "draws": self._purpose.name.lower(),
        }
