"""NeighborLoader: the loader of PyTorch Geometric, with features read from disk within a memory budget.

loader = diskhop.NeighborLoader(dataset, num_neighbors=[10, 10], batch_size=1000, input_nodes="train", memory="2GB")
for batch in loader:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from diskhop._native import keyed_permutation
from diskhop.budget import Budget, parse_bytes
from diskhop.config.options import check_arguments
from diskhop.config.train import SampledConfig
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import refuse_unsupported, resolve_sampler
from diskhop.loaders.input_nodes import resolve_input_nodes
from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds, NodeRows, SampledBatch, SamplerSpec
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.system.memory import default_memory_bytes


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
    input_nodes: 'train', 'valid' or 'test', ids of the source, a boolean mask in the order of Dataset.node_ids(), or
        None for all nodes in that order.
    batch_size: seed nodes per batch.
    shuffle: True to shuffle the seed nodes in every epoch.
    drop_last: True to drop the last batch if it is smaller than the others.
    transform: called with each batch; its result is delivered.
    memory: bytes or a size such as '2GB'; default: half of the free memory.
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
    split: number of the split, if the dataset has several.

    Every pass over the loader is the next epoch. Raises ConfigError for unsupported arguments, and BudgetError with the
    smallest memory that works.
    """

    def __init__(
        self,
        data: Dataset | str,
        num_neighbors: Sequence[int] | SamplerSpec,
        input_nodes: str | NodeIds | torch.Tensor | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        transform: Callable[[Data], Any] | None = None,
        memory: int | str | None = None,
        store: str | None = None,
        cache: int | str | None = None,
        pinned: str | None = None,
        disk: int | str | None = None,
        scratch: str | None = None,
        ordered: bool = False,
        engine: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        out_dtype: torch.dtype | None = None,
        split: int = 0,
        **pyg_arguments: Any,
    ) -> None:
        refuse_unsupported(pyg_arguments)
        check_arguments("NeighborLoader", SampledConfig, batch_size=batch_size, split=split, threads=threads, seed=seed)
        self.dataset = data if isinstance(data, Dataset) else open_dataset(data)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self._transform = transform
        self._seed = seed
        self._out_dtype = out_dtype
        self._sampler = resolve_sampler(num_neighbors)
        self._load_columns(input_nodes, split)
        self._position = (0, 0)  # epoch, number of batches delivered without a gap
        self._ahead: set[int] = set()  # numbers of batches delivered before an earlier one
        self._resumes_at: tuple[int, int] | None = (0, 0)
        memory_bytes = _size(memory)
        self.budget = Budget(default_memory_bytes() if memory_bytes is None else memory_bytes)
        self._open(
            store=store,
            engine=engine,
            threads=threads,
            cache_bytes=_size(cache),
            disk_bytes=_size(disk),
            scratch=scratch,
            pinned=pinned,
            ordered=ordered,
        )

    def _load_columns(self, input_nodes: Any, split: int) -> None:
        """Load the seed nodes, and everything else of a batch that does not come from the pipeline."""
        self._id_map = self.dataset.id_map()
        given = resolve_input_nodes(self.dataset, self._id_map, input_nodes, split)
        self._seeds, self._purpose, self._input_ids = given.rows, given.purpose, given.input_ids
        self._labels = self.dataset.label_rows()
        self._edge_ids = self.dataset.edge_ids()
        self._edge_weights = self.dataset.edge_weights()

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
        self.plan = choose_plan(self.dataset, workload, self.budget)
        with ExitStack() as opened:
            for name, num_bytes in own_bytes.items():
                opened.enter_context(self.budget.reserve(name, num_bytes))
            self._pipeline: Pipeline | None = opened.enter_context(
                open_pipeline(self.dataset, self.plan, self.budget, expected=seed_set)
            )
            self._exit = opened.pop_all()

    def __len__(self) -> int:
        """Number of batches per epoch."""
        if self.drop_last:
            return len(self._seeds) // self.batch_size
        return count_batches(len(self._seeds), self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if self._pipeline is None:
            raise ConfigError("this NeighborLoader is closed; make a new one")
        if self._resumes_at is None:
            self._resumes_at, self._ahead = (self._position[0] + 1, 0), set()
        epoch, first = self._position = self._resumes_at
        self._resumes_at = None
        order = np.arange(len(self._seeds))
        if self.shuffle:
            order = keyed_permutation(len(self._seeds), self._seed, int(self._purpose), epoch)
        numbers: Sequence[int] = range(first, len(self))
        if self._ahead:
            numbers = [number for number in numbers if number not in self._ahead]
        wanted = Pass(
            seeds=NodeRows(self._seeds[order]),
            numbers=numbers,
            batch_size=self.batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=self._purpose,
            epoch=epoch,
        )
        with self._pipeline.run(wanted, partial(self._to_pyg, order)) as batches:
            for batch in batches:
                self._count_delivered(epoch, batch.number)
                data = batch.prepared if self._transform is None else self._transform(batch.prepared)
                # A reference kept while the next batch is in flight would be one batch more than reserved.
                del batch
                yield data
                del data

    def __repr__(self) -> str:
        sampler = list(self._sampler.fanouts) if self._sampler.is_neighbor else self._sampler
        return f"NeighborLoader({self.dataset!r}, {sampler}, {len(self)} batches of {self.batch_size})"

    def _count_delivered(self, epoch: int, number: int) -> None:
        self._ahead.add(number)
        delivered = self._position[1]
        while delivered in self._ahead:
            self._ahead.remove(delivered)
            delivered += 1
        self._position = (epoch, delivered)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: load_state_dict() on another loader resumes with the batches that are left."""
        epoch, delivered = self._resumes_at or self._position
        if delivered == len(self):
            epoch, delivered = epoch + 1, 0
        return {"epoch": epoch, "delivered": delivered, "ahead": sorted(self._ahead), "arguments": self._arguments()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next pass from a state_dict() of a loader with the same arguments."""
        for name, value in self._arguments().items():
            if state["arguments"][name] != value:
                raise ConfigError(
                    f"cannot resume: the state is of a loader with {name} {state['arguments'][name]}, not {value}; "
                    "make this loader with the same arguments"
                )
        self._resumes_at, self._ahead = (state["epoch"], state["delivered"]), set(state["ahead"])

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that determine the batches."""
        sampler = self._sampler
        return {
            "dataset": self.dataset.hash,
            "seed": self._seed,
            "num_neighbors": list(sampler.fanouts) if sampler.is_neighbor else sampler.to_dict(),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "num_seeds": len(self._seeds),
        }

    def close(self) -> None:
        """Return memory and close files; leaving a `with` block does it too."""
        self._pipeline = None
        self._exit.close()

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
        data = Data(
            x=x if self._out_dtype is None else x.to(self._out_dtype),
            edge_index=block.layer(0).edge_index(),
            n_id=torch.from_numpy(self._id_map.ids(NodeRows(sampled.node_ids))),
            **numbers,
            input_id=torch.from_numpy(np.ascontiguousarray(input_ids)),
            batch_size=sampled.num_seeds,
            num_sampled_nodes=list(sampled.num_sampled_nodes),
            num_sampled_edges=list(sampled.num_sampled_edges),
            block=block,
        )
        if self._labels is not None:
            data.y = torch.from_numpy(self._labels[sampled.node_ids])
        if self._edge_weights is not None:
            data.edge_weight = torch.from_numpy(self._edge_weights[sampled.edge_positions])
        return data


def _size(size: int | str | None) -> int | None:
    return parse_bytes(size) if isinstance(size, str) else size
