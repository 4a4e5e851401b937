"""NeighborLoader: what a PyTorch Geometric user imports. Its signature is theirs, its batches come from the disk.

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
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError
from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds, Purpose, SampledBatch
from diskhop.runtime.blocks import row_ranges
from diskhop.sampling.seeds import SeedSet
from diskhop.system.memory import default_memory_bytes

# PyG's arguments that mean nothing here, with the values that ask for nothing and the reason to give otherwise.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "input_time": ((None,), "temporal sampling is not supported"),
    "replace": ((False,), "draws are without replacement"),
    "subgraph_type": (("directional",), "only 'directional' subgraphs are sampled"),
    "disjoint": ((False,), "disjoint subgraphs are not supported"),
    "temporal_strategy": (("uniform",), "temporal sampling is not supported"),
    "time_attr": ((None,), "temporal sampling is not supported"),
    "weight_attr": ((None,), "neighbours are drawn uniformly"),
    "transform_sampler_output": ((None,), "use transform, which gets the finished batch"),
    "is_sorted": ((False, True), ""),  # our neighbour lists are sorted whatever is said
    "filter_per_worker": ((None,), "rows are fetched by diskhop's own threads"),
    "neighbor_sampler": ((None,), "the sampler is diskhop's own"),
    "directed": ((True,), "only directed subgraphs are sampled"),
    "num_workers": ((0,), "diskhop samples and reads ahead on threads of its own: leave it at 0"),
    "persistent_workers": ((False,), "diskhop samples and reads ahead on threads of its own"),
    "prefetch_factor": ((None,), "the batches in flight follow from the memory budget"),
    "pin_memory": ((False,), "batches are in ordinary memory"),
    "collate_fn": ((None,), "use transform, which gets the finished batch"),
    "worker_init_fn": ((None,), "there are no worker processes"),
    "sampler": ((None,), "pass the nodes as input_nodes"),
    "batch_sampler": ((None,), "pass the nodes as input_nodes and a batch_size"),
    "generator": ((None,), "pass seed: draws depend on it alone"),
    "timeout": ((0,), "a stage's error reaches you at once"),
    "multiprocessing_context": ((None,), "there are no worker processes"),
}


_IDS_PER_BLOCK = 1 << 20


class NeighborLoader:
    """Mini-batches of sampled neighbourhoods, features read from disk within a memory budget.

    Each batch is a torch_geometric.data.Data with x, edge_index, y, n_id, e_id, input_id, batch_size,
    num_sampled_nodes, num_sampled_edges (and edge_weight where the dataset has weights), the seeds first; and block,
    the same edges as diskhop's own layers take them (diskhop.nn.models), many times as fast.

    data: a Dataset or its path. num_neighbors: per hop, -1 for all. input_nodes: 'train', 'valid', 'test' (of the
    split with this number, where there are several), ids, a boolean mask, or None for all nodes. Ids given and n_id are
    those of the source, also where the dataset has renumbered its nodes (Dataset.original_ids()). memory: bytes or a
    size such as '2GB'; default: half of what is free. store, engine: strategies by name; default: chosen. cache: of
    the memory, for rows kept between batches (stores 'static', 'belady', 'shared' and 'packed'). pinned: how 'static'
    and 'packed' choose theirs, by 'degree' or 'accesses'. ordered: batches come in their order also from 'shared',
    which else delivers them as they are finished. disk, scratch: bytes and a folder for batches that 'belady' samples
    ahead and 'packed' packs as it goes; default: half of what is free, DATASET/derived. seed: of shuffling and draws;
    the same seed gives the same batches, bit for bit, whatever store, engine, memory and machine. out_dtype: what x is
    converted to.

    Every pass over the loader is one epoch more. Raises ConfigError for what is not supported, BudgetError with the
    smallest memory that would do.
    """

    def __init__(
        self,
        data: Dataset | str,
        num_neighbors: Sequence[int],
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
        _refuse_unsupported(pyg_arguments)
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        self.dataset = data if isinstance(data, Dataset) else open_dataset(data)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self._original_ids = self.dataset.original_ids()
        self._seeds, self._purpose = _resolve_input_nodes(self.dataset, self._original_ids, input_nodes, split)
        self._fanouts = _resolve_fanouts(num_neighbors)
        self._transform = transform
        self._seed = seed
        self._out_dtype = out_dtype
        self._labels = self.dataset.labels()
        self._edge_ids = self.dataset.edge_ids()
        self._edge_weights = self.dataset.edge_weights()
        self._position = (0, 0)  # epoch, batches delivered of it
        self._ahead: set[int] = set()  # delivered besides, before their turn
        self._resumes_at: tuple[int, int] | None = (0, 0)
        memory_bytes = _size(memory)
        self.budget = Budget(default_memory_bytes() if memory_bytes is None else memory_bytes)
        # Seeds, their order in an epoch, and the seeds in that order.
        held = {"seeds": 3 * self._seeds.nbytes}
        if self._labels is not None:
            held["labels"] = self._labels.nbytes
        if self._original_ids is not None:
            held["original ids"] = self._original_ids.nbytes
        seed_set = SeedSet(
            purpose=self._purpose, seeds=self._seeds, batch_size=batch_size, fanouts=self._fanouts, is_shuffled=shuffle
        )
        workload = Workload(
            seed_sets=(seed_set,),
            seed=seed,
            store=store,
            engine=engine,
            threads=threads,
            cache_bytes=_size(cache),
            disk_bytes=_size(disk),
            scratch=scratch,
            pinned=pinned,
            holds_while_waiting=True,
            ordered=ordered,
            also_held=held,
        )
        self.plan = choose_plan(self.dataset, workload, self.budget)
        with ExitStack() as opened:
            for name, num_bytes in held.items():
                opened.enter_context(self.budget.reserve(name, num_bytes))
            self._pipeline: Pipeline | None = opened.enter_context(
                open_pipeline(self.dataset, self.plan, self.budget, expected=seed_set)
            )
            self._exit = opened.pop_all()

    def __len__(self) -> int:
        """Batches of an epoch."""
        whole, rest = divmod(len(self._seeds), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self._pipeline is None:
            raise ConfigError("this NeighborLoader is closed: make a new one")
        if self._resumes_at is None:
            self._resumes_at, self._ahead = (self._position[0] + 1, 0), set()
        epoch, first = self._position = self._resumes_at
        self._resumes_at = None
        order = np.arange(len(self._seeds))
        if self.shuffle:
            order = keyed_permutation(len(self._seeds), self._seed, int(self._purpose), epoch)
        stream = self._pipeline.run(
            self._seeds[order],
            purpose=self._purpose,
            epoch=epoch,
            fanouts=self._fanouts,
            batch_size=self.batch_size,
            seed=self._seed,
            first_number=first,
            max_batches=len(self),
            left_out=frozenset(self._ahead),
            prepare=partial(self._to_pyg, order),
        )
        with stream as batches:
            for batch in batches:
                self._count_delivered(epoch, batch.sampled.number)
                data = batch.prepared if self._transform is None else self._transform(batch.prepared)
                # Held here while the next is on its way, it would be a batch more than is reserved.
                del batch
                yield data
                del data

    def __repr__(self) -> str:
        return f"NeighborLoader({self.dataset!r}, {list(self._fanouts)}, {len(self)} batches of {self.batch_size})"

    def _count_delivered(self, epoch: int, number: int) -> None:
        self._ahead.add(number)
        delivered = self._position[1]
        while delivered in self._ahead:
            self._ahead.remove(delivered)
            delivered += 1
        self._position = (epoch, delivered)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: load_state_dict() on another one goes on with what was not delivered yet."""
        epoch, delivered = self._resumes_at or self._position
        if delivered == len(self):
            epoch, delivered = epoch + 1, 0
        return {"epoch": epoch, "delivered": delivered, "ahead": sorted(self._ahead), "arguments": self._arguments()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on from a state_dict() of a loader with the same arguments."""
        for name, value in self._arguments().items():
            if state["arguments"][name] != value:
                raise ConfigError(f"the state is of a loader with {name} {state['arguments'][name]}, not {value}")
        self._resumes_at, self._ahead = (state["epoch"], state["delivered"]), set(state["ahead"])

    def _arguments(self) -> dict[str, Any]:
        """What the batches depend on."""
        return {
            "dataset": self.dataset.hash,
            "seed": self._seed,
            "num_neighbors": list(self._fanouts),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "num_seeds": len(self._seeds),
        }

    def close(self) -> None:
        """Give memory and files back; also done on leaving a `with`."""
        self._pipeline = None
        self._exit.close()

    def __enter__(self) -> NeighborLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _to_pyg(self, order: NodeIds, sampled: SampledBatch, x: torch.Tensor) -> Data:
        """On a thread of the pipeline; by NumPy, for torch gives each thread that calls it a team of its own."""
        block = Block.of(sampled)
        positions = order[sampled.number * self.batch_size :][: sampled.num_seeds]
        edge_ids = sampled.edge_positions if self._edge_ids is None else self._edge_ids[sampled.edge_positions]
        node_ids = sampled.node_ids if self._original_ids is None else self._original_ids[sampled.node_ids]
        data = Data(
            x=x if self._out_dtype is None else x.to(self._out_dtype),
            edge_index=block.layer(0).edge_index(),
            n_id=torch.from_numpy(node_ids),
            e_id=torch.from_numpy(edge_ids),
            input_id=torch.from_numpy(np.ascontiguousarray(positions)),
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


def _refuse_unsupported(pyg_arguments: dict[str, Any]) -> None:
    for name, value in pyg_arguments.items():
        if name not in _REFUSED:
            raise ConfigError(f"NeighborLoader has no argument '{name}'")
        allowed, reason = _REFUSED[name]
        if not any(value is each or (type(value) is type(each) and value == each) for each in allowed):
            raise ConfigError(f"NeighborLoader cannot take {name}={value!r}: {reason}")


def _resolve_fanouts(num_neighbors: Sequence[int]) -> tuple[int, ...]:
    if isinstance(num_neighbors, str | dict) or not isinstance(num_neighbors, Sequence):
        raise ConfigError(f"num_neighbors must be a list with a count for each hop, as [10, 10], got {num_neighbors!r}")
    return tuple(num_neighbors)


def _resolve_input_nodes(
    dataset: Dataset, original_ids: NodeIds | None, nodes: Any, split: int
) -> tuple[NodeIds, Purpose]:
    """The seeds as the dataset numbers them, and what they are for."""
    if isinstance(nodes, str):
        purposes = {"train": Purpose.TRAIN, "valid": Purpose.VALID, "test": Purpose.TEST}
        if nodes not in purposes:
            raise ConfigError(f"input_nodes '{nodes}' is not a split; the splits are train, valid, test")
        ids = dataset.split(nodes, split if dataset.num_splits > 1 else None)
        if ids is None:
            raise ConfigError(f"{dataset.path}: has no split '{nodes}'; pass node ids as input_nodes")
        return ids, purposes[nodes]
    if nodes is None:
        return np.arange(dataset.num_nodes) if original_ids is None else np.argsort(original_ids), Purpose.TRAIN
    if isinstance(nodes, tuple):
        raise ConfigError("input_nodes of one type of a typed graph are not supported: pass ids, a mask or a split")
    ids = nodes.numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
    if ids.dtype == np.bool_:
        if ids.shape != (dataset.num_nodes,):
            raise ConfigError(f"input_nodes mask must have shape ({dataset.num_nodes},), got {ids.shape}")
        ids = np.flatnonzero(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"input_nodes must be one-dimensional integer ids, got shape {ids.shape} of {ids.dtype}")
    ids = ids.astype(np.int64)
    return ids if original_ids is None else _find_ids(ids, original_ids), Purpose.TRAIN


def _find_ids(ids: NodeIds, original_ids: NodeIds) -> NodeIds:
    """The nodes whose original ids these are. Raises ConfigError for one that no node has."""
    wanted, places = np.unique(ids, return_inverse=True)
    found = np.full(len(wanted), -1, np.int64)
    for start, stop in row_ranges(len(original_ids), _IDS_PER_BLOCK):
        block = original_ids[start:stop]
        nearest = np.minimum(np.searchsorted(wanted, block), len(wanted) - 1)
        is_wanted = wanted[nearest] == block if len(wanted) else np.zeros(len(block), np.bool_)
        found[nearest[is_wanted]] = np.flatnonzero(is_wanted) + start
    if len(found) and found.min() < 0:
        raise ConfigError(f"input_nodes has id {wanted[np.argmin(found)]}, which no node of the source has")
    return found[places]
