"""The memory of a prediction's whole process; see runs/fitted_memory.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from diskhop.config.predict import PredictConfig
from diskhop.planning.overhead import MemoryWish
from diskhop.runs.fitted_memory import PlainNeeds, WorkMemory
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.program_memory import measure_program


def fit_prediction(classifier: OpenClassifier, config: PredictConfig, threads: int, processes: int) -> WorkMemory:
    """Choose the budget of a prediction by a run.

    threads: of all processes. processes: on this machine. Raises BudgetError; see fit_needs().
    """
    wish = MemoryWish(config.memory_bytes, config.total_memory_bytes)
    return _fit(classifier.parameters.values(), wish, threads, processes)


def fit_layers(layers: Any, wish: MemoryWish, threads: int) -> WorkMemory:
    """Choose the budget of a prediction by any model. layers: a module of torch, or several; all else is no model."""
    modules = layers if isinstance(layers, list | tuple) else [layers]
    parameters = [tensor for each in modules if isinstance(each, nn.Module) for tensor in each.parameters()]
    return _fit(parameters, wish, threads, processes=1)


def _fit(parameters: Iterable[Tensor], wish: MemoryWish, threads: int, processes: int) -> WorkMemory:
    """Choose a budget. What layers compute is graph data, and reserved."""
    model_bytes = sum(each.nbytes for each in parameters)
    needs = PlainNeeds(program=measure_program(0), threads=threads, processes=processes, model_bytes=model_bytes)
    return WorkMemory(needs, wish)
