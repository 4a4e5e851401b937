"""diskhop: train graph neural networks from disk, on one ordinary machine, within a memory budget you name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diskhop.errors import DiskhopError

if TYPE_CHECKING:
    from diskhop.dataset.dataset import Dataset, open_dataset
    from diskhop.hops.make.propagate import propagate
    from diskhop.hops.path_tables import propagate_paths
    from diskhop.hops.paths import PathSpec
    from diskhop.hops.spec import PropagationSpec
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
    from diskhop.predicting.call import predict
    from diskhop.report.page import write_report
    from diskhop.runs.embedding.features import from_embeddings
    from diskhop.runs.embedding.queries import complete, score
    from diskhop.runs.evaluate.run import evaluate_run
    from diskhop.runs.export import export_embeddings
    from diskhop.runs.neighbors import neighbors
    from diskhop.runs.nodes.pack_samples import pack_samples
    from diskhop.runs.nodes.packing import pack
    from diskhop.runs.plan import plan_run
    from diskhop.runs.predict.plan import plan_prediction
    from diskhop.runs.predict.run import predict_run
    from diskhop.runs.start import embed, train

__version__ = "0.1.0"
__all__ = [
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
    "NeighborLoader",
    "PackedLoader",
    "PathSpec",
    "PropagationSpec",
    "PygStores",
    "ShaDowKHopSampler",
    "__version__",
    "complete",
    "embed",
    "evaluate_run",
    "export_embeddings",
    "from_embeddings",
    "from_pyg",
    "neighbors",
    "open_dataset",
    "pack",
    "pack_samples",
    "plan_prediction",
    "plan_run",
    "predict",
    "predict_run",
    "propagate",
    "propagate_paths",
    "score",
    "train",
    "write_report",
]

# Loaded when first used: NumPy takes a tenth of a second, DuckDB and PyTorch seconds.
_LAZY = {
    "ClusterData": "diskhop.loaders.clusters",
    "ClusterLoader": "diskhop.loaders.clusters",
    "Dataset": "diskhop.dataset.dataset",
    "GraphSAINTEdgeSampler": "diskhop.loaders.saint",
    "GraphSAINTNodeSampler": "diskhop.loaders.saint",
    "GraphSAINTRandomWalkSampler": "diskhop.loaders.saint",
    "HGTLoader": "diskhop.loaders.hgt",
    "HopLoader": "diskhop.loaders.hops",
    "LinkNeighborLoader": "diskhop.loaders.link",
    "NeighborLoader": "diskhop.loaders.neighbor",
    "PackedLoader": "diskhop.loaders.packed",
    "PathSpec": "diskhop.hops.paths",
    "PropagationSpec": "diskhop.hops.spec",
    "PygStores": "diskhop.loaders.pyg_stores",
    "ShaDowKHopSampler": "diskhop.loaders.shadow",
    "complete": "diskhop.runs.embedding.queries",
    "embed": "diskhop.runs.start",
    "evaluate_run": "diskhop.runs.evaluate.run",
    "export_embeddings": "diskhop.runs.export",
    "from_embeddings": "diskhop.runs.embedding.features",
    "from_pyg": "diskhop.importing.pyg.source",
    "neighbors": "diskhop.runs.neighbors",
    "open_dataset": "diskhop.dataset.dataset",
    "pack": "diskhop.runs.nodes.packing",
    "pack_samples": "diskhop.runs.nodes.pack_samples",
    "plan_prediction": "diskhop.runs.predict.plan",
    "plan_run": "diskhop.runs.plan",
    "predict": "diskhop.predicting.call",
    "predict_run": "diskhop.runs.predict.run",
    "propagate": "diskhop.hops.make.propagate",
    "propagate_paths": "diskhop.hops.path_tables",
    "score": "diskhop.runs.embedding.queries",
    "train": "diskhop.runs.start",
    "write_report": "diskhop.report.page",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'diskhop' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
