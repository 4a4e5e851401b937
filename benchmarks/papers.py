"""Tools of comparisons with papers: graphs, runs in their own processes, load of the cores, and tables."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cgroups import run_limited
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.io.engine import open_engine
from diskhop.plans import PreparedBytes, SampledPlan, StoreShare
from workloads import evict

HERE = Path(__file__).parent
_READ_BYTES = 1 << 22


def find_graph(path: Path, config: GraphConfig) -> Dataset:
    """Open the dataset, or generate it there."""
    if not path.exists():
        print(f"making {path}", file=sys.stderr, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        generate_graph(path, config, engine=open_engine().engine)
    dataset = open_dataset(path)
    found = (dataset.num_nodes, dataset.num_edges, dataset.feature_dim)
    if found != (config.num_nodes, config.num_edges, config.dim):
        sys.exit(f"{path} is not this benchmark's graph: it has {found} nodes, edges and features; remove it")
    return dataset


def narrow(dataset: Dataset, dim: int) -> Dataset:
    """Return the dataset with rows of `dim` values: the first bytes of the table's file, read as a narrower table."""
    ((name, nodes),) = dataset.manifest.node_types.items()
    assert nodes.features is not None
    features = replace(nodes.features, dim=dim, row_stride=replace(nodes.features, dim=dim).row_bytes)
    return Dataset(dataset.path, replace(dataset.manifest, node_types={name: replace(nodes, features=features)}))


def without_features(dataset: Dataset) -> Dataset:
    """Return the dataset without features, so that a pipeline samples batches and reads no rows."""
    ((name, nodes),) = dataset.manifest.node_types.items()
    return Dataset(dataset.path, replace(dataset.manifest, node_types={name: replace(nodes, features=None)}))


def dataset_bytes(dataset: Dataset) -> int:
    """Return the size of a dataset as the papers define it: features and lists of neighbours."""
    table, files = dataset.feature_table(), dataset.topology
    assert table is not None
    lists_bytes = 8 * (files.num_nodes + 1) + files.index_dtype.itemsize * files.num_edges
    return table.num_rows * table.row_stride + lists_bytes


def cache_lists(dataset: Dataset) -> None:
    """Read the lists into the page cache, in order: a tenth of the time that planning takes to do it by sampling."""
    with dataset.topology.indices_path.open("rb") as lists:
        while lists.read(_READ_BYTES):
            pass


def run_planned(
    script: str, dataset: Dataset, case: Any, plan: SampledPlan, limit_bytes: int | None, most_seconds: float
) -> dict[str, Any]:
    """Run `script DATASET RUN` for a case and its plan; see run_script()."""
    return run_script(script, dataset, {"case": asdict(case), "plan": asdict(plan)}, limit_bytes, most_seconds)


def read_plan(document: dict[str, Any]) -> SampledPlan:
    """Return the plan that run_planned() has passed on."""
    values, share = PreparedBytes(**document["values"]), StoreShare(**document["share"])
    return SampledPlan(**{**document, "values": values, "share": share})


def run_script(
    script: str, dataset: Dataset, run: dict[str, Any], limit_bytes: int | None, most_seconds: float
) -> dict[str, Any]:
    """Run `script DATASET RUN`, RUN as JSON, all files evicted before, and return its output; 'failed' has the reason.

    limit_bytes: limit of its memory control group; None: no group.
    most_seconds: after which it is killed, and its result has 'ran_seconds': a map whose pages the group throws out
        before they are used hardly gets on.
    """
    evict(dataset)
    command = [sys.executable, str(HERE / script), str(dataset.path), json.dumps(run)]
    try:
        done = run_limited(command, limit_bytes, most_seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"did not end in {most_seconds:g} s", "ran_seconds": most_seconds}
    if done.returncode != 0:
        sys.stderr.write(done.errors)
        return {"failed": "killed by its limit" if done.returncode == -9 else f"exit code {done.returncode}"}
    result: dict[str, Any] = json.loads(done.output)
    return result | {"limit_bytes": limit_bytes, "group_peak_bytes": done.peak_bytes}


def is_broken(result: Mapping[str, Any]) -> bool:
    """Return whether a run failed; that it takes too long is a result."""
    return "failed" in result and "ran_seconds" not in result


def print_table(out: Callable[[str], None], heads: list[str], rows: dict[str, list[str]]) -> None:
    """Print a table; a row shorter than the heads is a remark."""
    whole = [heads, *(row for row in rows.values() if len(row) == len(heads))]
    widths = [2 + max(len(row[column]) for row in whole) for column in range(len(heads))]
    name_width = max(map(len, rows))
    for name, row in {"": heads, **rows}.items():
        is_whole = len(row) == len(heads)
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)] if is_whole else ["  ", *row]
        out(f"{name:{name_width}}{''.join(cells)}")


class CpuClock:
    """Records /proc/stat ten times per second while the context is open."""

    _INTERVAL_SECONDS = 0.1

    def __enter__(self) -> CpuClock:
        self._samples: list[tuple[float, list[int]]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(self._INTERVAL_SECONDS):
            with Path("/proc/stat").open() as stat:
                ticks = [int(field) for field in stat.readline().split()[1:9]]
            self._samples.append((time.monotonic(), ticks))

    def between(self, began: float, ended: float) -> dict[str, list[float]]:
        """Return shares of the cores' time by interval: busy, and idle while a thread waits for a disk."""
        inside = [ticks for at, ticks in self._samples if began <= at <= ended]
        spent = [np.subtract(after, before) for before, after in pairwise(inside)]
        # user nice system idle iowait irq softirq steal
        totals = [max(1, int(ticks.sum())) for ticks in spent]
        return {
            "busy": [1 - int(ticks[[3, 4]].sum()) / total for ticks, total in zip(spent, totals, strict=True)],
            "io_wait": [int(ticks[4]) / total for ticks, total in zip(spent, totals, strict=True)],
        }


def sparkline(shares: list[float], width: int = 40) -> str:
    """Draw shares from 0 to 1 as bars, and average neighbouring ones."""
    spans = np.array_split(np.array(shares), min(width, len(shares)))
    return "".join(" ▁▂▃▄▅▆▇█"[round(min(1.0, float(span.mean())) * 8)] for span in spans)
