"""The training loop on the batches of a workload, through one store; prints the content of result.json.

benchmarks/stores.py runs it in its own process: `training.py WORKLOAD DATASET STORE BATCHES CACHE [WITHOUT]`, where
WITHOUT is one of the IDEAS in switches.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diskhop.budget import parse_bytes
from diskhop.dataset.dataset import open_dataset
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.start import train
from diskhop.stores.stores import STORES
from switches import without_idea
from workloads import BATCH_SIZE, HIDDEN, SEED, WORKLOADS


def run_training(name: str, path: Path, store: str, num_batches: int, cache: str, callback: Callback) -> dict[str, Any]:
    """Train one epoch, as `diskhop train` does."""
    workload, dataset = WORKLOADS[name], open_dataset(path)
    return train(
        dataset,
        model="sage",
        layers=len(workload.fanouts),
        hidden=HIDDEN,
        fanout=workload.fanouts,
        batch_size=BATCH_SIZE,
        epochs=1,
        max_batches=num_batches,
        evaluate=False,
        memory=workload.memory_bytes(store, dataset),
        store=store,
        cache_bytes=parse_bytes(cache) if "cache" in STORES[store].uses else 0,
        seed=SEED,
        callbacks=[callback],
    ).result


class AfterBatches(Callback):
    """Calls a function after each batch, before the next one is requested."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def batch_done(self, progress: BatchProgress) -> None:
        self._call()


def main() -> None:
    name, path, store, num_batches, cache, *without = sys.argv[1:]
    callback = Callback()
    if without:
        store, after_batch = without_idea(without[0], store)
        callback = AfterBatches(after_batch)
    print(json.dumps(run_training(name, Path(path), store, int(num_batches), cache, callback)))


if __name__ == "__main__":
    main()
