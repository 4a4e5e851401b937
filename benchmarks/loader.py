"""Seconds per batch of NeighborLoader and a training step, from memory and from disk, against PyG's documented loop.

Claims: with the `memory` store at most .11 s per batch (SAGE 3 x 256, 128 float32 features, batch 1000, fan-out
10,10,10, R-MAT .45/.22/.22/.11 with 2 M nodes and 30 M edges); PyG's documented loop (its NeighborLoader, its SAGEConv
on every node of the batch) at least 15 times as slow. For the record: the same from disk within 600 MB, of which 100 MB
(10 % of the features) may cache rows, and bfloat16 linear layers. Each side is a process of its own on the same
dataset. PyG's loader needs torch-sparse or pyg-lib; where neither is installed, recorded figures are used. DGL's
figure is always the recorded one, of GraphBolt's documented loop in memory on two cores. `--docs` writes the chart that
the README shows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from workloads import evict

FANOUT = [10, 10, 10]
BATCH_SIZE, HIDDEN, CLASSES = 1000, 256, 47
WANTED_SECONDS, WANTED_RATIO = 0.11, 15
# Trimmed step and sampling, recorded in the issue; what a missing torch-sparse leaves to compare with.
RECORDED_PYG_SECONDS = 1.4 + 0.36
RECORDED_DGL_SECONDS = 0.52
CHART = Path(__file__).parents[1] / "docs" / "loader.svg"
WARM_UP_BATCHES = 3


def time_batches(steps: Iterable[Any], num_batches: int) -> list[float]:
    """Seconds of each batch, loading and step together, without the first few."""
    seconds = []
    last = time.perf_counter()
    for number, _ in enumerate(steps):
        now = time.perf_counter()
        if number >= WARM_UP_BATCHES:
            seconds.append(now - last)
        last = now
        if len(seconds) == num_batches:
            break
    return seconds


IN_MEMORY: dict[str, Any] = {"memory": "3GB", "store": "memory"}
FROM_DISK: dict[str, Any] = {"memory": "600MB", "cache": "100MB", "store": "auto"}


def run_ours(
    path: Path, num_batches: int, threads: int, precision: str = "float32", budget: dict[str, Any] = IN_MEMORY
) -> dict[str, Any]:
    import torch
    from torch.nn import functional

    import diskhop
    from diskhop.nn.models import Network, SageLayer, fastest_products

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dataset = diskhop.open_dataset(path)
    products = fastest_products(precision)
    model = Network(
        lambda inputs, outputs, _: SageLayer(inputs, outputs, products), dataset.feature_dim, HIDDEN, CLASSES, 3
    )
    optimizer = torch.optim.Adam(model.parameters())
    stalled = []
    evict(dataset)
    with diskhop.NeighborLoader(
        dataset,
        FANOUT,
        "train",
        batch_size=BATCH_SIZE,
        shuffle=True,
        threads=threads,
        **budget,
    ) as loader:

        def steps() -> Iterable[float]:
            asked = time.perf_counter()
            for batch in loader:
                stalled.append(time.perf_counter() - asked)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(batch.x, batch.block), batch.y[: batch.batch_size])
                torch.autograd.backward(loss)
                optimizer.step()
                value = loss.item()
                del batch, loss
                yield value
                asked = time.perf_counter()

        seconds = time_batches(steps(), num_batches)
    return {"seconds": seconds, "waiting": statistics.median(stalled[WARM_UP_BATCHES:])}


def run_pyg(path: Path, num_batches: int, threads: int) -> dict[str, Any]:
    import torch
    from torch.nn import functional
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import GraphSAGE

    import diskhop
    from diskhop.dataset.files import map_array

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dataset = diskhop.open_dataset(path)
    files, table = dataset.topology, dataset.feature_table()
    assert table is not None
    indptr = map_array(files.indptr_path, "<i8", files.num_nodes + 1)
    sources = map_array(files.indices_path, files.index_dtype, files.num_edges).astype("<i8")
    targets = torch.repeat_interleave(torch.arange(files.num_nodes), torch.from_numpy(indptr.copy()).diff())
    x = map_array(table.path, "<f4", files.num_nodes * dataset.feature_dim).copy().reshape(-1, dataset.feature_dim)
    labels, train_ids = dataset.label_rows(), dataset.split_rows("train")
    assert labels is not None
    assert train_ids is not None
    data = Data(
        x=torch.from_numpy(x),
        edge_index=torch.stack([torch.from_numpy(sources), targets]),
        y=torch.from_numpy(labels.copy()),
    )
    loader = NeighborLoader(
        data, FANOUT, torch.from_numpy(train_ids.copy()), batch_size=BATCH_SIZE, shuffle=True, is_sorted=True
    )
    model = GraphSAGE(dataset.feature_dim, HIDDEN, 3, CLASSES)
    optimizer = torch.optim.Adam(model.parameters())

    def steps() -> Iterable[float]:
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = functional.cross_entropy(out, batch.y[: batch.batch_size])
            torch.autograd.backward(loss)
            optimizer.step()
            yield loss.item()

    return {"seconds": time_batches(steps(), num_batches)}


def has_pyg_sampler() -> bool:
    from torch_geometric import typing

    return bool(typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE)


SIDES: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "diskhop": run_ours,
    "diskhop bfloat16": partial(run_ours, precision="bfloat16"),
    "diskhop from disk": partial(run_ours, budget=FROM_DISK),
    "pyg": run_pyg,
}


def run_side(side: str, path: Path, num_batches: int, threads: int) -> dict[str, Any]:
    """Run a side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--dataset", str(path)]
    command += ["--batches", str(num_batches), "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the side '{side}' failed with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def chart(medians: dict[str, float]) -> str:
    """Bars of seconds per batch as SVG. medians: seconds by side."""
    bars = {
        f"PyTorch Geometric, in memory{'' if 'pyg' in medians else ' (recorded)'}": medians.get(
            "pyg", RECORDED_PYG_SECONDS
        ),
        "DGL GraphBolt, in memory (recorded)": RECORDED_DGL_SECONDS,
        "diskhop, from disk, 10 % cached": medians["diskhop from disk"],
        "diskhop, in memory": medians["diskhop"],
    }
    widest, lines = max(bars.values()), []
    for number, (name, seconds) in enumerate(bars.items()):
        y, colour = 40 + 30 * number, "#0072B2" if name.startswith("diskhop") else "#B8C4D0"
        width = max(2.0, 360 * seconds / widest)
        lines += [
            f"<text x='0' y='{y + 15}'>{name}</text>",
            f"<rect x='260' y='{y}' width='{width:.1f}' height='20' fill='{colour}'/>",
            f"<text x='{268 + width:.1f}' y='{y + 15}'>{seconds:.2f} s</text>",
        ]
    title = "Seconds per mini-batch: GraphSAGE, 3 layers of 256, 1000 seed nodes, fan-out 10,10,10, on two cores"
    head = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 170' width='720' role='img'"
    return (
        f"{head} font-family='system-ui, sans-serif' font-size='13' fill='#333333'>\n<title>{title}</title>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n<text x='0' y='20' font-weight='600'>{title}</text>\n"
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def make_dataset(folder: Path) -> Path:
    """The graph of the claims; a minute's work, so kept where --dataset says."""
    command = [
        str(Path(sys.executable).with_name("diskhop")),
        "generate",
        "kronecker",
        str(folder),
        "--nodes",
        "2000000",
    ]
    command += ["--edges", "30000000", "--dim", "128", "--classes", str(CLASSES), "--train-fraction", "0.1"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dataset", type=Path, help="made by this script before; default: made now, then removed")
    parser.add_argument("--dir", type=Path, default=Path(), help="where to make it")
    parser.add_argument("--batches", type=int, default=40, help="timed on our side; of PyG's a tenth")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--docs", action="store_true", help="write the README's chart, docs/loader.svg")
    arguments = parser.parse_args()
    if arguments.side:
        result = SIDES[arguments.side](arguments.dataset, arguments.batches, arguments.threads)
        result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result))
        return 0

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as folder:
        path = arguments.dataset or make_dataset(Path(folder) / "kronecker")
        sides = [side for side in SIDES if side != "pyg" or has_pyg_sampler()]
        results = {}
        out(f"{'':18}{'s/batch (min..max)':>26}{'peak memory':>14}")
        for side in sides:
            num_batches = -(-arguments.batches // 10) if side == "pyg" else arguments.batches
            results[side] = run_side(side, path, num_batches, arguments.threads)
            times = results[side]["seconds"]
            shown = f"{statistics.median(times):.3f} ({min(times):.3f}..{max(times):.3f})"
            out(f"{side:18}{shown:>26}{results[side]['peak_rss_bytes'] / 1e6:11,.0f} MB")
    ours = statistics.median(results["diskhop"]["seconds"])
    waiting = results["diskhop"]["waiting"]
    if "pyg" in results:
        theirs, origin = statistics.median(results["pyg"]["seconds"]), "PyG's documented loop, in this run"
    else:
        theirs, origin = RECORDED_PYG_SECONDS, "PyG trimmed, as recorded: install torch-sparse to measure it here"
    is_fast, is_ahead = ours <= WANTED_SECONDS, theirs / ours >= WANTED_RATIO
    out(f"\nwaiting for the loader {waiting:.3f} s of a batch")
    out(f"seconds a batch {ours:.3f}, at most {WANTED_SECONDS}: {'met' if is_fast else 'MISSED'}")
    out(f"{theirs / ours:.1f} times as fast as {origin}, at least {WANTED_RATIO}: {'met' if is_ahead else 'MISSED'}")
    if arguments.docs:
        medians = {side: statistics.median(result["seconds"]) for side, result in results.items()}
        CHART.write_text(chart(medians), encoding="utf-8")
    if arguments.json:
        document = {"benchmark": "loader", "sides": results, "ratio": theirs / ours, "compared_with": origin}
        print(json.dumps(document, indent=1))
    return 0 if is_fast and is_ahead else 1


if __name__ == "__main__":
    sys.exit(main())
