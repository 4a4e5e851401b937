"""Training from disk with `--device cuda` on W: batches, losses, waiting GPU, and seconds per batch against PyG's loop.

    python benchmarks/device_training.py [--dir DIR] [--nodes 4000000] [--stores packed,belady,static,shared,auto]

W (see workloads.py) is generated in DIR where it is not; --nodes scales it, with its memory. Claims: batches of every
store are bit-identical to the CPU's; losses differ from the CPU's by no more than another seed's; the GPU waits for
less than 5 % of an epoch with `packed`: of the second one, its start included. Next to them, seconds per batch of PyG's
NeighborLoader with .to("cuda") from RAM, and with all features in the GPU's memory; where PyG has no sampler (pyg-lib
or torch-sparse), batches of our `memory` store stand in for it. --device cpu runs the code without a GPU, and measures
nothing of interest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from device_runs import (
    LEAST_BATCHES,
    Setting,
    Work,
    digest_of,
    require_batches,
    train_from_disk,
    train_in_memory,
    train_pyg,
)
from devices import NO_GPU, add_device_options, is_there, name_of, take_turn_on
from diskhop.budget import format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import DiskhopError
from diskhop.generating import GraphConfig, generate_graph
from diskhop.io.engine import open_engine
from peers_training import has_pyg_sampler
from turns import Turn
from workloads import BATCH_SIZE, DEFAULT_FOLDER, HIDDEN, WORKLOADS, find_dataset

STORES = "packed,belady,static,shared,auto"
MOST_WAITING = 0.05
TRAIN_FRACTION = 0.1
# Of runs from disk; the first one is not timed.
EPOCHS = 2
# Of a run: loaders with many threads need more than W's memory.
_LEAST_MEMORY, _MEMORY = parse_bytes("1500MB"), parse_bytes("3GB")


class Size(NamedTuple):
    """Defaults of options."""

    nodes: int
    batches: int
    stores: str


_QUICK = Size(200_000, 12, "packed,static")
_FULL = Size(WORKLOADS["W"].num_nodes, 40, STORES)


class Way(NamedTuple):
    """A row of the table. must_not_wait: whether the claim is about it."""

    name: str
    work: Work
    arguments: tuple[Any, ...]
    must_not_wait: bool = False


def find_graph(num_nodes: int, folder: Path) -> Dataset:
    """Open W with this many nodes, or generate it."""
    workload = WORKLOADS["W"]
    if num_nodes == workload.num_nodes:
        return find_dataset("W", folder)
    path = folder / f"w-{num_nodes}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        num_edges = workload.num_edges // workload.num_nodes * num_nodes
        config = GraphConfig(
            kind=workload.kind, num_nodes=num_nodes, num_edges=num_edges, dim=128, num_classes=47,
            train_fraction=TRAIN_FRACTION, order=workload.order, seed=1,
        )  # fmt: skip
        generate_graph(path, config, engine=open_engine().engine)
    return open_dataset(path)


def ways_of(setting: Setting, stores: Sequence[str], device_bytes: int) -> list[Way]:
    """Return all runs to time."""
    ways = []
    for store in stores:
        for num_bytes in dict.fromkeys((0, device_bytes)):
            name = f"{store}, {format_bytes(num_bytes)} on the device" if num_bytes else store
            arguments = setting, store, num_bytes, EPOCHS, 0
            ways.append(Way(name, train_from_disk, arguments, store == "packed"))
    ways.append(Way("memory, all features on device, 8 threads", train_in_memory, (setting, 8, True)))
    work: Work
    if has_pyg_sampler():
        name, work, several = "PyG", train_pyg, {0: "0 workers", 8: "8 workers"}
        ways.append(Way("PyG, all features on device, 8 workers", train_pyg, (setting, 8, True)))
    else:
        name, work, several = "memory", train_in_memory, {1: "1 thread", 8: "8 threads"}
    ways += [Way(f"{name}, .to(device), {said}", work, (setting, count, False)) for count, said in several.items()]
    return ways


def shown(way: Way, turn: Turn) -> str:
    """Return a line of the table."""
    stages = turn.stages
    seconds = f"{1000 * stages['seconds']:.1f} ({1000 * stages['least']:.1f}..{1000 * stages['most']:.1f})"
    host = f"{stages['host waiting']:.1%}" if "host waiting" in stages else ""
    copies = f"{1000 * stages['transfer_seconds']:.1f}" if "transfer_seconds" in stages else ""
    read = f"{stages['bytes_read'] / 1e6:.1f}" if "bytes_read" in stages else ""
    peaks = f"{turn.peak_rss_bytes / 1e6:,.0f}", f"{stages['device bytes'] / 1e6:,.0f}"
    return (
        f"{way.name:42}{seconds:>24}{stages['waiting']:>11.1%}{host:>12}{copies:>11}{read:>10}"
        f"{peaks[0]:>11}{peaks[1]:>13}"
    )


def compare_losses(setting: Setting, epochs: int) -> dict[str, list[float]]:
    """Return the losses of epochs on the device, on the CPU, and on the CPU with another seed."""
    cpu = replace(setting, device="cpu")
    runs = {"device": (setting, 0), "CPU": (cpu, 0), "CPU, other seed": (cpu, 1)}
    found = {}
    for name, (each, seed) in runs.items():
        stages = take_turn_on(torch.device(each.device), train_from_disk, each, "direct", 0, epochs, seed).stages
        found[name] = [stages[f"loss {epoch}"] for epoch in range(epochs)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_options(parser)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph is, or is made")
    parser.add_argument("--nodes", type=int, help="default: 4000000; quick: 200000")
    parser.add_argument("--stores", help=f"default: {STORES}; quick: packed,static")
    parser.add_argument("--batches", type=int, help="per epoch; default: 40; quick: 12")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--hidden", type=int, default=HIDDEN)
    parser.add_argument("--memory", help="budget; default: 3GB for 4000000 nodes, at least 1500MB")
    parser.add_argument("--device-memory", help="bytes of rows on the device; default: a quarter of the table")
    parser.add_argument("--threads", type=int, default=0, help="default: those of diskhop train")
    parser.add_argument("--epochs", type=int, default=3, help="of the losses; 0: do not compare them")
    parser.add_argument("--digests", type=int, default=3, help="batches compared bit for bit; 0: none")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if not is_there(device):
        print(NO_GPU)
        return 0
    chosen = _QUICK if options.quick else _FULL
    num_nodes = options.nodes or chosen.nodes
    stores = (options.stores or chosen.stores).split(",")
    num_batches = options.batches or chosen.batches
    most_batches = int(TRAIN_FRACTION * num_nodes) // options.batch_size
    smaller = f"--batches {chosen.batches} and --batch-size {int(TRAIN_FRACTION * num_nodes) // LEAST_BATCHES} or less"
    require_batches(parser, min(num_batches, most_batches), smaller)
    workload = WORKLOADS["W"]
    scale = num_nodes / workload.num_nodes
    dataset = find_graph(num_nodes, options.dir)
    table = dataset.feature_table()
    assert table is not None
    setting = Setting(
        path=dataset.path,
        device=options.device,
        memory_bytes=parse_bytes(options.memory) if options.memory else max(_LEAST_MEMORY, int(scale * _MEMORY)),
        cache_bytes=int(scale * workload.cache_bytes),
        fanout=workload.fanouts,
        batch_size=options.batch_size,
        hidden=options.hidden,
        num_batches=num_batches,
        threads=options.threads,
    )
    device_bytes = 0
    if device.type == "cuda":
        wanted = options.device_memory
        device_bytes = parse_bytes(wanted) if wanted else table.num_rows * table.row_bytes // 4

    def out(line: str = "") -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    out(
        f"W with {num_nodes:,} nodes, {dataset.topology.num_edges:,} edges, 128 float32 features; SAGE 3 x "
        f"{setting.hidden}, batch {setting.batch_size}, fan-out {','.join(map(str, setting.fanout))}, memory "
        f"{format_bytes(setting.memory_bytes)}, {setting.num_batches} batches; on {name_of(device)}"
    )
    document: dict[str, Any] = {"benchmark": "device_training", "card": name_of(device), "nodes": num_nodes}
    met = True
    if options.digests:
        expected = digest_of(setting, "direct", None, None, options.digests)
        document["digests"] = {}
        for store in stores:
            for num_bytes in dict.fromkeys((0, device_bytes)):
                try:
                    is_equal = digest_of(setting, store, num_bytes, options.device, options.digests) == expected
                    said = "bit-identical to the CPU's: met" if is_equal else "differ from the CPU's: MISSED"
                except DiskhopError as error:
                    is_equal, said = False, str(error)
                met &= is_equal
                document["digests"][f"{store} {num_bytes}"] = is_equal
                rows = f", {format_bytes(num_bytes)} on the device" if num_bytes else ""
                out(f"{options.digests} batches of {store}{rows}: {said}")
    if not has_pyg_sampler():
        out("PyG's NeighborLoader needs pyg-lib or torch-sparse, which are not installed: our store 'memory' stands in")
    out()
    out(
        f"{'':42}{'ms/batch (min..max)':>24}{'GPU waits':>11}{'host waits':>12}{'copies ms':>11}{'read MB':>10}"
        f"{'peak MB':>11}{'on GPU MB':>13}"
    )
    document["ways"] = {}
    for way in ways_of(setting, stores, device_bytes):
        try:
            turn = take_turn_on(device, way.work, *way.arguments)
        except DiskhopError as error:
            met = False
            out(f"{way.name:42}{error}")
            continue
        document["ways"][way.name] = asdict(turn)
        out(shown(way, turn))
        if way.must_not_wait:
            is_met = turn.stages["waiting"] < MOST_WAITING
            met &= is_met
            out(f"    the GPU waits for less than {MOST_WAITING:.0%} of an epoch: {'met' if is_met else 'MISSED'}")
    if options.epochs:
        losses = document["losses"] = compare_losses(setting, options.epochs)
        out()
        for name, values in losses.items():
            out(f"loss per epoch, {name:16} " + "  ".join(f"{value:.4f}" for value in values))
        pairs = zip(losses["device"], losses["CPU"], losses["CPU, other seed"], strict=True)
        differences = [(abs(found - cpu), abs(other - cpu)) for found, cpu, other in pairs]
        worst, noise = (max(each) for each in zip(*differences, strict=True))
        met &= worst <= noise
        out(
            f"largest difference from the CPU's {worst:.4f}, of another seed {noise:.4f}: within noise "
            f"{'met' if worst <= noise else 'MISSED'}"
        )
    if options.json:
        print(json.dumps(document, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
