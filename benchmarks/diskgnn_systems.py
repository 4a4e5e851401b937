"""The systems that the DiskGNN paper compares (section 7), as runs of diskhop's public pack() and train().

A *case* is a system with the options of its run, and its *work*: 'pack' makes a layout of one epoch's batches, 'train'
trains on them. benchmarks/paper_diskgnn.py runs each in its own process: `diskgnn_systems.py DATASET CASE`, with the
case as JSON; it prints the costs as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from baseline_stores import OneByOne, reading_pages
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.derived.clean import LAYOUT_FILE
from diskhop.errors import ConfigError
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.nodes.packing import pack
from diskhop.runs.start import train
from diskhop.stores.stores import STORES
from diskhop.system.transfers import transfers
from marius_system import SMALLEST_FRACTION, Partitions, partitions_within, register_buffer
from marius_system import STORE as BUFFER
from stand_in import trained_by_stand_in
from switches import without_idea
from turns import peak_rss_bytes
from workloads import HIDDEN, SEED

# Stores that only these runs have.
ONE_BY_ONE, BY_PAGES = "pread, one by one", "belady, a page per row"
STORE_OF = {
    "in memory": "memory",
    "DiskGNN": "packed",
    "DiskGNN, streaming": "packed",
    "Ginex": "belady",
    "Ginex, a row per read": "belady",
    "Ginex, a page per row": BY_PAGES,
    "MariusGNN": BUFFER,
    "DGL-OnDisk": ONE_BY_ONE,
    "pread": "pread",
    "static": "static",
    "shared": "shared",
}
FANOUTS = (10, 10, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One system at one point of a figure.

    cache_bytes: for rows that stay in memory or are kept between batches, for systems with a cache.
    disk_bytes: largest size of what is packed ahead; 0: half of the free space.
    step_seconds: seconds of each step of a stand-in for the trainer; 0: the model is trained.
    without: one of the IDEAS in switches.py.
    """

    system: str
    work: Literal["pack", "train"] = "train"
    cache_bytes: int
    memory_bytes: int
    disk_bytes: int = 0
    batch_size: int
    num_batches: int
    num_epochs: int
    step_seconds: float = 0.0
    without: str = ""

    @property
    def is_packed_ahead(self) -> bool:
        """True if every epoch has the first one's batches, as in the paper."""
        return self.system == "DiskGNN"


def run_case(path: Path, case: Case, scratch: str) -> dict[str, Any]:
    """Run a case and return its costs; for 'train' also the record of each epoch, with the bytes that the kernel read.

    The first epoch is the warm-up: seconds, reads and bytes are means over the others.
    """
    store, dataset = STORE_OF[case.system], open_dataset(path)
    STORES[BY_PAGES] = reading_pages(STORES["belady"], BY_PAGES)
    STORES[ONE_BY_ONE] = replace(STORES["pread"], name=ONE_BY_ONE, open=OneByOne)
    partitions = partitions_of(case, dataset)
    buffers = register_buffer(partitions)
    kind = STORES[store]
    options: dict[str, Any] = {
        "model": "sage",
        "layers": len(FANOUTS),
        "hidden": HIDDEN,
        "fanout": FANOUTS,
        "batch_size": case.batch_size,
        "max_batches": case.num_batches,
        "epochs": case.num_epochs,
        "evaluate": False,
        "seed": SEED,
        "store": store,
        "memory_bytes": case.memory_bytes,
        "cache_bytes": case.cache_bytes if "cache" in kind.uses else 0,
        "scratch": scratch if kind.looks_ahead else "",
        "disk_bytes": case.disk_bytes,
        "reuse": case.is_packed_ahead,
        **(partitions.options if case.system == "MariusGNN" else {}),
    }
    with trained_by_stand_in(case.step_seconds):
        result = _pack(path, options) if case.work == "pack" else _train(path, case, options)
    return result | {"preparation_seconds": buffers[0].preparation_seconds if buffers else 0.0}


def partitions_of(case: Case, dataset: Dataset) -> Partitions:
    """Return MariusGNN's partitions: those resident fit in the memory of the other systems' caches."""
    rows = case.cache_bytes / (4 * dataset.feature_dim)
    return partitions_within(max(rows / dataset.num_nodes, SMALLEST_FRACTION), dataset.num_nodes)


def _train(path: Path, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    store, scratch = options["store"], options["scratch"]
    options["store"], after_batch = without_idea(case.without, store) if case.without else (store, lambda: None)
    epochs = _Epochs(after_batch)
    packed_ahead = {str(manifest.parent) for manifest in Path(scratch).rglob(LAYOUT_FILE)} if scratch else set()
    result = train(open_dataset(path), callbacks=[epochs], **options).result
    if case.is_packed_ahead and result["plan"]["layout"] not in packed_ahead:
        sys.exit(f"{path}: what was packed ahead was not found: {result['plan']['reasons']}")
    steady = epochs.records[1:] or epochs.records
    means = {
        name: float(np.mean([record[name] for record in steady]))
        for name, value in steady[-1].items()
        if name not in ("epoch", "loss", "valid") and not isinstance(value, dict)
    }
    return {
        **means,
        "epochs": epochs.records,
        "plan": result["plan"],
        "peak_rss_bytes": peak_rss_bytes(),
        "overhead_bytes": result["overhead_bytes"],
    }


def _pack(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        packed = pack(open_dataset(path), **options)
    except ConfigError as error:
        return {"failed": str(error)}
    epoch = packed.layout.epochs[0]
    return {
        "seconds": time.perf_counter() - started,
        "steps": packed.steps,
        "segment": epoch.segment,
        "disk_bytes": sum(file.stat().st_size for file in packed.layout.path.iterdir()),
        "peak_rss_bytes": peak_rss_bytes(),
    }


class _Epochs(Callback):
    """Records the costs of each epoch, and calls a function after each batch, before the next is requested."""

    def __init__(self, after_batch: Callable[[], object]) -> None:
        self.records: list[dict[str, Any]] = []
        self._after_batch = after_batch
        self._read_before_bytes = transfers().bytes_read

    def batch_done(self, progress: BatchProgress) -> None:
        self._after_batch()

    def epoch_done(self, record: dict[str, Any]) -> bool:
        read_bytes = transfers().bytes_read
        self.records.append({**record, "kernel_bytes": read_bytes - self._read_before_bytes})
        self._read_before_bytes = read_bytes
        return False


def main() -> None:
    path, run = sys.argv[1:]
    document = json.loads(run)
    print(json.dumps(run_case(Path(path), Case(**document["case"]), document["scratch"])))


if __name__ == "__main__":
    main()
