"""The model of a typed run on a graph, ready to compute the tables of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from diskhop._native import Engine
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.config.typed import TypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.rows.module import VERSION
from diskhop.embedding.rows.versions import RowsOfVersion, version_path
from diskhop.nn.typed.embeddings import VALUES
from diskhop.predicting.batched.batches import LayerRun
from diskhop.predicting.disk import DiskSpace
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.typed.first_rows import GivenRows
from diskhop.predicting.typed.tables import TypedPrediction
from diskhop.run_files import LEARNED_FOLDER
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.typed.model import RunTypes, learned_name, make_network, types_of_run
from diskhop.runs.typed.prepare import merge_types
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import WorkFolder


def open_typed(
    classifier: OpenClassifier,
    config: TypedConfig,
    dataset: Dataset,
    fanout: Sequence[int],
    run_by: LayerRun,
    work: WorkFolder,
    *,
    space: DiskSpace,
    progress: Progress,
) -> TypedPrediction:
    """Open the model on a dataset, whose merged lists are made if they are missing.

    config: the run's, with matrix products that this machine has. fanout: see Wanted.
    """
    scratch = run_by.scratch or config.scratch
    merging = replace(config, engine=run_by.tools.engine.name, threads=run_by.threads, scratch=scratch)
    merged = merge_types(dataset, merging, run_by.budget, progress)
    types = types_of_run(merged, config)
    build = partial(make_network, types, config, (config.target,), classifier.num_outputs)
    network = build()
    classifier.load_into(network, "network.")
    engine = run_by.tools.engine
    given = GivenRows({name: _learned(classifier, types, name, engine) for name in types.learned}, types.made)
    fanouts = list(fanout or (ALL_NEIGHBORS,)) * (1 if len(fanout) == config.layers else config.layers)
    return TypedPrediction(
        dataset=merged,
        shared=SharedNetwork(network.eval(), build),
        given=given,
        fanouts=fanouts,
        run_by=replace(run_by, held={"learned features": given.learned_bytes}),
        work=work,
        space=space,
        progress=progress,
    )


def _learned(classifier: OpenClassifier, types: RunTypes, node_type: str, engine: Engine) -> Tensor | RowsOfVersion:
    """Return the learned rows of a type, from the model's file or from one of their own."""
    name, parameters = learned_name(node_type), classifier.parameters
    if f"{name}.{VERSION}" not in parameters:
        return parameters[f"{name}.{VALUES}"]
    number, checksum = parameters[f"{name}.{VERSION}"].tolist()
    path = version_path(classifier.path / LEARNED_FOLDER, node_type, number)
    return RowsOfVersion(path, types.place.layouts[node_type], engine, checksum)
