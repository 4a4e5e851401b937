"""Made-up graphs of any size, streamed to disk, the same bytes at any number of threads and with any budget.

A *kind* is how edges are drawn: `kronecker` (R-MAT: a power law, as web and citation graphs have), `uniform`, or `sbm`
(a stochastic block model: planted classes). Features, labels and splits are made alike for all of them. Every edge,
class and value is a pure function of the seed and of its own number; nothing is kept that grows with the graph.
"""

from diskhop.generating.config import KINDS, GraphConfig
from diskhop.generating.graph import generate_graph, result_bytes
from diskhop.generating.nodes import features_alone_accuracy

__all__ = ["KINDS", "GraphConfig", "features_alone_accuracy", "generate_graph", "result_bytes"]
