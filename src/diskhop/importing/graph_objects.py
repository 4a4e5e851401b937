"""Imports graphs of SciPy and NetworkX: their arrays and attributes are given to the importer of PyG's objects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.pyg.source import from_pyg


def from_scipy(
    adjacency: Any,
    path: str | Path,
    *,
    x: Any = None,
    y: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    weighted: bool | None = None,
    **options: Any,
) -> Dataset:
    """Make a dataset at `path` from a sparse matrix or array of SciPy, and open it.

    adjacency: (nodes, nodes); an entry in row i and column j is an edge from i to j. Its pairs of ids are copied, 8
        bytes per edge.
    x: features (nodes, dim), an array or tensor, read in place.
    y: classes (nodes), tasks or values, as in from_pyg().
    train_mask, val_mask, test_mask: (nodes), or (nodes, splits).
    weighted: whether entries are weights of edges; default: unless all are 1.
    options: name, memory, threads, dtype, undirected and the others of from_pyg().

    Raises SourceError for a matrix that is not square, or for data that breaks a rule; nothing is then left at path.

    >>> import numpy, scipy.sparse
    >>> adjacency = scipy.sparse.csr_array(numpy.array([[0, 1], [1, 0]]))
    >>> diskhop.from_scipy(adjacency, "matrix", x=numpy.eye(2, dtype="float32"), memory="200MB").num_edges
    2
    """
    if not hasattr(adjacency, "tocoo"):
        raise ConfigError(
            f"adjacency must be a sparse matrix of SciPy, got {type(adjacency).__name__}; pass "
            "scipy.sparse.coo_array((weights, (sources, destinations)), shape=(nodes, nodes))"
        )
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise SourceError(f"adjacency: has shape {adjacency.shape}; it must be (nodes, nodes)")
    entries = adjacency.tocoo()
    if weighted is None:
        weighted = bool((entries.data != 1).any())
    values: dict[str, Any] = {
        "edge_index": np.stack([entries.row, entries.col]),
        "edge_weight": entries.data if weighted else None,
        "num_nodes": adjacency.shape[0],
        "x": x,
        "y": y,
        "train_mask": train_mask,
        "val_mask": val_mask,
        "test_mask": test_mask,
    }
    return from_pyg(SimpleNamespace(stores=[values]), path, **options)


def from_networkx(graph: Any, path: str | Path, **options: Any) -> Dataset:
    """Make a dataset at `path` from a graph of NetworkX, and open it.

    graph: directed or not, with parallel edges or not; node i is list(graph)[i]. An undirected edge becomes two.
        Attributes that all nodes, or all edges, have as numbers or arrays keep their names, those of edges with 'edge_'
        in front; x, y, train_mask and the others of from_pyg() are trained with, and `weight` of edges.
    options: name, memory, threads, dtype and the others of from_pyg().

    Raises SourceError for an attribute that only some nodes or edges have, or that breaks a rule.

    >>> import networkx
    >>> diskhop.from_networkx(networkx.path_graph(5), "path", memory="200MB").num_edges
    8
    """
    if not hasattr(graph, "nodes") or not hasattr(graph, "number_of_edges"):
        raise ConfigError(f"graph must be a graph of NetworkX, got {type(graph).__name__}; pass networkx.Graph(edges)")
    number_of = {node: number for number, node in enumerate(graph)}
    pairs = np.fromiter(
        (number_of[end] for source, destination, *_ in graph.edges() for end in (source, destination)),
        np.int64,
        2 * graph.number_of_edges(),
    ).reshape(-1, 2)
    of_edges = _attributes([facts for *_, facts in graph.edges(data=True)], "edge")
    if not graph.is_directed():
        is_no_loop = pairs[:, 0] != pairs[:, 1]
        of_edges = {name: np.concatenate([values, values[is_no_loop]]) for name, values in of_edges.items()}
        pairs = np.concatenate([pairs, pairs[is_no_loop, ::-1]])
    values: dict[str, Any] = _attributes([facts for _, facts in graph.nodes(data=True)], "node")
    values |= {name if name.startswith("edge_") else f"edge_{name}": each for name, each in of_edges.items()}
    values |= {"edge_index": np.ascontiguousarray(pairs.T), "num_nodes": len(number_of)}
    return from_pyg(SimpleNamespace(stores=[values]), path, **options)


def _attributes(facts: list[dict[str, Any]], what: str) -> dict[str, NDArray[Any]]:
    """Return the attributes of nodes or edges as arrays with a row for each."""
    names = dict.fromkeys(name for each in facts for name in each)
    found = {}
    for name in names:
        missing = next((number for number, each in enumerate(facts) if name not in each), None)
        if missing is not None:
            raise SourceError(
                f"graph: {what} {missing} has no attribute '{name}', which others have; give it to all, or to none"
            )
        try:
            found[name] = np.array([each[name] for each in facts])
        except ValueError:
            raise SourceError(f"graph: attribute '{name}' differs in shape between {what}s; make it the same") from None
    return found
