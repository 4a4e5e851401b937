"""The graph of a loader that has several types of nodes or edges, with the attributes of PyG's HeteroData."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.budget import Budget
from diskhop.config.options import AUTO, require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.merge import MergeTools
from diskhop.dataset.type_map import EdgeEnds, TypeMap
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.io.engine import choose_engine, open_engine
from diskhop.loaders.loader_data import LoaderData, is_of_dataset
from diskhop.protocols import NodeRows, SamplerSpec
from diskhop.sampling.samplers import merged_graph


class TypedLoaderData(LoaderData):
    """A dataset with types as loaders show it: data['paper'].y reads an attribute of nodes, which takes memory.

    Its attributes stay: scripts remove them from the HeteroData that they import.
    """

    @property
    def type_map(self) -> TypeMap:
        """The types of the graph."""
        assert self.types is not None
        return self.types

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return list(self.type_map.node_types)

    @property
    def edge_types(self) -> list[EdgeEnds]:
        """Edge types as PyG names them."""
        return [edges.ends for edges in self.type_map.edges]

    def metadata(self) -> tuple[list[str], list[EdgeEnds]]:
        """Return the node types and the edge types, as PyG's to_hetero() takes them."""
        return self.node_types, self.edge_types

    def __getitem__(self, name: str) -> Any:
        """Return the nodes of a type, whose attributes are read by name."""
        require_known("node type", name, self.node_types)
        return LoaderData(self.of_node_type(name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_added" not in self.__dict__:
            raise AttributeError(name)
        raise AttributeError(f"loader.data has no '{name}', but its types may: loader.data['{self.first}'].{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not is_of_dataset(name):
            raise ConfigError(f"'{name}' of a graph with types cannot be set in loader.data; set it before the import")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise ConfigError(f"'{name}' of typed graphs cannot be deleted in loader.data; delete it before the import")

    @property
    def first(self) -> str:
        """Name of the first node type."""
        return self.node_types[0]

    def id_maps(self) -> dict[str, IdMap]:
        """Read the ids of all types."""
        return {name: nodes.id_map() for name, nodes in self.nodes.items()}

    def to_read(self) -> Dataset:
        """Return the graph without feature tables that batches do not have, because x is another attribute."""
        without = {}
        for name, nodes in self.nodes.items():
            x = nodes.attributes.get("x")
            without[name] = nodes if x is None or x.stored_as == "features" else nodes.without_features()
        return self.with_nodes(without)


def merge_types(dataset: Dataset, sampler: SamplerSpec, budget: Budget, scratch: Any, engine: str | None) -> Dataset:
    """Return a dataset as one graph of all its types. Its merged lists are made if they are not there yet.

    sampler: draws by weights or times, which are merged, too.
    budget: for making them. scratch: folder for derived files; None: that of the dataset.
    """
    name, _ = choose_engine(engine or AUTO)
    tools = MergeTools(scratch=scratch_path(dataset.path, scratch), engine=open_engine(name).engine, budget=budget)
    return merged_graph(dataset, [sampler], tools)


def find_seed_type(dataset: TypedLoaderData, nodes: Any) -> str:
    """Return the node type of seed nodes, which are given as 'type', ('type', nodes), or as a part of its split.

    Raises ConfigError if they tell no type.
    """
    known = dataset.node_types
    named = nodes[0] if isinstance(nodes, tuple | list) and len(nodes) == 2 else nodes
    if isinstance(named, str) and named in known:
        return named
    shown = ", ".join(known)
    if isinstance(nodes, str):
        having = [name for name in known if _has_split(dataset, name, nodes)]
        if len(having) == 1:
            return having[0]
        if having:
            raise ConfigError(
                f"input_nodes '{nodes}' is a split of {', '.join(having)}; pass ('{having[0]}', '{nodes}') or another"
            )
        raise ConfigError(
            f"input_nodes '{nodes}' is neither a node type nor a split of {dataset.path}; the node types are {shown}"
        )
    if isinstance(named, str):
        raise ConfigError(
            f"input_nodes are of the node type '{named}', and the node types of {dataset.path} are {shown}; "
            f"pass ('{known[0]}', ids)"
        )
    raise ConfigError(
        f"input_nodes must name their node type, because {dataset.path} has several, {shown}; pass ('{known[0]}', ids)"
    )


def _has_split(dataset: Dataset, node_type: str, part: str) -> bool:
    return part in ("train", "valid", "test") and dataset.nodes[node_type].split_rows(part, 0) is not None


def merged_rows(types: TypeMap, node_type: str, rows: NodeRows) -> NodeRows:
    """Return merged rows of rows of one type."""
    first_row = types.first_row(node_type)
    return NodeRows(rows + first_row) if first_row else rows


def bytes_of_ids(id_map: IdMap | Mapping[str, IdMap]) -> int:
    """Bytes of memory of ids, of one type or of several."""
    return id_map.num_bytes if isinstance(id_map, IdMap) else sum(each.num_bytes for each in id_map.values())
