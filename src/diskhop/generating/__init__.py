"""Generates graphs of any size to disk, with the same bytes for any number of threads and any budget.

A *kind* is how edges are drawn: `kronecker` (R-MAT: a power law, as in web and citation graphs), `uniform`, or `sbm` (a
stochastic block model: planted classes). A `typed` graph has several types of nodes and edges. They share one way to
make features, labels and splits; every edge, class and value is a pure function of the seed and its number, so that no
state grows with the graph. `expand` multiplies a graph that is there, with all that its nodes have.
"""

from diskhop.generating.config import KINDS, GraphConfig
from diskhop.generating.expand import expand_graph, expanded_bytes
from diskhop.generating.expand_config import ExpandConfig
from diskhop.generating.graph import generate_graph, result_bytes
from diskhop.generating.nodes import features_alone_accuracy
from diskhop.generating.typed import generate_typed_graph, typed_result_bytes
from diskhop.generating.typed_config import SHAPES, TypedConfig

__all__ = [
    "KINDS",
    "SHAPES",
    "ExpandConfig",
    "GraphConfig",
    "TypedConfig",
    "expand_graph",
    "expanded_bytes",
    "features_alone_accuracy",
    "generate_graph",
    "generate_typed_graph",
    "result_bytes",
    "typed_result_bytes",
]
