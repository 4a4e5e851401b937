"""PackedLoader: batches that were sampled elsewhere and packed, with features from disk in one read per batch.

packed = diskhop.pack("my-graph", samples="my-samples", memory="2GB")
with diskhop.PackedLoader("my-graph", packed.layout.path, memory="2GB") as loader:
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch

from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget
from diskhop.config.options import check_arguments
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.loaders.batches import Batch
from diskhop.loaders.checks import path_of, require_dtype, require_function, require_texts
from diskhop.loaders.opened import OpenGraph, graph_of
from diskhop.loaders.sampled import SampledLoader
from diskhop.loaders.shares import LoaderShare
from diskhop.pipeline.given_pass import given_pass
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import NodeRows, Purpose, SampledBatch, neighbor_spec
from diskhop.sampling.given_samples import require_given
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.packed.kind import KIND
from diskhop.stores.packed.layout import Layout, read_layout
from diskhop.stores.packed.pack_file import open_pack_file

# Ids and positions of 4 bytes in a record have 8 in memory.
_DECODED = 2


class PackedLoader(SampledLoader):
    """The batches of a packed layout, in their order, as NeighborLoader's: x, y, edge_index, n_id, e_id, batch_size ...

    data: a Dataset or its path.
    layout: folder that pack_samples() or `diskhop pack --samples` made; it names it.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    scratch: folder for temporary files; default: DATASET/derived.
    engine, threads, transform, out_dtype: see NeighborLoader.

    Every pass is the next packed epoch, then the first one again. Batches without hops have no num_sampled_nodes and
    num_sampled_edges. Processes of a group share out the batches as those of a NeighborLoader do.

    Raises ConfigError for a layout of another dataset, FormatError for a damaged one, and BudgetError with the smallest
    memory that works.

    >>> import numpy, pathlib
    >>> pathlib.Path("samples").mkdir()
    >>> first, second = diskhop.open_dataset("my-graph").neighbors(7)[:2]
    >>> numpy.savez("samples/batch-0.npz", seeds=[7], nodes=[7, first, second], edge_index=[[1, 2], [0, 0]])
    >>> packed = diskhop.pack("my-graph", samples="samples", memory="200MB", disk="1GB")
    >>> with diskhop.PackedLoader("my-graph", packed.layout.path, memory="200MB") as loader:
    ...     batch = next(iter(loader))
    >>> batch.x.shape
    torch.Size([3, 16])
    """

    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        layout: PathLike[str] | str,
        *,
        memory: Budget | int | str | None = None,
        scratch: PathLike[str] | str | None = None,
        engine: str | None = None,
        threads: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> None:
        name = type(self).__name__
        check_arguments(name, SampledConfig, threads=threads)
        require_texts(engine=engine)
        require_function("transform", transform)
        require_dtype("out_dtype", out_dtype)
        folder = Path(path_of("layout", layout) or "")
        super().__init__(name, memory, LoaderShare(name, None, None), transform=transform)
        self.data = graph_of(as_dataset(data), None, 0)
        self._layout = _open_layout(self.data, folder)
        self._share.settle(self._arguments(), None)
        id_map = self.data.id_map()
        seed_set = SeedSet(
            purpose=Purpose.TRAIN,
            seeds=NodeRows(np.empty(0, np.int64)),
            batch_size=1,
            sampler=neighbor_spec((1,)),  # draws nothing
            is_shuffled=False,
            row_starts=np.arange(self._num_batches + 1),
        )
        self._graph = OpenGraph(
            name,
            self.data,
            seed_set,
            self.budget,
            id_map=id_map,
            held={"original ids": id_map.num_bytes} if id_map.num_bytes else {},
            choices={
                "store": KIND.name,
                "scratch": path_of("scratch", scratch),
                "engine": engine,
                "threads": threads,
                "seed": 0,
                "prepared": self._layout,
                "sizes": _sizes_of(self._layout),
                "is_given": True,
            },
            share=self._share,
            out_dtype=out_dtype,
        )

    @property
    def _num_batches(self) -> int:
        return self._layout.epochs[0].num_batches

    @property
    def num_epochs(self) -> int:
        """Number of packed epochs."""
        return len(self._layout.epochs)

    def __repr__(self) -> str:
        return f"PackedLoader({self.data!r}, {self._layout.path}, {self.num_epochs} epochs, {len(self)} batches)"

    def _begin(self, epoch: int) -> Callable[[Sequence[int]], BatchStream]:
        packed = self._layout.epochs[epoch % self.num_epochs]

        def start(numbers: Sequence[int]) -> BatchStream:
            pipeline, maker = self._graph.get_for_one_type()

            def make(sampled: SampledBatch, x: torch.Tensor) -> Batch:
                batch = maker.make_graph(sampled, x)
                batch.batch_size = sampled.num_seeds
                return batch

            return pipeline.run(given_pass(packed.seeds_hash, packed.epoch, packed.num_batches, numbers), make)

        return start

    def _arguments(self) -> dict[str, Any]:
        return {
            "dataset": self.data.hash,
            "layout": self._layout.held_hash,
            "epochs": [each.seeds_hash for each in self._layout.epochs],
        }


def _open_layout(data: Dataset, folder: Path) -> Layout:
    table = data.feature_table()
    if table is None or data.has_several_types:
        raise ConfigError(f"{data.path}: has no table of features that a layout could be of; use NeighborLoader")
    layout = read_layout(folder)
    require_given(layout.samples, folder)
    if layout.samples["dataset_hash"] != data.hash:
        raise ConfigError(
            f"{folder}: was packed for another dataset than {data.path}, or for another version of it; "
            f"pack again with: diskhop pack {quote(str(data.path))} --samples FOLDER"
        )
    layout.check(table)
    return layout


def _sizes_of(layout: Layout) -> BatchSizes:
    most_nodes = most_record_bytes = 0
    for epoch in layout.epochs:
        settings = {**layout.samples, "epoch": epoch.epoch, "seeds_hash": epoch.seeds_hash}
        settings["rows in memory"] = layout.held_hash
        source = open_pack_file(layout.epoch_path(epoch.epoch), settings)
        most_nodes = max(most_nodes, *(chunk.num_nodes for chunk in source.chunks))
        most_record_bytes = max(most_record_bytes, *(chunk.record_bytes for chunk in source.chunks))
        source.close()
    return BatchSizes(
        block_bytes=_DECODED * most_record_bytes,
        record_bytes=most_record_bytes,
        num_nodes=most_nodes,
        num_rows=most_nodes,
        node_ids=np.empty(0, np.int64),
        hop_read_bytes=0,
        workspace_bytes=0,
    )
