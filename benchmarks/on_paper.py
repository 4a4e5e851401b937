"""What graphs too large for our disks would take, from rates that were measured on a smaller one.

    python benchmarks/on_paper.py

The graphs are papers100M, MAG240M, IGB-full and one of 10 billion edges; the machines a laptop, a workstation and a
rented one. Steps: import, an epoch of SAGE (three layers of 256, fan-out 15,10,5, batches of 1000), predictions of all
nodes. Each step takes the longer of what its cores and its disk need, since both work at once. docs/scale.md has what
they say of a graph that was measured, next to the measurement.

Columns: bytes of the dataset, and of the disk during the longest step; hours of each step; a price for the import, ten
epochs and the predictions, at the price an hour that is assumed for the machine.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from typing import NamedTuple

# Measured on two cores (docs/scale.md); seconds of one core.
SORT_SECONDS_PER_EDGE = 48e-9
INFLATED_BYTES_PER_SECOND = 84e6
BATCH_SECONDS = 1.07
PRODUCTS_PER_SECOND = 100e9
SUMMED_BYTES_PER_SECOND = 3e9

BATCH_SEEDS, BATCH_ROWS = 1000, 380_000
HIDDEN, NUM_LAYERS = 256, 3
# Of a batch's time at 128 columns: products of the first layer and the gathering of its rows.
FIRST_LAYER_SHARE = 0.65
# What each row's read costs besides its bytes, with many reads in flight.
READ_SECONDS = 10.5e-6
# Hits of the most accessed rows: half of all accesses go to a tenth of the rows.
HIT_EXPONENT = math.log(0.5) / math.log(0.1)
# What a process needs besides graph data.
PROCESS_BYTES = 1_000_000_000
NUM_EPOCHS = 10


class Graph(NamedTuple):
    """A graph to import. num_edges: as the source has them; all are stored in both directions.

    dim: float16 columns. is_packed: whether the source is deflated, as float32.
    """

    name: str
    num_nodes: float
    num_edges: float
    dim: int
    num_train: float
    is_packed: bool = False

    @property
    def row_bytes(self) -> int:
        return 2 * self.dim

    @property
    def table_bytes(self) -> float:
        return self.num_nodes * self.row_bytes

    @property
    def stored_edges(self) -> float:
        return 2 * self.num_edges

    @property
    def list_bytes(self) -> float:
        return 4 * self.stored_edges + 8 * self.num_nodes

    @property
    def dataset_bytes(self) -> float:
        return self.list_bytes + self.table_bytes

    @property
    def num_batches(self) -> float:
        return self.num_train / BATCH_SEEDS


class Machine(NamedTuple):
    """A machine. disk: sequential bytes a second. dollars: an hour, assumed."""

    name: str
    num_cores: int
    memory_bytes: float
    disk: float
    dollars: float


def import_seconds(graph: Graph, machine: Machine) -> float:
    """Unpack, where the source is packed, then sort edges and copy rows."""
    unpacked = 16 * graph.num_edges + 4 * graph.dim * graph.num_nodes
    unpacking = unpacked / INFLATED_BYTES_PER_SECOND if graph.is_packed else 0.0
    sorting = SORT_SECONDS_PER_EDGE * graph.stored_edges / machine.num_cores
    # Edges are spilled as 8 bytes and read again; the source is read once.
    moved = 2 * 8 * graph.stored_edges + graph.list_bytes + 16 * graph.num_edges + 2 * graph.table_bytes
    return max(unpacking + sorting, moved / machine.disk)


def epoch_seconds(graph: Graph, machine: Machine) -> float:
    """Compute batches while their rows are read: one by one, or packed ahead in passes over the table."""
    computing = BATCH_SECONDS * (1 - FIRST_LAYER_SHARE + FIRST_LAYER_SHARE * graph.dim / 128) / machine.num_cores
    memory = max(machine.memory_bytes - PROCESS_BYTES - min(graph.list_bytes, machine.memory_bytes / 2), 0.0)
    misses = BATCH_ROWS * (1 - math.pow(min(1.0, memory / graph.table_bytes), HIT_EXPONENT))
    reading = misses * (READ_SECONDS + graph.row_bytes / machine.disk)
    # Packed ahead: read in order, written, and read again in large pieces.
    packing = 3 * misses * graph.row_bytes / machine.disk
    return graph.num_batches * max(computing, min(reading, packing))


def predicting_seconds(graph: Graph, machine: Machine) -> float:
    """Compute every node's layers once: sums over lists, products, and a table of each layer on the disk."""
    widths = [graph.dim, *[HIDDEN] * NUM_LAYERS]
    products = sum(4 * first * second for first, second in pairwise(widths)) * graph.num_nodes
    summed = 4 * sum(widths[:-1]) * graph.stored_edges
    computing = (products / PRODUCTS_PER_SECOND + summed / SUMMED_BYTES_PER_SECOND) / machine.num_cores
    tables = 4 * HIDDEN * graph.num_nodes
    # A block of columns must fit in memory: so many passes over the lists.
    passes = max(1.0, tables / max(machine.memory_bytes - PROCESS_BYTES, 1.0))
    moved = graph.table_bytes + 2 * (NUM_LAYERS - 1) * tables + NUM_LAYERS * passes * graph.list_bytes
    return max(computing, moved / machine.disk)


GRAPHS = (
    Graph("papers100M / 8, measured", 13.9e6, 202e6, 128, 151e3, is_packed=True),
    Graph("papers100M", 111e6, 1.616e9, 128, 1.207e6, is_packed=True),
    Graph("MAG240M", 244e6, 1.728e9, 768, 1.112e6),
    Graph("IGB-full", 269e6, 3.996e9, 1024, 136e6),
    Graph("10 B edges", 500e6, 10e9, 128, 5e6),
)
# Owned ones at what they cost, over three years; the rented one has local disks.
MACHINES = (
    Machine("laptop, 2 cores, 16 GB", 2, 16e9, 3e9, 0.06),
    Machine("workstation, 16 cores, 64 GB", 16, 64e9, 6e9, 0.15),
    Machine("rented, 16 cores, 128 GB", 16, 128e9, 6e9, 1.40),
)
HEADS = ("graph", "machine", "dataset", "disk", "import", "epoch", "predict", "price")


def disk_bytes(graph: Graph) -> float:
    """Return the most that lies on the disk besides the source: edges being sorted, or tables of predictions."""
    return graph.dataset_bytes + max(8 * graph.stored_edges, 2 * 4 * HIDDEN * graph.num_nodes)


def line(graph: Graph, machine: Machine) -> list[str]:
    """Return the cells of a graph on a machine."""
    steps = [step(graph, machine) for step in (import_seconds, epoch_seconds, predicting_seconds)]
    dollars = machine.dollars * (steps[0] + NUM_EPOCHS * steps[1] + steps[2]) / 3600
    sizes = [f"{num_bytes / 1e9:,.0f} GB" for num_bytes in (graph.dataset_bytes, disk_bytes(graph))]
    return [graph.name, machine.name, *sizes, *(f"{seconds / 3600:,.2f} h" for seconds in steps), f"${dollars:,.2f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    rows = [line(graph, machine) for graph in GRAPHS for machine in MACHINES]
    for cells in (HEADS, ["---"] * len(HEADS), *rows):
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
