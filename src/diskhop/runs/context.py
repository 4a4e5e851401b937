"""The context of a run: its dataset, folder and callback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.dataset.dataset import Dataset
from diskhop.io.atomic import Injector
from diskhop.planning.overhead import Overhead
from diskhop.runs.callbacks import Callback
from diskhop.runs.distributed import Group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunContext:
    """The arguments of every kind of run, in addition to its configuration.

    dataset: the open dataset.
    out: the RUN folder; None leaves nothing on disk.
    resume: continue the run in `out` from its last commit.
    callback: hears of everything the run does.
    injector: stops changes to `out` at chosen points, for crash tests.
    engine: moves partitions; None opens the configured one.
    group: the ranks that run it together. `out` and `callback` are those of rank 0.
    tuning: the entry of result.json about the search that chose options; None without one.
    overhead: predicted memory besides graph data; None where nothing was predicted.
    executor, workers: where the tasks of a run of embeddings run, as --executor; see runtime/executors.py.
    """

    dataset: Dataset
    out: Path | None
    resume: bool
    callback: Callback
    injector: Injector | None = None
    engine: Engine | None = None
    group: Group = field(default_factory=Group)
    tuning: Mapping[str, Any] | None = None
    executor: str = ""
    workers: int | None = None
    overhead: Overhead | None = None
