"""Runs that benchmarks/packing.py measures, each in its own process: `packing_runs.py pack|train OPTIONS`, as JSON.

OPTIONS, a JSON object: workload, dataset, batches (per epoch), scratch, disk and cache in bytes (0: chosen); for
`train` the store, and without, one of the IDEAS in switches.py; for `pack` by_id: True to store shared rows by id.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from diskhop.dataset.dataset import open_dataset
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.packing import pack
from diskhop.runs.start import train
from diskhop.stores.packed import segments
from diskhop.stores.stores import STORES
from switches import without_idea
from training import AfterBatches
from workloads import BATCH_SIZE, HIDDEN, SEED, WORKLOADS


def run_options(given: dict[str, Any], store: str) -> dict[str, Any]:
    """Return the options of a run on a workload, with one epoch."""
    workload = WORKLOADS[given["workload"]]
    dataset = open_dataset(given["dataset"])
    kind = STORES[store]
    return {
        "dataset": dataset,
        "model": "sage",
        "layers": len(workload.fanouts),
        "hidden": HIDDEN,
        "fanout": workload.fanouts,
        "batch_size": BATCH_SIZE,
        "epochs": 1,
        "max_batches": given["batches"],
        "evaluate": False,
        "memory": workload.memory_bytes(store, dataset),
        "seed": SEED,
        **({"cache_bytes": given["cache"] or workload.cache_bytes} if "cache" in kind.uses else {}),
        **({"disk_bytes": given["disk"], "scratch": given["scratch"]} if kind.looks_ahead else {}),
    }


def run_packing(given: dict[str, Any]) -> dict[str, Any]:
    """Pack an epoch."""
    if given["by_id"]:
        # Replaced where the package looks it up, because there is no option for it.
        vars(segments)["minhash_order"] = lambda _batches, num_rows: np.arange(num_rows)
    packed = pack(**run_options(given, "packed"))
    files = {path.name: path.stat().st_size for path in packed.layout.path.iterdir()}
    return {"steps": packed.steps, "epoch": asdict(packed.layout.epochs[0]), "files": files}


def run_training(given: dict[str, Any]) -> dict[str, Any]:
    """Train an epoch and return the content of result.json."""
    store = given["store"]
    callback = Callback()
    if given["without"]:
        store, after_batch = without_idea(given["without"], store)
        callback = AfterBatches(after_batch)
    result: dict[str, Any] = train(**run_options(given, store), store=store, callbacks=[callback]).result
    return result


def main() -> None:
    what, options = sys.argv[1:]
    given = json.loads(options)
    print(json.dumps(run_packing(given) if what == "pack" else run_training(given)))


if __name__ == "__main__":
    main()
