"""The edges of one type of a dataset: in-neighbour lists on disk, and columns in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.adj_info import AdjInfo
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import StoredColumn, edge_attributes, stored_column
from diskhop.dataset.files import StoredArrays, map_array
from diskhop.dataset.manifest import EdgeType
from diskhop.dataset.node_set import NodeSet
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import FormatError
from diskhop.io.locks import SharedLock
from diskhop.protocols import NodeRows, SourceIds

# A graph of which one edge in a hundred has no opposite is recognised in 19 of 20 cases.
_SAMPLED_EDGES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """Numbers of edges or nodes on disk that a sampler draws by.

    use: what they are to the sampler, 'weights' or 'times'.
    name: name of the column, as the user gave it.
    of: 'edges', in the order of `indices`, or 'nodes'.
    path: file of the numbers (num_values).
    dtype: dtype of the numbers.
    num_values: number of edges or nodes.
    edge_ids: the source's number of each edge; None if unknown.
    lock: keeps `diskhop clean` from a derived folder with the file as long as it is held.
    """

    use: str
    name: str
    of: str
    path: Path
    dtype: np.dtype[np.generic]
    num_values: int
    edge_ids: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    lock: SharedLock | None = field(default=None, compare=False, repr=False)

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self.dtype.itemsize * self.num_values

    @property
    def label(self) -> str:
        """Name of its memory in a budget, as 'edge weights'."""
        return f"{self.of[:-1]} {self.use}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    """Clusters of nodes on disk, outside of the dataset.

    nodes_path: file of int64 (nodes), sorted by cluster.
    starts_path: file of int64 (num_clusters + 1), where the nodes of each cluster begin.
    num_clusters: number of clusters.
    inner_share: share of the edges that are within clusters.
    lock: keeps `diskhop clean` from the folder as long as it is held.
    """

    nodes_path: Path
    starts_path: Path
    num_clusters: int
    inner_share: float
    lock: SharedLock = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseEdges:
    """Which edges of the dataset the edges of reverse types are.

    path: file of positions among the edges of the type that is reversed; those of all reverse types in their order,
        each in the order of its own lists.
    dtype: dtype of the positions.
    """

    path: Path
    dtype: np.dtype[np.generic]

    def positions(self, types: TypeMap, edge_type: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return positions in the dataset of edges of a reverse type (number), given positions within the type."""
        counts = [edges.num_edges if edges.is_reverse else 0 for edges in types.edges]
        stored = map_array(self.path, self.dtype, sum(counts))
        found: NDArray[np.int64] = stored[positions + sum(counts[:edge_type])].astype(np.int64)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFiles:
    """In-neighbour lists on disk, sorted within each list.

    indptr_path: file of int64 (num_lists + 1), the start of each list.
    indices_path: file of source ids (num_edges).
    index_dtype: dtype of the source ids.
    num_nodes: number of nodes; without types each has one list.
    num_edges: number of edges.
    columns: weights and times that a sampler needs in addition.
    clusters: clusters of the nodes; None for none.
    types: types of merged lists (dataset/merged.py); None for a graph without.
    reverse: edges of the dataset that those of reverse types are; None without reverse types.
    lock: keeps `diskhop clean` from a derived folder with the lists as long as it is held.
    """

    indptr_path: Path
    indices_path: Path
    index_dtype: np.dtype[np.generic]
    num_nodes: int
    num_edges: int
    columns: tuple[ColumnFile, ...] = ()
    clusters: ClusterFiles | None = None
    types: TypeMap | None = None
    reverse: ReverseEdges | None = None
    lock: SharedLock | None = field(default=None, compare=False, repr=False)

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return self.num_nodes if self.types is None else self.types.num_lists


def destinations_of(indptr: NDArray[Any], first: int, stop: int, dtype: Any = np.int64) -> NDArray[Any]:
    """Return the destination of each edge from number `first` to before `stop`, in the order of the lists (edges)."""
    begin = int(np.searchsorted(indptr, first, side="right")) - 1
    end = int(np.searchsorted(indptr, stop, side="left"))
    lengths = np.diff(np.clip(indptr[begin : end + 1], first, stop))
    return np.repeat(np.arange(begin, end, dtype=dtype), lengths)


class EdgeSet:
    """Edges of one type."""

    def __init__(
        self, arrays: StoredArrays, name: str, info: EdgeType, sources: NodeSet, destinations: NodeSet
    ) -> None:
        self._arrays = arrays
        self._folder = arrays.path / "edges" / name
        self._info = info
        self.name = name
        self.end_nodes = sources, destinations

    @property
    def source(self) -> str:
        """Type of the source nodes."""
        return self._info.source

    @property
    def destination(self) -> str:
        """Type of the destination nodes, which have in-neighbour lists."""
        return self._info.destination

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._info.count

    @property
    def adj_t(self) -> AdjInfo | None:
        """The sparse matrix that batches have them as; None: they are an edge_index."""
        return self._info.adj_t

    @property
    def topology(self) -> TopologyFiles:
        """Location of the in-neighbour lists."""
        return TopologyFiles(
            indptr_path=self._folder / "indptr.bin",
            indices_path=self._folder / "indices.bin",
            index_dtype=np.dtype(self._info.index_dtype),
            num_nodes=self.end_nodes[1].num_nodes,
            num_edges=self.num_edges,
        )

    def neighbors(self, node: int) -> SourceIds:
        """Return the source ids of the nodes with an edge to a node, given its source id. Reads its list alone.

        A node with several edges is there as often. Raises ConfigError for an id that no node has.
        """
        sources, destinations = (nodes.lookup() for nodes in self.end_nodes)
        row = int(destinations.rows(SourceIds(np.array([node], np.int64)))[0])
        files = self.topology
        indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        indices = map_array(files.indices_path, files.index_dtype, files.num_edges)
        return sources.ids(NodeRows(indices[indptr[row] : indptr[row + 1]].astype(np.int64)))

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of edges to each destination node, in the order of its node_ids(); read at each access."""
        files = self.topology
        by_row: NDArray[np.int64] = np.diff(map_array(files.indptr_path, np.int64, files.num_nodes + 1))
        return self.end_nodes[1].lookup().in_source_order(by_row)

    def reciprocal_share(self) -> float | None:
        """Return the fraction of edges v -> u that have an opposite u -> v, from a sample of edges.

        The sample is every n-th edge, so equal edges give equal values, and a graph with all opposites gives 1. None
        without edges, and between two node types.
        """
        if self.num_edges == 0 or self.source != self.destination:
            return None
        files = self.topology
        indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        indices = map_array(files.indices_path, files.index_dtype, files.num_edges)
        positions = np.arange(0, self.num_edges, -(-self.num_edges // _SAMPLED_EDGES))
        targets = np.searchsorted(indptr, positions, side="right") - 1
        sources = indices[positions]
        if int(sources.max()) >= files.num_nodes:
            raise FormatError(
                f"{files.indices_path}: is damaged; 'diskhop verify' names the blocks: import the graph again"
            )
        num_opposites = 0
        # As numbers of the array's own type: NumPy would convert a copy of the whole list otherwise.
        for source, target in zip(sources.tolist(), targets.astype(files.index_dtype), strict=True):
            neighbors = indices[indptr[source] : indptr[source + 1]]
            place = np.searchsorted(neighbors, target)
            num_opposites += bool(place < len(neighbors) and neighbors[place] == target)
        return num_opposites / len(positions)

    def edge_ids(self) -> NDArray[Any] | None:
        """Map the source's number of each edge, uint32 or int64 in the order of `indices`; None if not kept.

        Numbers count the edges of the source from 0: columns of edge_index, rows of a table, lines of a text.
        """
        dtype = self._info.edge_id_dtype
        return map_array(self._folder / "edge_ids.bin", np.dtype(dtype), self.num_edges) if dtype else None

    def edge_weights(self) -> NDArray[np.float32] | None:
        """Map the weights, float32 in the order of `indices`; None without weights."""
        return map_array(self._folder / "weights.bin", np.float32, self.num_edges) if self._info.weights else None

    def edge_times(self) -> NDArray[np.int64] | None:
        """Map the times, int64 in the order of `indices`; None without times."""
        return map_array(self._folder / "times.bin", np.int64, self.num_edges) if self._info.times else None

    @property
    def attributes(self) -> Mapping[str, AttributeInfo]:
        """Everything that the edges have, by the name that it has in the source (attribute_set.py)."""
        return edge_attributes(self._info)

    def column(self, name: str) -> StoredColumn | None:
        """Return the place of an attribute, in the order of `indices`; None without one of that name."""
        info = self.attributes.get(name)
        if info is None:
            return None
        return self._column(name, info, np.dtype("<f4" if info.stored_as == "weights" else "<i8"))

    def weight_column(self) -> StoredColumn | None:
        """Return the place of the weights, see edge_weights(); None without weights."""
        if not self._info.weights:
            return None
        return self._column("edge_weight", AttributeInfo(dtype="float32", stored_as="weights"), np.dtype("<f4"))

    def edge_id_column(self) -> StoredColumn | None:
        """Return the place of the source's numbers of edges, see edge_ids(); None if they are not kept."""
        dtype = self._info.edge_id_dtype
        if not dtype:
            return None
        return self._column("e_id", AttributeInfo(dtype="int64", stored_as="edge_ids"), np.dtype(dtype))

    def attribute(self, name: str) -> NDArray[Any] | None:
        """Map an attribute in the order of `indices`, (edges, *shape); None without one of that name.

        Values of bfloat16 are bits, uint16. Weights and times have the dtype in which they are stored.
        """
        column = self.column(name)
        return None if column is None else column.map()

    def read(self, column: StoredColumn) -> NDArray[Any]:
        """Read a column of these edges, checked against its checksum."""
        return column.shaped(self._arrays.read(column.relative, np.uint8))

    @property
    def ends(self) -> tuple[str, str, str]:
        """The edge type as PyG names it: source, relation, destination.

        OGB's names have three underscores between them, others two.
        """
        for between in ("___", "__"):
            relation = self.name.removeprefix(f"{self.source}{between}").removesuffix(f"{between}{self.destination}")
            if relation and self.name == between.join((self.source, relation, self.destination)):
                return self.source, relation, self.destination
        return self.source, self.name, self.destination

    def _column(self, name: str, info: AttributeInfo, dtype: np.dtype[Any]) -> StoredColumn:
        return stored_column(self._arrays.path, f"edges/{self.name}", name, info, self.num_edges, dtype)
