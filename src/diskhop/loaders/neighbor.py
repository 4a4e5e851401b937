"""NeighborLoader: the loader of PyTorch Geometric, with features read from disk within a memory budget.

loader = diskhop.NeighborLoader(dataset, num_neighbors=[10, 10], batch_size=1000, input_nodes="train", memory="2GB")
for batch in loader:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from os import PathLike
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from diskhop._native import keyed_permutation
from diskhop.batches.trace import hash_seeds
from diskhop.budget import Budget
from diskhop.config.options import check_arguments, check_options, require
from diskhop.config.train import SampledConfig
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.made_features import NONE
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import refuse_unsupported, resolve_sampler
from diskhop.loaders.checks import (
    budget_of,
    path_of,
    require_dtype,
    require_flags,
    require_function,
    require_texts,
    size_of,
)
from diskhop.loaders.input_nodes import resolve_input_nodes
from diskhop.loaders.node_arrays import distinct_ids
from diskhop.loaders.passes import NeighborPass
from diskhop.loaders.progress import Progress
from diskhop.loaders.transforms import transformed
from diskhop.loaders.turns import PassTurns
from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.batch import MiniBatch, Pass
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.pipeline.stream import BatchStream
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch, SamplerSpec
from diskhop.runtime.process import OwnerProcess
from diskhop.sampling.seeds import SeedSet, count_batches


class NeighborLoader:
    """Mini-batches of sampled neighbourhoods, features read from disk within a memory budget.

    Each batch is a torch_geometric.data.Data with x, edge_index, y, n_id, e_id, input_id, batch_size,
    num_sampled_nodes and num_sampled_edges, the seeds first; edge_weight if the dataset has weights; and block, the
    same edges for diskhop's own layers (diskhop.nn.models), which run many times faster.

    n_id: ids of the nodes in the source.
    e_id: numbers of the edges in the source, so that edge_attr[batch.e_id] is right for the edge_attr of the source.
        Missing if the dataset does not keep them (`diskhop import --edge-ids keep`).
    input_id: for each seed, its position in input_nodes; in a mask, the position of its entry.

    data: a Dataset or its path.
    num_neighbors: neighbours drawn per hop, -1 for all; or a SamplerSpec.
    input_nodes: 'train', 'valid' or 'test', ids of the source, names if the nodes have some, a boolean mask in the
        order of Dataset.node_ids(), or None for all nodes in that order.
    batch_size: seed nodes per batch.
    shuffle: True to shuffle the seed nodes in every epoch.
    drop_last: True to drop the last batch if it is smaller than the others.
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

    Every pass over the loader is the next epoch. Several passes may be under way: each continues where it was, though
    one runs at a time. loader(positions) makes a single batch. `data` is the Dataset, and len(loader.dataset) the
    number of seed nodes. A loader belongs to the process that made it.

    Raises ConfigError for unsupported arguments, and BudgetError with the smallest memory that works.
    """

    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_neighbors: Sequence[int] | SamplerSpec,
        input_nodes: str | NodeIds | torch.Tensor | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        transform: Callable[[Data], Any] | None = None,
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
        **pyg_arguments: Any,
    ) -> None:
        refuse_unsupported(pyg_arguments)
        check_options({"batch_size": batch_size, "seed": seed}, "NeighborLoader", (SampledConfig,))
        check_arguments("NeighborLoader", SampledConfig, split=split, threads=threads)
        require_flags(shuffle=shuffle, drop_last=drop_last, ordered=ordered)
        require_texts(store=store, engine=engine, pinned=pinned, features=features)
        require_function("transform", transform)
        require_dtype("out_dtype", out_dtype)
        choices = {"cache_bytes": size_of("cache", cache), "disk_bytes": size_of("disk", disk)}
        self.budget = budget_of(memory)
        self._process = OwnerProcess(self, "NeighborLoader")
        self.data = as_dataset(data)
        if features is not None or self.data.features() is None:
            self.data = self.data.with_made_features(NONE if features is None else features, int(seed))
        self.batch_size = int(batch_size)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self._transform = transform
        self._seed = int(seed)
        self._out_dtype = out_dtype
        self._sampler = resolve_sampler(num_neighbors)
        self._load_columns(input_nodes, split)
        self._turns = PassTurns()
        self._progress = Progress("NeighborLoader")
        self._open(
            store=store,
            engine=engine,
            threads=threads,
            scratch=path_of("scratch", scratch),
            pinned=pinned,
            ordered=bool(ordered),
            **choices,
        )

    def _load_columns(self, input_nodes: Any, split: int | None) -> None:
        """Load the seed nodes, and everything else of a batch that does not come from the pipeline."""
        self._id_map = self.data.id_map()
        given = resolve_input_nodes(self.data, self._id_map, input_nodes, split)
        self._seeds, self._purpose, self._input_ids = given.rows, given.purpose, given.input_ids
        self._labels = self.data.label_rows()
        self._edge_ids = self.data.edge_ids()
        self._edge_weights = self.data.edge_weights()

    def _open(self, **choices: Any) -> None:
        """Plan and open the pipeline. choices: those of a Workload."""
        # The seeds, their order in an epoch, the seeds in that order, and perhaps their positions in a mask.
        own_bytes = {"seeds": (3 if self._input_ids is None else 4) * self._seeds.nbytes}
        if self._labels is not None:
            own_bytes["labels"] = self._labels.nbytes
        if self._id_map.num_bytes:
            own_bytes["original ids"] = self._id_map.num_bytes
        seed_set = SeedSet(
            purpose=self._purpose,
            seeds=self._seeds,
            batch_size=self.batch_size,
            sampler=self._sampler,
            is_shuffled=self.shuffle,
        )
        workload = Workload(
            seed_sets=(seed_set,), seed=self._seed, holds_while_waiting=True, also_held=own_bytes, **choices
        )
        self.plan = choose_plan(self.data, workload, self.budget)
        with ExitStack() as opened:
            for name, num_bytes in own_bytes.items():
                opened.enter_context(self.budget.reserve(name, num_bytes))
            self._pipeline: Pipeline | None = opened.enter_context(
                open_pipeline(self.data, self.plan, self.budget, expected=seed_set)
            )
            self._exit = opened.pop_all()

    def __len__(self) -> int:
        """Number of batches per epoch."""
        if self.drop_last:
            return len(self._seeds) // self.batch_size
        return count_batches(len(self._seeds), self.batch_size)

    @property
    def dataset(self) -> range:
        """Positions of the seed nodes, as torch's loaders have them: its length is their number."""
        return range(len(self._seeds))

    def __iter__(self) -> Iterator[Any]:
        self._process.require_here()
        position = self._progress.begin()
        passed = NeighborPass(position, len(self), partial(self._start, position.epoch))
        try:
            while (batch := self._next_of(passed)) is not None:
                data = self._transformed(batch)
                # A reference kept while the next batch is in flight would be one batch more than reserved.
                del batch
                yield data
                del data
        finally:
            if self._process.is_here:
                self._turns.end(passed)
                self._progress.end(position)

    def __call__(self, positions: Sequence[int] | NodeIds | torch.Tensor) -> Any:
        """Make one batch, of the seed nodes at some positions of input_nodes, each named once.

        Every call draws other neighbours: the n-th call of a loader with the same arguments gives the same batch. More
        positions than batch_size take memory that the budget has left. Raises ConfigError, or BudgetError if that is
        too little.
        """
        self._process.require_here()
        chosen = distinct_ids("positions", positions)
        is_known = chosen.min() >= 0 and chosen.max() < len(self._seeds)
        hint = f"the loader has {len(self._seeds)} seed nodes"
        require(is_known, "positions", "positions in input_nodes", chosen.tolist(), hint)
        # What the plan has for a batch in flight is for batch_size seed nodes.
        num_more = -(-len(chosen) // self.batch_size) - 1
        more_bytes = 2 * num_more * self.plan.batch_bytes
        with self._turns.turn(None), self.budget.reserve("large batch", more_bytes):
            wanted = Pass(
                seeds=NodeRows(self._seeds[chosen]),
                numbers=range(1),
                batch_size=len(chosen),
                sampler=self._sampler,
                seed=self._seed,
                purpose=Purpose.INFER,
                epoch=self._progress.num_calls,
            )
            self._progress.num_calls += 1
            with self._opened().run(wanted, partial(self._to_pyg, chosen)) as batches:
                return self._transformed(next(batches))

    def _start(self, epoch: int, numbers: Sequence[int]) -> BatchStream:
        """Start a stream of the batches with these numbers."""
        # Made again for a pass that was suspended: the budget has room for the order of one pass.
        order = np.arange(len(self._seeds))
        if self.shuffle:
            order = keyed_permutation(len(self._seeds), self._seed, int(self._purpose), epoch)
        wanted = Pass(
            seeds=NodeRows(self._seeds[order]),
            numbers=numbers,
            batch_size=self.batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=self._purpose,
            epoch=epoch,
        )
        return self._opened().run(wanted, partial(self._to_pyg, order))

    def _next_of(self, passed: NeighborPass) -> MiniBatch | None:
        self._process.require_here()
        with self._turns.turn(passed):
            self._opened()
            batch = passed.next_batch()
            self._progress.advance(passed.position)
        return batch

    def _opened(self) -> Pipeline:
        if self._pipeline is None:
            raise ConfigError("this NeighborLoader is closed; make a new one")
        return self._pipeline

    def _transformed(self, batch: MiniBatch) -> Any:
        return batch.prepared if self._transform is None else transformed(batch.prepared, self._transform)

    def __repr__(self) -> str:
        sampler = list(self._sampler.fanouts) if self._sampler.is_neighbor else self._sampler
        return f"NeighborLoader({self.data!r}, {sampler}, {len(self)} batches of {self.batch_size})"

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: load_state_dict() on another loader resumes with the batches that are left.

        Of several passes that are under way, it is the one that delivered the last batch.
        """
        return self._progress.state(self._arguments, len(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next pass from a state_dict() of a loader with the same arguments."""
        self._progress.load(state, self._arguments, len(self))

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that determine the batches."""
        sampler = self._sampler
        return {
            "dataset": self.data.hash,
            "seed": self._seed,
            "num_neighbors": list(sampler.fanouts) if sampler.is_neighbor else sampler.to_dict(),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "input_nodes": f"{len(self._seeds)} nodes, hash {hash_seeds(self._seeds)}",
            "draws": self._purpose.name.lower(),
        }

    def close(self) -> None:
        """Return memory and close files; leaving a `with` block does it too. Does nothing in a forked child."""
        if self._process.is_here:
            with self._turns.turn(None):
                self._pipeline = None
                self._exit.close()

    def __reduce__(self) -> Any:
        return self._process.refuse_pickling()

    def __enter__(self) -> NeighborLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _to_pyg(self, order: NodeIds, sampled: SampledBatch, x: torch.Tensor) -> Data:
        """Convert a batch, on a thread of the pipeline.

        It indexes with NumPy: torch would start a pool of threads for each thread that calls it.
        """
        block = Block.of(sampled)
        positions = order[sampled.number * self.batch_size :][: sampled.num_seeds]
        numbers = {}
        if self._edge_ids is not None:
            numbers["e_id"] = torch.from_numpy(self._edge_ids[sampled.edge_positions].astype(np.int64))
        input_ids = positions if self._input_ids is None else self._input_ids[positions]
        has_x = x.shape[1] > 0
        data = Data(
            x=(x if self._out_dtype is None else x.to(self._out_dtype)) if has_x else None,
            edge_index=block.layer(0).edge_index(),
            n_id=torch.from_numpy(self._id_map.ids(NodeRows(sampled.node_ids))),
            **numbers,
            input_id=torch.from_numpy(np.ascontiguousarray(input_ids)),
            batch_size=sampled.num_seeds,
            num_sampled_nodes=list(sampled.num_sampled_nodes),
            num_sampled_edges=list(sampled.num_sampled_edges),
            block=block,
        )
        if not has_x:
            data.num_nodes = sampled.num_nodes
        if self._labels is not None:
            data.y = torch.from_numpy(self._labels[sampled.node_ids])
        if self._edge_weights is not None:
            data.edge_weight = torch.from_numpy(self._edge_weights[sampled.edge_positions])
        return data
