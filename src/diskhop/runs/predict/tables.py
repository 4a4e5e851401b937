"""Outputs of a trained model for all nodes of a dataset, as tables on disk: each kind of model in its own way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from diskhop.budget import Budget
from diskhop.config.train import HopConfig, SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError
from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from diskhop.nn.matmul.choice import choose_matmul
from diskhop.nn.matmul.products import Products, require_products
from diskhop.nn.models import Network, build_hop_model, build_model, hops_read
from diskhop.planning.predict import StreamedPlan
from diskhop.predict.hop_rows import HopRows
from diskhop.predict.predict import predict_modules
from diskhop.predict.rows import RowTable
from diskhop.predict.streamed.run import StreamedRun
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder


@dataclass(frozen=True, slots=True, eq=False)
class OutputTables:
    """Outputs of a model.

    logits, embedding: rows of all nodes; None where they were not asked for.
    plan: how they were computed, for a manifest.
    steps: name and seconds of each step.
    """

    logits: RowTable | None
    embedding: RowTable | None
    plan: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """Outputs to compute.

    logits: whether the last layer's outputs are wanted.
    layer: number of the layer whose output is the embedding, from 1; 0 for no embedding.
    fanout: neighbours per layer; () for all.
    seed: random seed of sampled neighbours.
    """

    logits: bool = True
    layer: int = 0
    fanout: tuple[int, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputRun:
    """A trained model, and the dataset to compute it on.

    classifier: the run.
    dataset: the dataset, which fits the run.
    budget: memory to reserve from.
    threads: cores.
    tools: engine and fault injector.
    scratch: folder for files of stores and hop tables; None: DATASET/derived.
    progress: receives progress.
    on_plan: called with a line about the plan before the heavy work.
    """

    classifier: OpenClassifier
    dataset: Dataset
    budget: Budget
    threads: int
    tools: TaskTools
    scratch: str | None
    progress: Progress
    on_plan: Callable[[str], None]

    @contextmanager
    def compute(self, wanted: Wanted, work: WorkFolder) -> Iterator[OutputTables]:
        """Compute what is missing in a work folder, and give access to it.

        Raises ConfigError, BudgetError, DestinationError, and PredictionError for values that are not finite.
        """
        if isinstance(self.classifier.config, HopConfig):
            yield self._of_hops(self.classifier.config, wanted, work)
            return
        network = self._network(self.classifier.config)
        if wanted.fanout:
            yield self._sampled(network, wanted, work)
            return
        layers = frozenset({len(network.convs)} if wanted.logits else set()) | ({wanted.layer} - {0})
        run = StreamedRun(
            dataset=self._with_features(self.classifier.config),
            network=network,
            wanted=layers,
            budget=self.budget,
            threads=self.threads,
            tools=self.tools,
            disk=remembered_model(self.dataset.path, self.tools.engine.name),
            progress=self.progress,
        )
        plans = []

        def planned(plan: StreamedPlan) -> None:
            plans.append(plan)
            self.on_plan(str(plan))

        with run.compute(work, planned) as computed:
            yield OutputTables(
                computed.layers.get(len(network.convs)) if wanted.logits else None,
                computed.layers.get(wanted.layer),
                plans[0].to_dict(),
                computed.steps,
            )

    def key(self, wanted: Wanted) -> str:
        """Return a text that differs wherever a byte of the outputs may."""
        weights = xxhash.xxh3_64()
        for name, tensor in self.classifier.parameters.items():
            weights.update(name.encode())
            weights.update(tensor.contiguous().numpy().tobytes())
        facts = {
            "dataset": self.dataset.hash,
            "weights": weights.hexdigest(),
            "model": self.classifier.config.model,
            "matmul": self._products(self.classifier.config).backend,
            "wanted": [wanted.logits, wanted.layer, list(wanted.fanout), wanted.seed],
        }
        return json.dumps(facts, sort_keys=True)

    def _sampled(self, network: Network, wanted: Wanted, work: WorkFolder) -> OutputTables:
        assert isinstance(self.classifier.config, SampledConfig)
        found = predict_modules(
            self._with_features(self.classifier.config),
            network,
            self.budget,
            work,
            fanout=wanted.fanout if len(wanted.fanout) > 1 else wanted.fanout[0],
            seed=wanted.seed,
            keep=[wanted.layer] if wanted.layer else [],
            threads=self.threads,
            scratch=self.scratch,
            progress=self.progress,
            tools=self.tools,
        )
        plans = {f"layer {number}": plan.to_dict() for number, plan in found.plans.items()}
        return OutputTables(
            found.last if wanted.logits else None, found.tables.get(wanted.layer), {"layers": plans}, []
        )

    def _of_hops(self, config: HopConfig, wanted: Wanted, work: WorkFolder) -> OutputTables:
        spec = PropagationSpec(
            operators=config.operators, hops=config.hops, direction=config.direction, dtype=config.dtype
        )
        propagated = propagate(
            self.dataset,
            spec,
            self.budget,
            scratch=self.scratch,
            threads=self.threads,
            engine=self.tools.engine,
            progress=self.progress,
            on_plan=lambda plan: self.on_plan(str(plan)),
            injector=self.tools.injector,
        )
        tables = propagated.tables
        which = hops_read(config.model, tables.num_tables)
        num_outputs = self.classifier.schema.num_outputs
        network = build_hop_model(self._with_products(config), tables.dim, len(which), num_outputs)
        network.load_state_dict(self.classifier.parameters)
        rows = HopRows(
            dataset=self.dataset,
            tables=tables,
            which=which,
            network=network.eval(),
            budget=self.budget,
            threads=self.threads,
            tools=self.tools,
            progress=self.progress,
        )
        key = self.key(wanted)
        hidden = config.hidden if wanted.layer else 0
        found = rows.compute(work.stage("outputs", key), work.stage("outputs-done", key), hidden, num_outputs)
        return OutputTables(found["logits"], found.get("embedding"), {"tables": str(tables.path)}, propagated.steps)

    def _network(self, config: SampledConfig) -> Network:
        schema = self.classifier.schema
        network = build_model(self._with_products(config), schema.feature_dim, schema.num_outputs)
        network.load_state_dict(self.classifier.parameters)
        return network.eval()

    def _with_features(self, config: SampledConfig) -> Dataset:
        if self.dataset.features() is None and config.features:
            return self.dataset.with_made_features(config.features, config.seed)
        return self.dataset

    def _with_products(self, config: Any) -> Any:
        return replace(config, matmul=self._products(config).backend)

    def _products(self, config: SampledConfig | HopConfig) -> Products:
        """Return the run's matrix products, or others where this machine has not the run's."""
        products = Products(config.matmul, config.precision)
        try:
            require_products(products)
        except ConfigError:
            products = Products(choose_matmul(config.precision).backend, config.precision)
        return products


def scratch_of(path: Path, scratch: str) -> Path:
    """Return the path whose work folder has the tables between layers: next to predictions, or in --scratch."""
    return Path(scratch) / path.name if scratch else path
