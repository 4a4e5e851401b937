"""LinkNeighborLoader: PyTorch Geometric's loader of links, with features read from disk within a memory budget.

loader = diskhop.LinkNeighborLoader(dataset, [10, 10], batch_size=1000, neg_sampling="binary", memory="2GB")
for batch in loader:
    z = model(batch.x, batch.edge_index)
    source, destination = z[batch.edge_label_index]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import refuse_unsupported
from diskhop.loaders.batches import Batch, LinkValues
from diskhop.loaders.input_links import InputLinks, resolve_input_links
from diskhop.loaders.link_negatives import resolve_negatives
from diskhop.loaders.link_types import find_link_type
from diskhop.loaders.planned import PlannedLoader
from diskhop.loaders.settings import LoaderSettings
from diskhop.loaders.shares import made_together
from diskhop.loaders.typed_batches import TypedBatchMaker
from diskhop.loaders.typed_data import TypedLoaderData
from diskhop.loaders.ways import is_disjoint, require_times, resolve_ways
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import NodeIds, NodeRows, Purpose, SampledBatch
from diskhop.sampling.links import LinkBatch, Links, shuffle_key
from diskhop.sampling.seeds import SeedSet

_NO_SEEDS = NodeRows(np.empty(0, np.int64))


class LinkNeighborLoader(PlannedLoader):
    """Mini-batches of links, with the sampled neighbourhoods of their ends, read from disk within a memory budget.

    Each batch is a torch_geometric.data.Data as of NeighborLoader, without batch_size, and with input_id and the links:

    edge_label_index: places of the ends among the batch's nodes, (2, links): those given, then binary negatives.
    edge_label: their labels. Negatives have label 0, links without a label 1.0, and labels from 0 are counted up by 1.
    edge_label_time: times of the links; a negative has that of a link.
    src_index, dst_pos_index, dst_neg_index: of triplets, in place of the above: ends of the links, and `amount` other
        destinations of each, (links) or (links, amount); and seed_time.

    input_id: for each link given, its position in edge_label_index; of all edges, the number of the edge in the source.

    Edges that a batch predicts may be in its graph, as with PyG. Negatives are random nodes or pairs of nodes, which
    may be edges by chance. Draws of negatives are keyed as those of neighbours are.

    data: a Dataset or its path.
    num_neighbors: neighbours drawn per hop, -1 for all, or a dict of them by edge type; or a SamplerSpec.
    edge_label_index: ids of sources and destinations, (2, links), which need not be edges; None for all edges. Of a
        typed graph also an edge type, or (edge type, ids). Shuffled edges of the graph take no memory.
    edge_label: a label per link, numbers of any shape; of all edges, in the order of the source.
    edge_label_time: a time per link, whole numbers. It needs time_attr.
    neg_sampling: a NegativeSampling of PyG, a dict of its arguments, or its mode: 'binary' or 'triplet'. Its weights of
        nodes are in the order of Dataset.node_ids(), or 'degree', which takes no memory. By times of nodes, no negative
        is later than its link.
    neg_sampling_ratio: binary negatives per link; 0 for none.
    time_attr: name of the times of nodes or edges. No neighbour is later than its link. It needs edge_label_time.
    disjoint: True for a subgraph per end. `batch` has the link of each node.
    input_id: whole numbers that batches give as input_id of their links; default: as above.

    Everything else is as in NeighborLoader: replace, subgraph_type, temporal_strategy, weight_attr, directed,
    batch_size (links), shuffle, drop_last, custom_cls, transform, memory, store, engine, cache, neighbor_cache, pinned,
    disk, superbatch, scratch, ordered, threads, seed, out_dtype, features, device, device_memory, loader_arguments;
    passes, loader(positions), data and dataset.

    Raises ConfigError for unsupported arguments, and BudgetError with the smallest memory that works.

    >>> with diskhop.LinkNeighborLoader(
    ...     "my-graph", [10, 5], neg_sampling="binary", batch_size=64, memory="200MB", seed=0
    ... ) as loader:
    ...     batch = next(iter(loader))
    >>> batch.edge_label_index.shape
    torch.Size([2, 128])
    """

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
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
        device: torch.device | str | None = None,
        device_memory: int | str | None = None,
        **loader_arguments: Any,
    ) -> None:
        refused = {"transform_sampler_output": transform_sampler_output, "neighbor_sampler": neighbor_sampler}
        refuse_unsupported("LinkNeighborLoader", refused)
        require_times(edge_label_time, time_attr)
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
        given = "edge_label_index", "link"
        super().__init__("LinkNeighborLoader", given, data, num_neighbors, ways, settings, loader_arguments)
        self._purpose = Purpose.TRAIN
        data = self.data
        id_map = data.id_maps() if isinstance(data, TypedLoaderData) else data.id_map()
        link_type, index = find_link_type(data, id_map, edge_label_index)
        self._edge_type = link_type.ends
        inputs = resolve_input_links(
            link_type,
            index,
            self.budget,
            label=edge_label,
            time=edge_label_time,
            input_id=input_id,
            keeps_order=not self.shuffle,
        )
        self._take_order(len(inputs.ends))
        negatives = resolve_negatives(link_type, self._sampler, neg_sampling, neg_sampling_ratio)
        self._inputs = _with_labels_of(inputs, None if negatives is None else negatives.mode)
        self._links = Links(
            ends=inputs.ends, times=inputs.times, negatives=negatives, is_disjoint=is_disjoint(self._sampler)
        )
        seed_set = SeedSet(
            purpose=self._purpose,
            seeds=_NO_SEEDS,
            links=self._links,
            seed=self._seed,
            batch_size=self.batch_size,
            sampler=self._sampler,
            is_shuffled=self._is_reordered,
        )
        num_bytes = self._inputs.num_bytes + (0 if negatives is None else negatives.num_bytes)
        num_bytes += 8 * self._num_ordered if self._order is not None else 0
        self._open(seed_set, id_map, {"links": num_bytes} if num_bytes else {})

    def _run(
        self, order: NodeIds | None, numbers: Sequence[int], batch_size: int, purpose: Purpose, epoch: int
    ) -> BatchStream:
        pipeline, maker = self._graph.get()
        if order is not None:
            links = replace(self._links, order=self._inputs.in_order(order))
        elif self.shuffle:
            links = replace(self._links, shuffled_by=shuffle_key(self._seed, purpose, epoch))
        else:
            links = replace(self._links, order=self._inputs.order)
        wanted = Pass(
            seeds=_NO_SEEDS,
            links=links,
            numbers=numbers,
            batch_size=batch_size,
            sampler=self._sampler,
            seed=self._seed,
            purpose=purpose,
            epoch=epoch,
        )

        def make(sampled: SampledBatch, x: Any) -> Batch:
            values = self._values(wanted.links_of(sampled.number))
            if isinstance(maker, TypedBatchMaker):
                assert self._edge_type is not None
                return maker.make_links(sampled, x, values, self._edge_type)
            return maker.make_links(sampled, x, values)

        return pipeline.run(wanted, make, self._destination)

    def _values(self, batch: LinkBatch) -> LinkValues:
        inputs = self._inputs
        numbers = inputs.numbers_at(batch.positions)
        of_edges = {"input_id": numbers if inputs.input_id is None else inputs.input_id[numbers]}
        of_nodes = {}
        if batch.negatives is not None:
            negatives = batch.negatives[:, 0] if batch.negatives.shape[1] == 1 else batch.negatives
            of_nodes = {"src_index": batch.sources, "dst_pos_index": batch.destinations, "dst_neg_index": negatives}
            if batch.label_times is not None:
                of_nodes["seed_time"] = batch.label_times
        else:
            of_edges["edge_label_index"] = np.stack([batch.sources, batch.destinations])
            labels = _labels_of(inputs, numbers, len(batch.sources) - len(numbers))
            if labels is not None:
                of_edges["edge_label"] = labels
            if batch.label_times is not None:
                of_edges["edge_label_time"] = batch.label_times
        return LinkValues(
            of_edges={name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in of_edges.items()},
            of_nodes={name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in of_nodes.items()},
            link_of=batch.link_of,
        )

    def _arguments(self) -> dict[str, Any]:
        negatives = self._links.negatives
        return {**super()._arguments(), "neg_sampling": None if negatives is None else negatives.digest()}

    def _inputs_hash(self) -> str:
        return replace(self._links, negatives=None).digest()


def _with_labels_of(inputs: InputLinks, mode: str | None) -> InputLinks:
    """Return links with the labels that batches have: label 0 is that of binary negatives."""
    labels = inputs.labels
    if labels is None or mode is None:
        return inputs
    if mode == "triplet":
        raise ConfigError(
            "edge_label has no place in batches of triplets, which tell links from negatives themselves; "
            "leave edge_label out"
        )
    return replace(inputs, labels=labels + 1) if labels.min() == 0 else inputs


def _labels_of(inputs: InputLinks, numbers: NodeIds, num_negatives: int) -> Any:
    """Return labels of links by number, then those of negatives; None where there are neither."""
    if inputs.labels is not None:
        labels = inputs.labels[numbers]
    elif num_negatives:
        labels = np.ones(len(numbers), np.float32)
    else:
        return None
    return np.concatenate([labels, np.zeros((num_negatives, *labels.shape[1:]), labels.dtype)])
