"""A dataset as PyG's own loaders use it: opened in each process that samples or fetches, which may be their workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.id_map import IdMap
from diskhop.loaders.link_negatives import resolve_negatives
from diskhop.loaders.link_types import find_link_type
from diskhop.loaders.loader_data import LoaderData
from diskhop.loaders.node_arrays import node_array
from diskhop.loaders.opened import OpenGraph
from diskhop.loaders.repeated import repeat_seeds
from diskhop.loaders.shares import LoaderShare
from diskhop.loaders.ways import is_disjoint, require_times, resolve_input_time, times_of
from diskhop.pipeline.pipeline import Pipeline
from diskhop.pipeline.single import SingleBatches
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch, SamplerSpec, SeedTimes, SourceIds
from diskhop.runtime.process import OwnerProcess
from diskhop.sampling.links import GivenEnds, LinkBatch, Links
from diskhop.sampling.negatives import DrawKey, Negatives
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.seeds import SeedSet, distinct_seeds


class PygSample(NamedTuple):
    """A sampled batch, the ids of its nodes, and the source's numbers of its edges, if the dataset has them."""

    batch: SampledBatch
    ids: SourceIds
    edge_ids: torch.Tensor | None


class PygGraph:
    """The graph behind a FeatureStore, a GraphStore and a BaseSampler. It opens when it is first used in a process.

    data: the graph.
    sampler: expands seed nodes.
    seed: random seed of the draws.
    memory_bytes: memory of each process; the workers of a DataLoader share it.
    batch_size: seed nodes per batch that memory is divided for; larger batches take what is left.
    batches_per_epoch: batches after which the draws are of the next epoch; 0: all are of the first one.
    choices: those of a Workload.

    is_disjoint: whether each seed has a subgraph of its own.
    times: the times that neighbours are drawn by; None without any.
    """

    def __init__(
        self,
        data: LoaderData,
        sampler: SamplerSpec,
        *,
        seed: int,
        memory_bytes: int,
        batch_size: int,
        batches_per_epoch: int,
        choices: Mapping[str, Any],
    ) -> None:
        self.data = data
        self.sampler = sampler
        self._seed = seed
        self._memory_bytes = memory_bytes
        self._batch_size = batch_size
        self._batches_per_epoch = batches_per_epoch
        self._choices = choices
        self.is_disjoint = is_disjoint(sampler)
        self.times = times_of(data, sampler)
        self._num_sampled = 0
        self._opened: _OpenHere | None = None
        self._pid = 0

    @property
    def node_type(self) -> str | None:
        """Type of the nodes; None for a graph without types."""
        return self.data.only_nodes.name if self.data.is_typed else None

    @property
    def edge_type(self) -> tuple[str, str, str] | None:
        """Type of the edges as PyG names it; None for a graph without types."""
        return self.data.only_edges.ends if self.data.is_typed else None

    def sample(self, ids: NDArray[np.int64], input_time: Any = None) -> PygSample:
        """Sample the neighbourhood of seed nodes, given by ids of the source; some may repeat.

        input_time: see NeighborLoader.
        """
        opened = self._open()
        seeds = opened.id_map.rows(SourceIds(ids), "input_nodes")
        epoch, number = self._next_draw()
        times = resolve_input_time(self.data, self.sampler, input_time, len(seeds))
        sampled = opened.sample(seeds if self.is_disjoint else distinct_seeds(seeds), epoch, number, times)
        if len(seeds) > sampled.num_seeds:
            sampled, _ = repeat_seeds(sampled, seeds)
        return opened.with_ids(sampled)

    def sample_links(self, pairs: NDArray[np.int64], link_time: Any, neg_sampling: Any) -> tuple[LinkBatch, PygSample]:
        """Sample the neighbourhood of the ends of links, and of their negatives.

        pairs: ids of the source, int64 (2, links). link_time, neg_sampling: see LinkNeighborLoader.
        """
        opened = self._open()
        rows = opened.id_map.rows(SourceIds(pairs.reshape(-1)), "edge_label_index").reshape(2, -1)
        require_times(link_time, None if self.times is None else self.times.name)
        links = Links(
            ends=GivenEnds(rows),
            times=None if link_time is None else node_array("edge_label_time", link_time),
            negatives=opened.negatives(neg_sampling),
            is_disjoint=self.is_disjoint,
        )
        epoch, number = self._next_draw()
        batch = links.batch_of(np.arange(rows.shape[1]), DrawKey(self._seed, Purpose.TRAIN, epoch, number))
        return batch, opened.with_ids(opened.sample(batch.seeds, epoch, number, batch.times))

    def fetch(self, names: list[str], ids: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return attributes of nodes by name, (ids, *shape) each. Features are fetched once, through the store."""
        opened = self._open()
        rows = opened.id_map.rows(SourceIds(ids), "index")
        values = opened.maker.values.of_nodes(rows, names)
        x = self.data.only_nodes.attributes.get("x")
        if "x" in names and x is not None and x.stored_as == "features":
            values["x"] = opened.fetch(rows)
        return values

    def close(self) -> None:
        """Return memory and close files of this process."""
        if self._opened is not None and self._pid == os.getpid():
            self._opened.close()
        self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_pid": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _open(self) -> _OpenHere:
        if self._opened is None or self._pid != os.getpid():
            worker = torch.utils.data.get_worker_info()
            budget = Budget(self._memory_bytes // (1 if worker is None else worker.num_workers))
            self._opened, self._pid = _OpenHere(self, budget), os.getpid()
        return self._opened

    def _next_draw(self) -> tuple[int, int]:
        """Return the epoch and the batch number that key the draws of the next batch.

        A worker gets every n-th batch of a pass, and gets a seed of the pass, which PyTorch draws: it is the epoch.
        """
        count = self._num_sampled
        self._num_sampled += 1
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            return (worker.seed - worker.id) % 2**31, count * worker.num_workers + worker.id
        return divmod(count, self._batches_per_epoch) if self._batches_per_epoch else (0, count)

    def open_graph(self, budget: Budget, id_map: IdMap) -> OpenGraph:
        """Plan and open the graph within a budget."""
        seeds = id_map.all_rows()
        # Of seeds that are later than everything: no batch is larger.
        are_of_edges = self.times is not None and self.times.of == "edges"
        latest = np.full(len(seeds), np.iinfo(np.int64).max) if are_of_edges else None
        seed_set = SeedSet(
            purpose=Purpose.TRAIN,
            seeds=seeds,
            batch_size=self._batch_size,
            sampler=self.sampler,
            is_shuffled=True,
            times=latest,
        )
        return OpenGraph(
            "PygStores",
            self.data,
            seed_set,
            budget,
            id_map=id_map,
            held={"original ids": id_map.num_bytes} if id_map.num_bytes else {},
            choices={**self._choices, "seed": self._seed, "ordered": True},
            share=LoaderShare("PygStores", num_replicas=1, rank=0),
        )

    @property
    def seed(self) -> int:
        """Random seed of the draws."""
        return self._seed


class _OpenHere:
    """The graph, open in this process. maker: its values and dtypes."""

    def __init__(self, graph: PygGraph, budget: Budget) -> None:
        self._process = OwnerProcess(self, "PygStores")
        self._graph = graph
        self._budget = budget
        self.id_map = graph.data.id_map()
        self._open = graph.open_graph(budget, self.id_map)
        self._pipeline: Pipeline | None = None
        self._negatives: tuple[Any, Negatives | None] = None, None
        self._held = ExitStack()
        self._use()

    def sample(self, seeds: NodeIds, epoch: int, number: int, times: SeedTimes) -> SampledBatch:
        """Sample the neighbourhood of rows, each once unless it has a subgraph of its own."""
        self._use()
        return self._sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=epoch, number=number, times=times)

    def with_ids(self, sampled: SampledBatch) -> PygSample:
        """Return a batch with the ids of its nodes and edges."""
        edge_ids = self.maker.values.edge_ids(sampled.edge_positions)
        return PygSample(sampled, self.id_map.ids(NodeRows(sampled.node_ids)), edge_ids)

    def negatives(self, neg_sampling: Any) -> Negatives | None:
        """Return how negatives are drawn, which takes memory for weights and times of nodes."""
        given, made = self._negatives
        if given is not neg_sampling:
            self._held.close()
            link_type, _ = find_link_type(self._graph.data, self.id_map, None)
            made = resolve_negatives(link_type, self._graph.sampler, neg_sampling, None)
            self._held.enter_context(self._budget.reserve("negatives", 0 if made is None else made.num_bytes))
            self._negatives = neg_sampling, made
        return made

    def fetch(self, rows: NodeIds) -> torch.Tensor:
        """Return features of rows, in the dtype that batches have them in."""
        self._use()
        plan = self._open.plan
        num_more = max(0, -(-len(rows) // max(1, plan.batch_rows)) - 1)
        with self._budget.reserve("large batch", num_more * plan.batch_bytes):
            return self.maker.features(self._single.fetch(rows))

    def close(self) -> None:
        """Return memory and close files."""
        self._held.close()
        self._open.close()

    def _use(self) -> None:
        """Follow the graph where it was opened again, because attributes were removed."""
        pipeline, self.maker = self._open.get_for_one_type()
        if pipeline is not self._pipeline:
            self._pipeline = pipeline
            self._sampler = open_sampler(pipeline.topology, self._graph.sampler, self._graph.seed, pipeline.pool)
            self._single = SingleBatches(pipeline)
