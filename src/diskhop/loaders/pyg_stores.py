"""A dataset as PyG's own loaders take it: a FeatureStore, a GraphStore and a BaseSampler, within a memory budget.

stores = diskhop.PygStores(dataset, num_neighbors=[10, 10], batch_size=1000, memory="2GB")
loader = NodeLoader(stores.data, stores.sampler, input_nodes=torch.arange(1000), batch_size=1000)
"""

from __future__ import annotations

from os import PathLike
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr

from diskhop.config.options import check_arguments, check_options
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.errors import ConfigError
from diskhop.loaders.arguments import edge_types_of, resolve_sampler
from diskhop.loaders.checks import path_of, require_texts, size_of
from diskhop.loaders.opened import graph_of
from diskhop.loaders.pyg_graph import PygGraph
from diskhop.loaders.pyg_sampler import DiskSampler
from diskhop.loaders.ways import resolve_ways
from diskhop.protocols import NodeRows
from diskhop.system.memory import default_memory_bytes


class PygStores:
    """A dataset behind PyG's interfaces: `data` and `sampler` go to NodeLoader, LinkLoader or LightningNodeData.

    Nodes and edges have the ids of the source. Batches have every attribute of nodes; PyG serves none of edges from
    stores, so that users look them up by `e_id`. Each process opens the dataset when it first uses it; the workers of a
    loader share the memory of one.

    data: (FeatureStore, GraphStore).
    sampler: the BaseSampler. Draws are keyed by the seed and the number of the batch, as those of NeighborLoader are.
        With workers, also by the seed of the pass, which torch draws.

    dataset: a Dataset or its path.
    num_neighbors: neighbours drawn per hop, -1 for all; or a SamplerSpec.
    replace, subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr: see NeighborLoader. Links and their
        negatives are as in LinkNeighborLoader.
    batch_size: seed nodes per batch that memory is divided for. Larger batches take what is left.
    batches_per_epoch: number of batches after which draws are those of the next epoch, without workers; default: none.
    memory, store, engine, threads, cache, pinned, disk, scratch, seed: see NeighborLoader.

    Raises ConfigError, and BudgetError with the smallest memory that works, at first use.

    >>> import torch
    >>> from torch_geometric.loader import NodeLoader
    >>> with diskhop.PygStores("my-graph", [10, 5], batch_size=64, memory="200MB") as stores:
    ...     loader = NodeLoader(stores.data, stores.sampler, input_nodes=torch.arange(100), batch_size=64)
    ...     batch = next(iter(loader))
    >>> batch.x.shape[1]
    16
    """

    def __init__(
        self,
        dataset: Dataset | PathLike[str] | str,
        num_neighbors: Any,
        *,
        batch_size: int = 1000,
        batches_per_epoch: int = 0,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        memory: int | str | None = None,
        store: str | None = None,
        cache: int | str | None = None,
        pinned: str | None = None,
        disk: int | str | None = None,
        scratch: PathLike[str] | str | None = None,
        engine: str | None = None,
        threads: int | None = None,
        seed: int = 0,
    ) -> None:
        check_options({"batch_size": batch_size, "seed": seed}, "PygStores", (SampledConfig,))
        check_arguments("PygStores", SampledConfig, threads=threads, max_batches=batches_per_epoch)
        require_texts(store=store, engine=engine, pinned=pinned)
        ways = resolve_ways(
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
        )
        data = graph_of(dataset, None, 0)
        memory_bytes = size_of("memory", memory)
        self._graph = PygGraph(
            data,
            resolve_sampler(num_neighbors, ways, edge_types_of(data)),
            seed=int(seed),
            memory_bytes=default_memory_bytes() if memory_bytes is None else memory_bytes,
            batch_size=int(batch_size),
            batches_per_epoch=int(batches_per_epoch),
            choices={
                "cache_bytes": size_of("cache", cache),
                "disk_bytes": size_of("disk", disk),
                "scratch": path_of("scratch", scratch),
                "store": store,
                "engine": engine,
                "threads": threads,
                "pinned": pinned,
            },
        )
        self.data = DiskFeatures(self._graph), DiskEdges(self._graph)
        self.sampler = DiskSampler(self._graph)

    def close(self) -> None:
        """Return the memory of this process and close its files; leaving a `with` block does it too."""
        self._graph.close()

    def __enter__(self) -> PygStores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DiskFeatures(FeatureStore):  # type: ignore[misc]
    """Attributes of the nodes of a dataset. All that PyG asks for at once are fetched together."""

    def __init__(self, graph: PygGraph) -> None:
        super().__init__()
        self.__dict__["_graph"] = graph

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return the attributes of nodes, without those that were removed."""
        data = self._graph.data
        names = [name for name in data.only_nodes.attributes if name not in data.removed]
        return [TensorAttr(group_name=self._graph.node_type, attr_name=name) for name in names]

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[torch.Tensor]:
        for attr in attrs:
            self._require(attr)
        found: list[torch.Tensor | None] = [None] * len(attrs)
        left = list(range(len(attrs)))
        while left:
            # PyG asks for all attributes of the same nodes: they share an index.
            index = attrs[left[0]].index
            same = [place for place in left if attrs[place].index is index]
            values = self._values([attrs[place].attr_name for place in same], index)
            for place in same:
                found[place] = values[attrs[place].attr_name]
            left = [place for place in left if place not in same]
        return [values for values in found if values is not None]

    def _values(self, names: list[str], index: Any) -> dict[str, torch.Tensor]:
        if index is None:
            return {name: getattr(self._graph.data, name) for name in names}
        ids = _ids_of(index, self._graph.data)
        values = self._graph.fetch(names, ids)
        return {name: each[0] for name, each in values.items()} if isinstance(index, int) else values

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        self._require(attr)
        info = self._graph.data.only_nodes.attributes[attr.attr_name]
        return self._graph.data.num_nodes, *info.shape

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        self._require(attr)
        self._graph.data.removed.add(attr.attr_name)
        return True

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise ConfigError(f"'{attr.attr_name}' cannot be put into a dataset on disk; import the graph with it")

    def _require(self, attr: TensorAttr) -> None:
        known = {each.attr_name for each in self.get_all_tensor_attrs()}
        if attr.attr_name not in known or attr.group_name != self._graph.node_type:
            listed = ", ".join(sorted(known))
            owner = attr.group_name or "the nodes"
            raise KeyError(f"no attribute '{attr.attr_name}' of {owner}; {self._graph.data.path} has {listed}")


class DiskEdges(GraphStore):  # type: ignore[misc]
    """The edges of a dataset, as pairs of ids of the source in memory. The sampler of PygStores does not need them."""

    def __init__(self, graph: PygGraph) -> None:
        super().__init__()
        self.__dict__["_graph"] = graph

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return the only edge type, with its layout and the numbers of nodes."""
        num_ids = self._graph.data.num_nodes
        if self._graph.data.has_original_ids:
            num_ids = int(self._graph.data.node_ids().max()) + 1
        return [EdgeAttr(edge_type=self._graph.edge_type, layout="coo", size=(num_ids, num_ids))]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        (known,) = self.get_all_edge_attrs()
        if edge_attr.edge_type != known.edge_type or edge_attr.layout != known.layout:
            return None
        files, ids = self._graph.data.topology, self._graph.data.id_map()
        indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        sources = map_array(files.indices_path, files.index_dtype, files.num_edges).astype(np.int64)
        destinations = np.repeat(np.arange(files.num_nodes), np.diff(indptr))
        pair = (torch.from_numpy(np.array(ids.ids(NodeRows(each)))) for each in (sources, destinations))
        return next(pair), next(pair)

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise ConfigError("edges cannot be put into a dataset on disk; import the graph with them")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise ConfigError("edges cannot be removed from a dataset on disk; import the graph without them")


def _ids_of(index: Any, data: Dataset) -> NDArray[np.int64]:
    """Return the ids of an index as PyG gives it: a tensor, an array, a slice of all nodes, or a number."""
    if isinstance(index, slice):
        sliced: NDArray[np.int64] = data.node_ids()[index]
        return sliced
    if isinstance(index, int | np.integer):
        return np.array([index], np.int64)
    ids = index.numpy() if isinstance(index, torch.Tensor) else np.asarray(index)
    if ids.dtype == np.bool_:
        ids = data.node_ids()[ids]
    return ids.astype(np.int64, copy=False)
