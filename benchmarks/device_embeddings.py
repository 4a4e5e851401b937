"""Embeddings on a GPU, kernel by kernel: the time of a batch, and of its gradients (Legend, tables 5 and 10).

    python benchmarks/device_embeddings.py [--models dot,complex] [--nodes 1000000] [--repeats 20]

Each row is the median time per batch and the spread: the order of edges of a phase, negatives, edges of the batch,
gradients (Legend's table 10), Adagrad of nodes, and the whole batch (table 5), by Triton's kernels and by torch alone.
Legend has batches of 100,000 edges with 1000 negatives, dim 100. --device cpu runs the code without a GPU, by torch,
and measures nothing of interest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from diskhop.embedding.device.draws import DeviceNegatives, device_order
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable, KernelGradients
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import AnyGradients, Batch, Gradients, StepOptions
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import EPSILON
from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.row_adagrad import update_rows, update_rows_reference

NUM_PARTITIONS = 3
SEED = 0


class Timed(NamedTuple):
    """Milliseconds of a call: the median and the range of some."""

    name: str
    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.name:28} {self.median:9.3f} ms  ({self.least:.3f} to {self.most:.3f})"


def timed(name: str, call: Callable[[], object], device: torch.device, repeats: int) -> Timed:
    """Time a call, once it has run: kernels are compiled then."""
    call()
    seconds = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(1000 * (time.perf_counter() - started))
    return Timed(name, statistics.median(seconds), min(seconds), max(seconds))


def measure(model: str, arguments: argparse.Namespace) -> list[Timed]:
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

    def time_of(name: str, call: Callable[[], object]) -> Timed:
        return timed(name, call, device, arguments.repeats)

    found = [
        time_of("order of a phase", lambda: device_order(num_edges, SEED, 0, 0, device)),
        time_of("batch and negatives", make),
    ]
    for name, (gradients, update) in ways.items():
        found.append(time_of(f"gradients, {name}", partial(gradients, whole, of_chunk)))
        updated = partial(update, nodes.values, nodes.squares, rows, grads, options.lr, EPSILON)
        found.append(time_of(f"Adagrad of nodes, {name}", updated))
    found.append(time_of("whole batch", lambda: step.run(*make(), of_chunk)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="dot,complex", help="models, by commas")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="rows of three partitions")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100_000, help="edges per batch")
    parser.add_argument("--chunk", type=int, default=1000, help="edges that share negatives")
    parser.add_argument("--negatives", type=int, default=1000)
    parser.add_argument("--phase", type=int, default=10, help="batches of a phase, whose edges are on the device")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args(arguments)
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no GPU is there: nothing is measured (--device cpu runs the code, by torch)")
        return
    card = "no GPU" if options.device == "cpu" else torch.cuda.get_device_name(torch.device(options.device))
    for model in options.models.split(","):
        print(f"{model}, dim {options.dim}, {options.batch} edges, {options.negatives} negatives, on {card}")
        found = measure(model, options)
        for each in found:
            print(f"  {each}")
        print(f"  {options.batch / found[-1].median * 1000:,.0f} edges/s")


if __name__ == "__main__":
    main()
