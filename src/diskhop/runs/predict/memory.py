"""The memory of a prediction's whole process; see runs/fitted_memory.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from diskhop.config.hop import HopConfig
from diskhop.config.predict import PredictConfig
from diskhop.config.train import USE
from diskhop.dataset.dataset import Dataset
from diskhop.nn.matmul.products import KEPT_BYTES
from diskhop.planning.overhead import MemoryWish
from diskhop.runs.fitted_memory import PlainNeeds, WorkMemory
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.program_memory import measure_program

_FLOAT_BYTES = 4


def fit_prediction(
    classifier: OpenClassifier, config: PredictConfig, dataset: Dataset, threads: int, processes: int
) -> WorkMemory:
    """Choose the budget of a prediction by a run.

    threads: of all processes. processes: on this machine. Raises BudgetError; see fit_needs().
    """
    wish = MemoryWish(config.memory_bytes, config.total_memory_bytes)
    kept_bytes = _kept_bytes(classifier.config, config, dataset)
    return _fit(classifier.parameters.values(), wish, threads, processes, kept_bytes)


def fit_layers(layers: Any, wish: MemoryWish, threads: int) -> WorkMemory:
    """Choose the budget of a prediction by any model. layers: a module of torch, or several; all else is no model."""
    modules = layers if isinstance(layers, list | tuple) else [layers]
    parameters = [tensor for each in modules if isinstance(each, nn.Module) for tensor in each.parameters()]
    return _fit(parameters, wish, threads, processes=1)


def _kept_bytes(trained: Any, config: PredictConfig, dataset: Dataset) -> int:
    """Return what the model's pool keeps between batches, which have no more rows than the graph."""
    if isinstance(trained, HopConfig) or not (config.fanout or trained.edge_weights == USE):
        return 0  # computed without batches
    nodes = dataset.nodes.values()
    widest = max(int(trained.hidden), *(each.feature_dim for each in nodes))
    return min(KEPT_BYTES, _FLOAT_BYTES * widest * sum(each.num_nodes for each in nodes))


def _fit(
    parameters: Iterable[Tensor], wish: MemoryWish, threads: int, processes: int, kept_bytes: int = 0
) -> WorkMemory:
    """Choose a budget. What layers compute is graph data, and reserved."""
    model_bytes = kept_bytes + sum(each.nbytes for each in parameters)
    needs = PlainNeeds(program=measure_program(0), threads=threads, processes=processes, model_bytes=model_bytes)
    return WorkMemory(needs, wish)
