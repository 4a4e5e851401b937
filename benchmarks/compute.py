"""Seconds of a training step, everything in memory: forward, backward and Adam on batches that are already sampled.

Claims (issue 3): SAGE 3 x 256 with 128 float32 features, batch 1000, fan-out 10,10,10 on R-MAT .45/.22/.22/.11 with 2
M nodes and 30 M edges takes at most .10 s per batch in float32 and .07 s with bfloat16 linear layers. For comparison:
its matrix products alone, PyG's layers trimmed to the nodes each needs, and the same network over torch's embedding
bag. GCN for the record; compute_gat.py measures GAT. Each side runs in its own process, over the same batches.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import graphs
from diskhop.protocols import SampledBatch
from steps import CLASSES, DIM, Step, run_steps

FANOUT = (10, 10, 10)
HIDDEN = 256
WARM_UP_BATCHES = 3
# For baselines that take a second or more per batch: enough batches to see the spread.
MOST_SLOW_BATCHES = 8


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way to do the step. wanted_seconds: largest median per batch that meets the claim; None: no claim."""

    name: str
    model: str
    kind: str
    precision: str = "float32"
    wanted_seconds: float | None = None
    is_slow: bool = False


SIDES = (
    Side(name="sage float32", model="sage", kind="ours", wanted_seconds=0.10),
    Side(name="sage bfloat16", model="sage", kind="ours", precision="bfloat16", wanted_seconds=0.07),
    Side(name="sage products float32", model="sage", kind="products"),
    Side(name="sage products bfloat16", model="sage", kind="products", precision="bfloat16"),
    Side(name="sage embedding bag", model="sage", kind="bag", is_slow=True),
    Side(name="sage PyG trimmed", model="sage", kind="pyg", is_slow=True),
    Side(name="gcn float32", model="gcn", kind="ours"),
    Side(name="gcn PyG trimmed", model="gcn", kind="pyg", is_slow=True),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of each batch. grown_bytes: peak resident memory of the process beyond features and batches."""

    name: str
    matmul: str
    seconds: list[float]
    grown_bytes: int
    wanted_seconds: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def met(self) -> bool:
        return self.wanted_seconds is None or self.median <= self.wanted_seconds


def make_step(side: Side) -> tuple[Step, str]:
    """Return the step of a side, and the library that multiplies."""
    import torch
    from torch.nn import functional

    from diskhop.nn.layers.gcn import GcnLayer
    from diskhop.nn.layers.sage import SageLayer
    from diskhop.nn.matmul.choice import choose_matmul
    from diskhop.nn.matmul.products import Products
    from diskhop.nn.models import Block, Network

    matmul = choose_matmul(side.precision).backend if side.kind in ("ours", "products") else "blas"
    products = Products(matmul, side.precision)
    if side.kind == "products":
        return multiply_only(products), matmul
    if side.kind == "pyg":
        from torch_geometric.nn import GCN, GraphSAGE

        kind = {"sage": GraphSAGE, "gcn": GCN}[side.model]
        model: torch.nn.Module = kind(DIM, HIDDEN, len(FANOUT), CLASSES)
    else:
        layer = {("sage", "ours"): SageLayer, ("gcn", "ours"): GcnLayer, ("sage", "bag"): bag_layer()}
        make = layer[side.model, side.kind]
        model = Network(
            lambda inputs, outputs, _: make(inputs, outputs, products),
            DIM,
            HIDDEN,
            CLASSES,
            len(FANOUT),
            products=products,
        )
    optimizer = torch.optim.Adam(model.parameters(), fused=side.kind == "ours")

    def step(x: torch.Tensor, batch: SampledBatch, labels: torch.Tensor) -> float:
        optimizer.zero_grad()
        block = Block.of(batch)
        if side.kind == "pyg":
            whole = block.layer(0)
            scores = model(
                x,
                whole.edge_index(),
                num_sampled_nodes_per_hop=list(batch.num_sampled_nodes),
                num_sampled_edges_per_hop=list(batch.num_sampled_edges),
            )[: batch.num_seeds]
        else:
            scores = model(x, block)
        loss = functional.cross_entropy(scores, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return step, matmul


def multiply_only(products: Any) -> Step:
    """Return a step of only the matrix products, on random rows, one per layer."""
    import torch

    dims = [DIM, HIDDEN, HIDDEN, CLASSES]
    weights = [torch.randn(dims[i + 1], 2 * dims[i]).to(products.dtype) for i in range(len(FANOUT))]
    rows: dict[tuple[int, int], torch.Tensor] = {}

    def some_rows(layer: int, num_rows: int, dim: int) -> torch.Tensor:
        if len(rows.get((layer, dim), ())) < num_rows:
            rows[layer, dim] = torch.randn(num_rows * 5 // 4, dim).to(products.dtype)
        return rows[layer, dim][:num_rows]

    def step(_x: torch.Tensor, batch: SampledBatch, _labels: torch.Tensor) -> float:
        for i, weight in enumerate(weights):
            num_rows = sum(batch.num_sampled_nodes[: len(FANOUT) - i])
            x, grad = some_rows(i, num_rows, weight.shape[1]), some_rows(i + 10, num_rows, weight.shape[0])
            products.multiply(x, weight, None)
            products.gradients(grad, x, weight if i > 0 else None, None, None)
        return 0.0

    return step


def bag_layer() -> Any:
    """Return SAGE over torch's embedding bag, mean and root multiplied separately: the baseline without kernels."""
    import torch
    from torch.nn import functional
    from torch_geometric.nn import SAGEConv

    from diskhop.nn.layers.aggregate import LayerBlock

    class BagLayer(SAGEConv):  # type: ignore[misc]  # PyG has no types
        def __init__(self, in_dim: int, out_dim: int, _products: Any) -> None:
            super().__init__(in_dim, out_dim, aggr="mean")

        def forward(self, x: torch.Tensor, layer: LayerBlock) -> Any:
            mean = functional.embedding_bag(layer.sources, x, layer.indptr, mode="mean", include_last_offset=True)
            return self.lin_l(mean) + self.lin_r(x[: layer.num_targets])

    return BagLayer


def run_side(side: Side, folder: Path, num_batches: int, threads: int) -> Measured:
    """Run a side in this process."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    chosen = ""

    def make() -> Step:
        nonlocal chosen
        step, chosen = make_step(side)
        return step

    steps = run_steps(make, folder, FANOUT, num_batches + WARM_UP_BATCHES)
    return Measured(
        name=side.name,
        matmul=chosen,
        seconds=steps.seconds[WARM_UP_BATCHES:],
        grown_bytes=steps.grown_bytes,
        wanted_seconds=side.wanted_seconds,
    )


def measure(side: Side, arguments: argparse.Namespace) -> Measured:
    num_batches = min(arguments.batches, MOST_SLOW_BATCHES) if side.is_slow else arguments.batches
    command = [sys.executable, __file__, "--side", side.name, "--graph-dir", str(arguments.graph_dir)]
    command += ["--batches", str(num_batches), "--threads", str(arguments.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the side '{side.name}' failed with exit code {done.returncode}")
    return Measured(**json.loads(done.stdout))


def print_table(rows: list[Measured], out: Callable[[str], None]) -> None:
    ours = {row.name.split()[0]: row for row in reversed(rows) if row.name.split()[1] == "float32"}
    out(f"{'':24}{'matmul':>8}{'ms (min..max)':>24}{'of ours':>9}{'grown':>10}{'wanted':>9}")
    for row in rows:
        low, high = min(row.seconds) * 1e3, max(row.seconds) * 1e3
        wanted = (
            "" if row.wanted_seconds is None else f"{row.wanted_seconds * 1e3:.0f} {'met' if row.met else 'MISSED'}"
        )
        reference = ours.get(row.name.split()[0])
        ratio = f"{row.median / reference.median:.2f}" if reference else ""
        out(
            f"{row.name:24}{row.matmul:>8}{f'{row.median * 1e3:.1f} ({low:.1f}..{high:.1f})':>24}{ratio:>9}"
            f"{row.grown_bytes / 1e6:7,.0f} MB  {wanted}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=("sage", "gcn", "gat", "all"), default="all")
    parser.add_argument("--batches", type=int, default=24, help="timed batches of each of our sides")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--graph-dir",
        type=Path,
        default=graphs.DEFAULT_FOLDER,
        help="folder of the graph, which is generated if missing",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--side", choices=[side.name for side in SIDES], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        side = next(side for side in SIDES if side.name == arguments.side)
        print(json.dumps(asdict(run_side(side, arguments.graph_dir, arguments.batches, arguments.threads))))
        return 0

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    graphs.make_rmat(arguments.graph_dir)
    rows = [measure(side, arguments) for side in SIDES if arguments.model in (side.model, "all")]
    out(f"{arguments.threads} threads, {arguments.batches} batches ({MOST_SLOW_BATCHES} of the baselines)\n")
    print_table(rows, out)
    all_met = all(row.met for row in rows)
    document: dict[str, Any] = {
        "benchmark": "compute",
        "threads": arguments.threads,
        "rows": [{**asdict(row), "median": row.median, "met": row.met} for row in rows],
    }
    if arguments.model in ("gat", "all"):
        document["gat"], gat_met = importlib.import_module("compute_gat").run(arguments, out)
        all_met &= gat_met
    if arguments.json:
        print(json.dumps(document, indent=1))
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
