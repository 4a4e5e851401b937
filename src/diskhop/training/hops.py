"""A run on tables of hops."""

from __future__ import annotations

from diskhop.budget import Budget
from diskhop.config import HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.training.feeds import PreparedRun
from diskhop.training.seeds import NodeTask
from diskhop.training.watch import Watcher


def prepare_hops(dataset: Dataset, config: HopConfig, task: NodeTask, budget: Budget, watcher: Watcher) -> PreparedRun:
    """Propagate, unless that was done before, and place the tables."""
    raise NotImplementedError
