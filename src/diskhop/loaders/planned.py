"""The common part of loaders that expand what they are given in batches: seed nodes, or links."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import torch

from diskhop._native import keyed_permutation
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.loaders.adjacency import ADDED, Adjacencies
from diskhop.loaders.arguments import TorchArguments, edge_types_of, resolve_sampler, seed_of, torch_arguments
from diskhop.loaders.batches import BatchMaker, batch_class
from diskhop.loaders.checks import size_of
from diskhop.loaders.destination import delivered_on, describe_auto, device_of, require_device
from diskhop.loaders.loader_data import LoaderData
from diskhop.loaders.named_samplers import resolve_named
from diskhop.loaders.opened import OpenGraph, graph_of, typed_graph_of
from diskhop.loaders.orders import SeedOrder, checked_positions
from diskhop.loaders.sampled import SampledLoader
from diskhop.loaders.settings import LoaderSettings
from diskhop.loaders.shares import LoaderShare
from diskhop.loaders.typed_data import TypedLoaderData, bytes_of_ids, merge_types
from diskhop.loaders.typed_opposites import ADDED as ADDED_BY_OPPOSITES
from diskhop.loaders.typed_opposites import opposite_types
from diskhop.pipeline.stream import BatchStream
from diskhop.pipeline.transfer import RING_BYTES, Destination, DeviceCopies
from diskhop.plans import PreparedBytes
from diskhop.protocols import NodeIds, Purpose
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.seeds import SeedSet, count_batches


class PlannedLoader(SampledLoader):
    """A loader over inputs, in order, shuffled, or in the order of a sampler of torch.

    A subclass calls _take_order() once it knows its inputs, then _open().

    name: of the class.
    given: argument of the inputs, and what they are, for messages.
    """

    data: LoaderData
    # Of batches that are delivered on a device.
    _destination: Destination | None = None
    # Whether the rows of a batch are copied once more before it is delivered.
    _copies_rows = False
    # Whether batches have the sparse matrix that a graph was imported with, as those of PyG's loader of this name.
    _gives_adj_t = True
    _purpose: Purpose
    _id_map: IdMap | Mapping[str, IdMap]

    def __init__(
        self,
        name: str,
        given: tuple[str, str],
        data: Dataset | PathLike[str] | str,
        num_neighbors: Any,
        ways: NeighborWays,
        settings: LoaderSettings,
        loader_arguments: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._device = device_of(settings.device)
        arguments = dict(loader_arguments)
        num_neighbors = resolve_named(name, num_neighbors, ways, arguments)
        torchs = torch_arguments(name, arguments, given[0])
        settings.check(name, **options)
        share = LoaderShare(name, torchs.num_replicas, torchs.rank)
        if torchs.order is not None:
            share.keep_whole()
        super().__init__(name, settings.memory, share, transform=settings.transform, pin_memory=torchs.pin_memory)
        self._name, self._given = name, given
        self._settings = settings
        self._torchs: TorchArguments = torchs
        self._seed = seed_of(int(settings.seed), torchs.generator)
        dataset = as_dataset(data)
        # Draws of several types are directional, and batches then add the opposites, which may be of other types.
        self._adds_opposites = dataset.has_several_types and ways.subgraph == "bidirectional"
        drawn = replace(ways, subgraph="directional") if self._adds_opposites else ways
        edge_types = edge_types_of(dataset)
        if self._adds_opposites:
            opposite_types(edge_types)
        self._sampler = resolve_sampler(num_neighbors, drawn, edge_types)
        self.data = self._graph_of(dataset, settings)
        adjacencies = Adjacencies(self.data)
        if self._gives_adj_t and adjacencies:
            self._adjacencies = adjacencies
        self.batch_size = int(settings.batch_size)
        self.shuffle = bool(settings.shuffle)
        self.drop_last = bool(settings.drop_last)
        self._num_inputs = 0
        self._order: SeedOrder | None = None

    def _graph_of(self, dataset: Dataset, settings: LoaderSettings) -> LoaderData:
        if not dataset.has_several_types:
            return graph_of(dataset, settings.features, self._seed)

        def merge(graph: Dataset) -> Dataset:
            return merge_types(graph, self._sampler, self.budget, settings.choices()["scratch"], settings.engine)

        return typed_graph_of(dataset, settings.features, merge)

    def _take_order(self, num_inputs: int) -> None:
        """Keep the number of inputs, and what orders them."""
        self._num_inputs = num_inputs
        order = self._torchs.order
        if order is not None:
            self._order = SeedOrder(order, num_inputs, self._given, shuffle=self.shuffle)

    @property
    def _num_ordered(self) -> int:
        """Number of inputs of a pass."""
        return self._num_inputs if self._order is None else len(self._order)

    @property
    def _is_reordered(self) -> bool:
        """Whether a pass has its inputs in another order than they were given in."""
        return self.shuffle or self._order is not None

    def _open(
        self,
        seed_set: SeedSet,
        id_map: IdMap | Mapping[str, IdMap],
        held: Mapping[str, int],
    ) -> None:
        """Plan and open the graph. held: bytes that the loader holds, by name."""
        settings, device_bytes = self._settings, self._device_bytes()
        # Each process may have a device of its own, and they open one plan.
        kind = None if self._device is None else self._device.type
        self._share.compare({"device": kind, "device_memory": device_bytes})
        ring = {} if self._device is None else {"transfer buffers": RING_BYTES}
        copies = None if self._device is None else DeviceCopies(self._device)
        if self._order is None:
            self._share.settle(self._arguments(), self._given[0])
        self._id_map = id_map
        choices = {**settings.choices(), "ordered": bool(settings.ordered) or self._torchs.in_order}
        self._graph = OpenGraph(
            self._name,
            self.data,
            seed_set,
            self.budget,
            id_map=id_map,
            held={**held, **ring, **({"original ids": bytes_of_ids(id_map)} if bytes_of_ids(id_map) else {})},
            choices={**choices, "seed": self._seed, "device_bytes": device_bytes},
            copies=copies,
            share=self._share,
            out_dtype=settings.out_dtype,
            make=batch_class(settings.custom_cls, self.data),
            copies_rows=self._copies_rows or seed_set.may_repeat,
            added=self._added_bytes(),
            adds_opposites=self._adds_opposites,
        )
        if line := describe_auto(settings.device, settings.device_memory):
            plan = self._graph.plan
            self._graph.plan = replace(plan, reasons=(*plan.reasons, line))
        if copies is not None:
            self._destination = delivered_on(copies, partial(_converted, self._graph), self.data)
            self._pins = False

    def _added_bytes(self) -> PreparedBytes:
        """Return the bytes that are added to a batch."""
        added = ADDED_BY_OPPOSITES if self._adds_opposites else PreparedBytes()
        return added if self._adjacencies is None else added.plus(ADDED)

    def _device_bytes(self) -> int:
        """Return the bytes of the device that feature rows may take."""
        wanted = self._settings.device_memory
        num_bytes = size_of("device_memory", wanted) or 0
        require_device(self._device, self._settings.device, wanted)
        return 0 if self._device is None else num_bytes

    @property
    def _num_batches(self) -> int:
        num_inputs = self._num_ordered
        return num_inputs // self.batch_size if self.drop_last else count_batches(num_inputs, self.batch_size)

    @property
    def dataset(self) -> range:
        """Positions of the inputs, as torch's loaders have them: its length is their number."""
        return range(self._num_inputs)

    def __call__(self, positions: Sequence[int] | NodeIds | torch.Tensor) -> Any:
        """Make one batch, of the inputs at some positions.

        Every call draws other neighbours: the n-th call of a loader with the same arguments gives the same batch. More
        positions than batch_size take memory that the budget has left. Raises ConfigError, or BudgetError if that is
        too little.
        """
        chosen = checked_positions("positions", positions, self._num_inputs, self._given)

        def start(number: int) -> BatchStream:
            return self._run(chosen, range(1), len(chosen), Purpose.INFER, number)

        return self._single(start, len(chosen), self.batch_size)

    def collate_fn(self, positions: Any) -> Any:
        """Make one batch, as PyG's ZipLoader asks for it."""
        return self(positions)

    def filter_fn(self, batch: Any) -> Any:
        """Return the batch, which collate_fn() has finished."""
        return batch

    def __repr__(self) -> str:
        sampler = list(self._sampler.fanouts) if self._sampler.is_neighbor else self._sampler
        return f"{self._name}({self.data!r}, {sampler}, {len(self)} batches of {self.batch_size})"

    def _begin(self, epoch: int) -> Callable[[Sequence[int]], BatchStream]:
        order = None if self._order is None else self._order.draw()

        def start(numbers: Sequence[int]) -> BatchStream:
            return self._run(order, numbers, self.batch_size, self._purpose, epoch)

        return start

    def _order_of(self, epoch: int) -> NodeIds:
        """Return the positions of the inputs of an epoch."""
        if self.shuffle:
            return keyed_permutation(self._num_inputs, self._seed, int(self._purpose), epoch)
        return np.arange(self._num_inputs)

    @abstractmethod
    def _run(
        self, order: NodeIds | None, numbers: Sequence[int], batch_size: int, purpose: Purpose, epoch: int
    ) -> BatchStream:
        """Start a stream of the batches with these numbers.

        order: positions of the inputs; None: the loader's own order of the epoch, which is made again for a pass that
        was suspended, because the budget has room for that of one pass.
        """

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
            self._given[0]: f"{self._num_inputs} {self._given[1]}s, hash {self._inputs_hash()}",
            "draws": self._purpose.name.lower(),
            **({"opposites": self._adds_opposites} if isinstance(self.data, TypedLoaderData) else {}),
        }

    @abstractmethod
    def _inputs_hash(self) -> str:
        """Return text that other inputs have another one of."""


def _converted(graph: OpenGraph, x: torch.Tensor, node_type: str) -> torch.Tensor:
    """Convert rows of features to x of a batch."""
    _, maker = graph.require_open()
    return maker.features(x) if isinstance(maker, BatchMaker) else maker.features(x, node_type)
