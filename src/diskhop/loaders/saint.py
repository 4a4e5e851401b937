"""GraphSAINT's loaders, with the interface of PyTorch Geometric and features read from disk within a memory budget.

loader = diskhop.GraphSAINTRandomWalkSampler(dataset, batch_size=2000, walk_length=2, num_steps=30, sample_coverage=50)
for batch in loader:
    loss = (loss_of_nodes(model(batch.x, batch.edge_index), batch.y) * batch.node_norm)[batch.train_mask].sum()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from diskhop.budget import Budget
from diskhop.config.options import check_arguments, check_options, require
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import SAINT_EDGE, SAINT_NODE, SAINT_WALK
from diskhop.dataset.dataset import Dataset
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import torch_arguments
from diskhop.loaders.batches import Batch
from diskhop.loaders.checks import path_of, require_flags, require_texts, size_of, whole_numbers
from diskhop.loaders.opened import OpenGraph, graph_of
from diskhop.loaders.sampled import SampledLoader
from diskhop.loaders.shares import LoaderShare, made_together
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.norms import NormColumns, OpenNorms
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec
from diskhop.sampling.norms import NormsSpec, make_norms, open_norms
from diskhop.sampling.saint import saint_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.starts import numbered_starts


class GraphSAINTSampler(SampledLoader):
    """Mini-batches of subgraphs: nodes that are drawn for each batch, and all edges among them.

    Each batch is a torch_geometric.data.Data with every attribute of the graph by its name, of the batch's nodes and
    edges, and edge_index, n_id, e_id and block as NeighborLoader gives them. With sample_coverage it also has:

    node_norm: float32 (nodes), 1 / (p N) with p the probability that a batch has the node: with it, a sum over the
        nodes of a batch is, on average, the mean over the graph's N nodes.
    edge_norm: float32 (edges), the probability of its target over that of the edge: with it, a sum over the in-edges of
        a batch's node is, on average, the sum over all of its in-edges. (PyG has the source's probability.)

    data: a Dataset or its path.
    batch_size: nodes, edges or walks that are drawn per batch.
    num_steps: batches per pass.
    sample_coverage: nodes of the batches that are counted for the norms, as a multiple of the graph's; 0 for no norms.
    save_dir: folder that keeps the norms; default: scratch. They are found there by the next loader.
    log: has no effect; no progress is shown.
    memory, store, engine, cache, pinned, disk, scratch, ordered, threads, seed, features: see NeighborLoader.
    loader_arguments: of torch's DataLoader, see NeighborLoader; shuffle and drop_last have no effect.

    Every pass is the next epoch, with other batches. The same seed gives the same ones, bit for bit. Raises ConfigError
    for unsupported arguments, and BudgetError with the smallest memory that works.
    """

    _kind = ""

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: PathLike[str] | str | None = None,
        log: bool = True,
        *,
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
        name = type(self).__name__
        check_options({"batch_size": batch_size, "seed": seed}, name, (SampledConfig,))
        check_arguments(name, SampledConfig, threads=threads, sample_coverage=sample_coverage)
        (num_steps,) = whole_numbers("num_steps", [num_steps], "30")
        require(num_steps >= 1, "num_steps", "at least 1", num_steps, "for example num_steps=30")
        drawing = {each: loader_arguments.pop(each, False) for each in ("shuffle", "drop_last")}
        require_flags(log=log, ordered=ordered, **{each: value or False for each, value in drawing.items()})
        require_texts(store=store, engine=engine, pinned=pinned, features=features)
        given = torch_arguments(name, loader_arguments)
        if given.order is not None or given.generator is not None:
            raise ConfigError(f"{name} has no order of its own to replace; remove sampler and generator, and use seed")
        share = LoaderShare(name, given.num_replicas, given.rank)
        super().__init__(name, memory, share, pin_memory=given.pin_memory)
        self.data = graph_of(data, features, int(seed))
        if self.data.is_typed:
            raise ConfigError(
                f"{self.data.path}: has types of nodes and edges, and {name} is for graphs without; use "
                "diskhop.NeighborLoader"
            )
        self.num_steps, self.sample_coverage = int(num_steps), int(sample_coverage)
        self._seed = int(seed)
        self._sampler = self._spec(int(batch_size))
        self._folder = Path(path_of("save_dir", save_dir) or scratch_path(self.data.path, path_of("scratch", scratch)))
        self._open(
            cache_bytes=size_of("cache", cache),
            disk_bytes=size_of("disk", disk),
            store=store,
            engine=engine,
            threads=threads,
            pinned=pinned,
            scratch=path_of("scratch", scratch),
            ordered=bool(ordered) or given.in_order,
            seed=int(seed),
        )

    def _spec(self, batch_size: int) -> SamplerSpec:
        return saint_spec(self._kind, batch_size)

    def _open(self, **choices: Any) -> None:
        """Plan and open the graph, and make the norms. choices: those of a Workload."""
        self._share.settle(self._arguments(), None)
        starts = numbered_starts(self.num_steps)
        seed_set = SeedSet(
            purpose=Purpose.TRAIN,
            seeds=starts.seeds,
            batch_size=starts.batch_size,
            sampler=self._sampler,
            is_shuffled=False,
        )
        id_map = self.data.id_map()
        columns = NormColumns(self.data, self.budget.total_bytes) if self.sample_coverage else None
        held = {"original ids": id_map.num_bytes} if id_map.num_bytes else {}
        self._graph = OpenGraph(
            type(self).__name__,
            self.data,
            seed_set,
            self.budget,
            id_map=id_map,
            held=held if columns is None else {**held, **columns.reserved},
            choices=choices,
            share=self._share,
            added=None if columns is None else columns.added,
        )
        try:
            self._norms = None if columns is None else self._open_norms(columns)
        except BaseException:
            self._graph.close()
            raise

    def _open_norms(self, columns: NormColumns) -> OpenNorms:
        """Find the norms, or count them."""
        pipeline, _ = self._graph.get()
        spec = NormsSpec(dataset_hash=self.data.hash, sampler=self._sampler, coverage=self.sample_coverage)
        folder = spec.folder(self._folder)

        def count() -> None:
            sampler = open_sampler(pipeline.topology, self._sampler, 0, pipeline.pool)
            threads = self.plan.sampling_threads
            make_norms(spec, folder, pipeline.topology, sampler, self.budget, threads=threads)

        make_once(folder, count)
        norms = open_norms(folder, spec, self.data.num_nodes, self.data.num_edges)
        return columns.open(norms, pipeline.engine, self.plan.max_gap_bytes)

    def close(self) -> None:
        """Return memory, close files and unlock the norms; leaving a `with` block does it too."""
        super().close()
        self._norms = None

    @property
    def _num_batches(self) -> int:
        return self.num_steps

    @property
    def dataset(self) -> range:
        """Numbers of the batches, as torch's loaders have a dataset."""
        return range(self.num_steps)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r}, {dict(self._sampler.parameters)}, {len(self)} batches)"

    def _begin(self, epoch: int) -> Callable[[Sequence[int]], BatchStream]:
        starts = numbered_starts(self.num_steps)

        def start(numbers: Sequence[int]) -> BatchStream:
            pipeline, maker = self._graph.get_for_one_type()
            wanted = Pass(
                seeds=starts.seeds,
                numbers=numbers,
                batch_size=starts.batch_size,
                sampler=self._sampler,
                seed=self._seed,
                purpose=Purpose.TRAIN,
                epoch=epoch,
            )

            def make(sampled: SampledBatch, x: torch.Tensor) -> Batch:
                batch = maker.make_graph(sampled, x)
                batch.num_nodes = sampled.num_nodes
                if self._norms is not None:
                    batch.node_norm = torch.from_numpy(self._norms.of_nodes(sampled.node_ids))
                    batch.edge_norm = torch.from_numpy(self._norms.of_edges(sampled.edge_positions))
                return batch

            return pipeline.run(wanted, make)

        return start

    def _arguments(self) -> dict[str, Any]:
        return {
            "dataset": self.data.hash,
            "seed": self._seed,
            "sampler": self._sampler.to_dict(),
            "num_steps": self.num_steps,
            "sample_coverage": self.sample_coverage,
        }


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Nodes in proportion to their in-degree; see GraphSAINTSampler.

    >>> with diskhop.GraphSAINTNodeSampler("my-graph", batch_size=100, num_steps=3, memory="200MB") as loader:
    ...     len(list(loader))
    3
    """

    _kind = SAINT_NODE


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Ends of edges that are drawn in proportion to 1 / deg(u) + 1 / deg(v); see GraphSAINTSampler.

    As in the paper; PyG draws in proportion to the sum of the degrees. In a graph whose edges have no opposites, an
    edge is drawn in proportion to 1 / in-degree of its target.

    >>> with diskhop.GraphSAINTEdgeSampler("my-graph", batch_size=100, num_steps=3, memory="200MB") as loader:
    ...     len(list(loader))
    3
    """

    _kind = SAINT_EDGE


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Random walks from uniformly drawn nodes, along in-edges; see GraphSAINTSampler. walk_length: steps of a walk.

    >>> with diskhop.GraphSAINTRandomWalkSampler(
    ...     "my-graph", batch_size=20, walk_length=2, num_steps=3, memory="200MB"
    ... ) as loader:
    ...     len(list(loader))
    3
    """

    _kind = SAINT_WALK

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: PathLike[str] | str | None = None,
        log: bool = True,
        **arguments: Any,
    ) -> None:
        (self.walk_length,) = whole_numbers("walk_length", [walk_length], "2")
        hint = "for example walk_length=2"
        require(self.walk_length >= 1, "walk_length", "at least 1", walk_length, hint)
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, **arguments)

    def _spec(self, batch_size: int) -> SamplerSpec:
        return saint_spec(self._kind, batch_size, self.walk_length)
