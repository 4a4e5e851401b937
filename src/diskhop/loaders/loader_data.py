"""The graph of a loader, with the attributes of PyG's Data: loader.data.num_nodes, loader.data.y, del loader.data.x.

Scripts for PyG change the graph of a loader: they remove what a loop does not need, and add values of nodes. What is
removed is no longer read; what is added is in every batch, for the batch's nodes or edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import MASKS, SPLITS
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.encoding import decode_rows
from diskhop.dataset.files import map_array
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.pipeline.batch_values import E_ID
from diskhop.pipeline.columns import tensor_of
from diskhop.protocols import NodeRows

_OF_DATASETS = frozenset(("path", "manifest", "hash", "made_features", "clusters", "nodes", "edges"))


def is_of_dataset(name: str) -> bool:
    """Whether an attribute is one of Dataset, which its copies set."""
    return name in _OF_DATASETS or name.startswith("_")


class LoaderData(Dataset):
    """A dataset as loaders show it. Values of nodes are read by name, in the order of node_ids(); they take memory.

    removed: names of the attributes that batches do not have any more.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.__dict__.update(dataset.__dict__)
        self.__dict__.update(removed=set(), _added={})

    removed: set[str]
    _added: dict[str, Any]

    @property
    def num_node_features(self) -> int:
        """Values of x per node, as PyG counts them."""
        x = self.only_nodes.attributes.get("x")
        return 0 if x is None or "x" in self.removed else 1 if not x.shape else x.shape[-1]

    @property
    def num_features(self) -> int:
        """See num_node_features."""
        return self.num_node_features

    @property
    def num_edge_features(self) -> int:
        """Values of edge_attr per edge, as PyG counts them."""
        attr = self.only_edges.attributes.get("edge_attr")
        return 0 if attr is None or "edge_attr" in self.removed else 1 if not attr.shape else attr.shape[-1]

    def keys(self) -> list[str]:
        """Names of everything that batches have of the graph."""
        return [*self._names(), *self._added]

    def __getitem__(self, name: str) -> Any:
        """Return an attribute by name, as PyG's Data does."""
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in self.keys()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_added" not in self.__dict__:
            raise AttributeError(name)
        if name in self._added:
            return self._added[name]
        info = None if name in self.removed else self.only_nodes.attributes.get(name)
        if info is None:
            raise AttributeError(
                f"loader.data has no '{name}' to read; it has {', '.join(self.keys())}, and those of nodes can be read"
            )
        return self.read(name, info)

    def __setattr__(self, name: str, value: Any) -> None:
        if is_of_dataset(name):
            self.__dict__[name] = value
        elif name == "num_nodes":
            if value != self.num_nodes:
                raise ConfigError(
                    f"num_nodes of a loader's data is {self.num_nodes} and cannot become {value}; remove the assignment"
                )
        elif hasattr(Dataset, name):
            raise ConfigError(f"'{name}' of a loader's data cannot be set; choose another name")
        else:
            self._added[name] = value

    def __delattr__(self, name: str) -> None:
        if name in self._added:
            del self._added[name]
        elif name in self._names() and name != "edge_index":
            self.removed.add(name)
        else:
            raise AttributeError(f"loader.data has no '{name}' to delete; it has {', '.join(self.keys())}")

    def is_set(self, name: str) -> bool:
        """Whether users gave values of their own by this name."""
        return name in self._added

    def add_to(self, batch: Any, id_map: IdMap, rows: NodeRows, e_id: torch.Tensor | None) -> None:
        """Add the values that users gave to a batch: of its nodes, of its edges, or of the graph."""
        for name, value in self._added.items():
            kind = self._kind_of(name, value)
            if kind == "nodes":
                positions = id_map.positions()
                batch[name] = _select(value, rows if positions is None else positions[rows])
            elif kind == "edges" and e_id is not None:
                batch[name] = _select(value, e_id.numpy())
            else:
                batch[name] = value

    def names_per_edge(self, *, has_numbers: bool) -> set[str]:
        """Names of what batches have per edge, but for edge_index. has_numbers: whether they have e_id."""
        stored = {*self.only_edges.attributes, E_ID} - {"edge_index", *self._added}
        added = (name for name, value in self._added.items() if self._kind_of(name, value) == "edges")
        return stored | {*added} if has_numbers else stored

    def _kind_of(self, name: str, value: Any) -> str:
        """Return what an added value has rows of: 'nodes', 'edges' or 'graph'."""
        num_rows = len(value) if isinstance(value, torch.Tensor | np.ndarray) and value.ndim else -1
        if num_rows == self.num_nodes and not (num_rows == self.num_edges and "edge" in name):
            return "nodes"
        return "edges" if num_rows == self.num_edges else "graph"

    def _names(self) -> Iterator[str]:
        edges = self.only_edges
        numbers = [E_ID] if edges.edge_id_column() is not None and E_ID not in edges.attributes else []
        for name in (*self.only_nodes.attributes, "edge_index", *edges.attributes, *numbers):
            if name not in self.removed:
                yield name

    def read(self, name: str, info: AttributeInfo) -> torch.Tensor:
        """Read an attribute of the nodes, in the order of node_ids()."""
        nodes = self.only_nodes
        if info.stored_as == SPLITS:
            values: NDArray[Any] = np.zeros((self.num_nodes, *info.shape), np.bool_)
            for number in range(self.num_splits):
                rows = nodes.split_rows(MASKS[name], number)
                if rows is not None:
                    (values[:, number] if info.shape else values)[rows] = True
        elif info.stored_as == "features":
            table = self.feature_table()
            assert table is not None
            raw = map_array(table.path, np.uint8, table.num_rows * table.row_stride).reshape(table.num_rows, -1)
            values = decode_rows(raw, self.feature_dtype, self.feature_dim)
            if info.dtype == "bfloat16":
                return torch.from_numpy(values[self.id_map().all_rows()]).to(torch.bfloat16)
        else:
            column = nodes.column(name)
            assert column is not None
            values = nodes.read(column)
        return tensor_of(self.id_map().in_source_order(np.array(values)), info)


def _select(values: Any, places: NDArray[np.int64]) -> torch.Tensor:
    """Return rows of an array or tensor."""
    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(places).to(values.device)]
    return torch.from_numpy(np.ascontiguousarray(values[places]))
