"""Embeddings on a GPU, kernel by kernel: the time of a batch, and of its gradients (Legend, tables 5 and 10).

    python benchmarks/device_embeddings.py [--models dot,complex] [--nodes 1000000] [--repeats 20]

Each row is the median time per batch and the spread: the order of edges of a phase, negatives, edges of the batch, the
gradient calculation (table 10), Adagrad of nodes, and the batch time (table 5: from batch construction to embedding
updates), by Triton's kernels and by torch alone. Next to both, the paper's of its A100: dot on TW, ComplEx on FM.
Legend has batches of 100,000 edges with 1000 negatives, dim 100. --device cpu runs the code without a GPU, by torch,
and measures nothing of interest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from devices import NO_GPU, Times, add_device_options, is_there, name_of, time_calls
from diskhop.embedding.device.draws import DeviceNegatives, device_order
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable, KernelGradients
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import AnyGradients, Batch, Gradients, StepOptions
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import EPSILON
from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.row_adagrad import update_rows, update_rows_reference

# Milliseconds per batch of Legend: Table 5, the batch time, and table 10, its gradient calculation; on TW and FM.
TABLE_5 = {"dot": 12.0, "complex": 13.8}
TABLE_10 = {"dot": 10.5, "complex": 10.4}
NUM_PARTITIONS = 3
SEED = 0


class Timed(NamedTuple):
    """A row of the table. paper: milliseconds of Legend on its A100, where it has them."""

    name: str
    times: Times
    paper: float | None = None

    def __str__(self) -> str:
        return f"{self.name:30}{self.times}" + ("" if self.paper is None else f"  Legend, A100: {self.paper} ms")


def measure(model: str, arguments: argparse.Namespace, repeats: int) -> list[Timed]:
    """Time the parts of a batch of a model."""
    device, dim, batch_size = torch.device(arguments.device), arguments.dim, arguments.batch
    score = SCORES[model]
    options = StepOptions(
        model=model, loss="contrastive", margin=0.0, lr=0.1, batch_size=batch_size, chunk_size=arguments.chunk,
        num_negatives=arguments.negatives, reciprocal=False, n3=0.0, l2=0.0, dropout=0.0,
    )  # fmt: skip
    layout = PartitionLayout(arguments.nodes, NUM_PARTITIONS, dim, 1)
    num_rows, num_relations = NUM_PARTITIONS * layout.stride_rows, 200
    draws = torch.Generator(device).manual_seed(SEED)

    def table(rows: int) -> DeviceTable:
        return DeviceTable(
            0.1 * torch.randn(rows, dim, device=device, generator=draws), torch.ones(rows, 1, device=device)
        )

    def integers(high: int, *size: int) -> torch.Tensor:
        return torch.randint(0, high, size, device=device, generator=draws)

    nodes, relations = table(num_rows), table(num_relations) if score.uses_relations else None
    num_edges = arguments.phase * batch_size
    kinds = None if relations is None else integers(num_relations, num_edges).int()
    phase = DeviceEdges(integers(arguments.nodes, num_edges), kinds, integers(arguments.nodes, num_edges))
    sampler = NegativeSampler(layout, range(NUM_PARTITIONS), 0.0, SEED)
    negatives = DeviceNegatives(sampler, lambda partition: partition * layout.stride_rows, device)
    order = device_order(num_edges, SEED, 0, 0, device)
    shape = 2, options.most_chunks, options.num_negatives
    step = DeviceStep(options, nodes, relations)

    def make() -> tuple[DeviceEdges, torch.Tensor]:
        batch = phase.take(order[:batch_size])
        return batch, negatives.draw(shape, batch.sources, batch.destinations, (0, 0))

    batch, drawn = make()
    rows = torch.cat([batch.sources, batch.destinations, drawn.flatten()])
    numbers = None if batch.relations is None else batch.relations.long().repeat(2)
    grads = torch.zeros(len(rows), dim, device=device)
    of_relations = torch.zeros(2 * batch_size, dim, device=device)
    whole = Batch(batch_size, rows, numbers, None, grads, of_relations)
    values = None if relations is None else relations.values

    def of_chunk(chunk: int) -> torch.Generator:
        raise AssertionError("nothing is dropped")

    ways: dict[str, tuple[Gradients, Callable[..., None]]] = {
        "torch": (AnyGradients(options, nodes.values, values), update_rows_reference)
    }
    if runs_kernels(nodes.values):
        ways["Triton"] = (KernelGradients(options, nodes.values, values), update_rows)

    def time_of(name: str, call: Callable[[], object], paper: float | None = None) -> Timed:
        return Timed(name, time_calls(call, device, repeats, calls=1), paper)

    found = [
        time_of("order of a phase", lambda: device_order(num_edges, SEED, 0, 0, device)),
        time_of("batch and negatives", make),
    ]
    for name, (gradients, update) in ways.items():
        call = partial(gradients, whole, of_chunk)
        found.append(time_of(f"gradient calculation, {name}", call, TABLE_10.get(model)))
        updated = partial(update, nodes.values, nodes.squares, rows, grads, options.lr, EPSILON)
        found.append(time_of(f"Adagrad of nodes, {name}", updated))
    found.append(time_of("batch time", lambda: step.run(*make(), of_chunk), TABLE_5.get(model)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_options(parser)
    parser.add_argument("--models", default="dot,complex", help="models, by commas")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="rows of three partitions")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100_000, help="edges per batch")
    parser.add_argument("--chunk", type=int, default=1000, help="edges that share negatives")
    parser.add_argument("--negatives", type=int, default=1000)
    parser.add_argument("--phase", type=int, default=10, help="batches of a phase, whose edges are on the device")
    parser.add_argument("--repeats", type=int, help="default: 20; quick: 5")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if not is_there(device):
        print(NO_GPU)
        return
    repeats = options.repeats or (5 if options.quick else 20)

    def out(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    document: dict[str, Any] = {"benchmark": "device_embeddings", "card": name_of(device), "models": {}}
    for model in options.models.split(","):
        out(f"{model}, dim {options.dim}, {options.batch} edges, {options.negatives} negatives, on {name_of(device)}")
        found = measure(model, options, repeats)
        for each in found:
            out(f"  {each}")
        rate = options.batch / found[-1].times.median
        out(f"  {rate:,.0f} edges/s")
        document["models"][model] = {"edges_per_second": rate} | {each.name: each.times for each in found}
    if options.json:
        print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
