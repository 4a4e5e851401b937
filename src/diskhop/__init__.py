"""diskhop: train graph neural networks from disk, on one ordinary machine, within a memory budget you name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diskhop.errors import DiskhopError

if TYPE_CHECKING:
    from diskhop.api.clean import clean
    from diskhop.api.dataset import inspect
    from diskhop.api.doctor import doctor
    from diskhop.api.embeddings import map, neighbors, score
    from diskhop.api.evaluate import evaluate
    from diskhop.api.export import export
    from diskhop.api.generate import generate
    from diskhop.api.import_graph import import_graph
    from diskhop.api.pack import pack
    from diskhop.api.plan import plan
    from diskhop.api.predict import predict
    from diskhop.api.propagate import propagate
    from diskhop.api.report import report
    from diskhop.api.task import task
    from diskhop.api.update import compact, update
    from diskhop.api.verify import verify
    from diskhop.dataset.dataset import Dataset, open_dataset
    from diskhop.hops.paths import PathSpec
    from diskhop.hops.spec import PropagationSpec
    from diskhop.importing.arrow_tables import from_arrow
    from diskhop.importing.graph_objects import from_networkx, from_scipy
    from diskhop.importing.pyg.source import from_pyg
    from diskhop.loaders.clusters import ClusterData, ClusterLoader
    from diskhop.loaders.hgt import HGTLoader
    from diskhop.loaders.hops import HopLoader
    from diskhop.loaders.link import LinkNeighborLoader
    from diskhop.loaders.neighbor import NeighborLoader
    from diskhop.loaders.packed import PackedLoader
    from diskhop.loaders.pyg_stores import PygStores
    from diskhop.loaders.saint import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler
    from diskhop.loaders.shadow import ShaDowKHopSampler
    from diskhop.runs.callbacks import Callback, StopWhen
    from diskhop.runs.embedding.features import from_embeddings
    from diskhop.runs.search import search
    from diskhop.runs.start import embed, train
    from diskhop.ui.metrics import MLflowCallback, WandbCallback
    from diskhop.ui.tensorboard import TensorBoardCallback
    from diskhop.ui.terminal import TerminalCallback

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "ClusterData",
    "ClusterLoader",
    "Dataset",
    "DiskhopError",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "HGTLoader",
    "HopLoader",
    "LinkNeighborLoader",
    "MLflowCallback",
    "NeighborLoader",
    "PackedLoader",
    "PathSpec",
    "PropagationSpec",
    "PygStores",
    "ShaDowKHopSampler",
    "StopWhen",
    "TensorBoardCallback",
    "TerminalCallback",
    "WandbCallback",
    "__version__",
    "clean",
    "compact",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "from_arrow",
    "from_embeddings",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "generate",
    "import_graph",
    "inspect",
    "map",
    "neighbors",
    "open_dataset",
    "pack",
    "plan",
    "predict",
    "propagate",
    "report",
    "score",
    "search",
    "task",
    "train",
    "update",
    "verify",
]

# Loaded when first used: NumPy takes a tenth of a second, DuckDB and PyTorch seconds.
_LAZY = {
    "Callback": "diskhop.runs.callbacks",
    "ClusterData": "diskhop.loaders.clusters",
    "ClusterLoader": "diskhop.loaders.clusters",
    "Dataset": "diskhop.dataset.dataset",
    "GraphSAINTEdgeSampler": "diskhop.loaders.saint",
    "GraphSAINTNodeSampler": "diskhop.loaders.saint",
    "GraphSAINTRandomWalkSampler": "diskhop.loaders.saint",
    "HGTLoader": "diskhop.loaders.hgt",
    "HopLoader": "diskhop.loaders.hops",
    "LinkNeighborLoader": "diskhop.loaders.link",
    "MLflowCallback": "diskhop.ui.metrics",
    "NeighborLoader": "diskhop.loaders.neighbor",
    "PackedLoader": "diskhop.loaders.packed",
    "PathSpec": "diskhop.hops.paths",
    "PropagationSpec": "diskhop.hops.spec",
    "PygStores": "diskhop.loaders.pyg_stores",
    "ShaDowKHopSampler": "diskhop.loaders.shadow",
    "StopWhen": "diskhop.runs.callbacks",
    "TensorBoardCallback": "diskhop.ui.tensorboard",
    "TerminalCallback": "diskhop.ui.terminal",
    "WandbCallback": "diskhop.ui.metrics",
    "clean": "diskhop.api.clean",
    "compact": "diskhop.api.update",
    "doctor": "diskhop.api.doctor",
    "embed": "diskhop.runs.start",
    "evaluate": "diskhop.api.evaluate",
    "export": "diskhop.api.export",
    "from_arrow": "diskhop.importing.arrow_tables",
    "from_embeddings": "diskhop.runs.embedding.features",
    "from_networkx": "diskhop.importing.graph_objects",
    "from_pyg": "diskhop.importing.pyg.source",
    "from_scipy": "diskhop.importing.graph_objects",
    "generate": "diskhop.api.generate",
    "import_graph": "diskhop.api.import_graph",
    "inspect": "diskhop.api.dataset",
    "map": "diskhop.api.embeddings",
    "neighbors": "diskhop.api.embeddings",
    "open_dataset": "diskhop.dataset.dataset",
    "pack": "diskhop.api.pack",
    "plan": "diskhop.api.plan",
    "predict": "diskhop.api.predict",
    "propagate": "diskhop.api.propagate",
    "report": "diskhop.api.report",
    "score": "diskhop.api.embeddings",
    "search": "diskhop.runs.search",
    "task": "diskhop.api.task",
    "train": "diskhop.runs.start",
    "update": "diskhop.api.update",
    "verify": "diskhop.api.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'diskhop' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
