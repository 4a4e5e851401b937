"""diskhop: train graph neural networks from disk, on one ordinary machine, within a memory budget you name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import DiskhopError

if TYPE_CHECKING:
    from diskhop.dataset.convert.pyg import from_pyg
    from diskhop.hop_loader import HopLoader
    from diskhop.loader import NeighborLoader
    from diskhop.propagation.propagate import propagate
    from diskhop.propagation.spec import PropagationSpec
    from diskhop.report import write_report
    from diskhop.training import complete, embed, evaluate_run, export_embeddings, neighbors, pack, score, train
    from diskhop.training.plan_run import plan_run

__version__ = "0.1.0"
__all__ = [
    "Dataset",
    "DiskhopError",
    "HopLoader",
    "NeighborLoader",
    "PropagationSpec",
    "__version__",
    "complete",
    "embed",
    "evaluate_run",
    "export_embeddings",
    "from_pyg",
    "neighbors",
    "open_dataset",
    "pack",
    "plan_run",
    "propagate",
    "score",
    "train",
    "write_report",
]

# Loaded when first asked for, since they bring PyTorch or DuckDB: importing a graph should not take seconds to start.
_LAZY = {
    "HopLoader": "diskhop.hop_loader",
    "NeighborLoader": "diskhop.loader",
    "PropagationSpec": "diskhop.propagation.spec",
    "complete": "diskhop.training",
    "embed": "diskhop.training",
    "evaluate_run": "diskhop.training",
    "export_embeddings": "diskhop.training",
    "from_pyg": "diskhop.dataset.convert.pyg",
    "neighbors": "diskhop.training",
    "pack": "diskhop.training",
    "plan_run": "diskhop.training.plan_run",
    "propagate": "diskhop.propagation.propagate",
    "score": "diskhop.training",
    "train": "diskhop.training",
    "write_report": "diskhop.report",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'diskhop' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
