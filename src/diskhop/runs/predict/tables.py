"""Outputs of a trained model for all nodes of a dataset, as tables on disk: each kind of model in its own way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import xxhash

from diskhop.budget import Budget
from diskhop.config.hop import HopConfig
from diskhop.config.sampled import ALL_NEIGHBORS, SampledConfig
from diskhop.config.train import USE
from diskhop.config.typed import TypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import remembered_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.make.prepare import shape_of
from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from diskhop.nn.matmul.choice import choose_matmul
from diskhop.nn.matmul.products import Products, require_products
from diskhop.nn.models import (
    HopNetwork,
    Network,
    build_hop_model,
    build_model,
    hidden_dim,
    hops_read,
    num_hop_tables,
)
from diskhop.planning.passes_plan import PassesPlan
from diskhop.predicting.batched.batches import LayerRun
from diskhop.predicting.batched.layer_tables import Prediction
from diskhop.predicting.batched.unroll import unroll
from diskhop.predicting.disk import DiskSpace
from diskhop.predicting.hop_rows import HopRows
from diskhop.predicting.hop_work import HopWork
from diskhop.predicting.predict import predict_modules
from diskhop.predicting.row_files import RANGE_BYTES
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.run import StreamedRun
from diskhop.predicting.typed.streamed import TypedStreamedRun
from diskhop.predicting.typed.tables import TypedPrediction
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.predict.estimates import OutputPlan, plan_hops, plan_of_layers, plan_of_passes
from diskhop.runs.predict.typed import open_typed
from diskhop.runs.predict.wanted import Wanted
from diskhop.runtime.progress import Progress, silent
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
class OutputRun:
    """A trained model, and the dataset to compute it on.

    classifier: the run.
    dataset: the dataset, which fits the run.
    budget: memory to reserve from.
    space: disk space that tables may take, and that predictions will.
    threads: cores.
    tools: engine and fault injector.
    scratch: folder for files of stores and hop tables; None: DATASET/derived.
    later: memory by name of what reads the outputs, in bytes.
    progress: receives progress.
    on_plan: called with a line about the plan before the heavy work.
    """

    classifier: OpenClassifier
    dataset: Dataset
    budget: Budget
    space: DiskSpace
    threads: int
    tools: TaskTools
    scratch: str | None
    later: Mapping[str, int] = field(default_factory=dict)
    progress: Progress = silent
    on_plan: Callable[[str], None] = lambda _: None

    @contextmanager
    def compute(self, wanted: Wanted, work: WorkFolder) -> Iterator[OutputTables]:
        """Compute what is missing in a work folder, and give access to it.

        Raises ConfigError, BudgetError, DestinationError, and PredictionError for values that are not finite.
        """
        if isinstance(self.classifier.config, HopConfig):
            yield self._of_hops(self.classifier.config, wanted, work)
            return
        if isinstance(self.classifier.config, TypedConfig):
            config = self.classifier.config
            opened = self._open_typed(config, wanted, work)
            if wanted.fanout or not opened.is_streamed:
                yield self._of_types(opened, config, wanted)
                return
            with self._passes(
                opened.streamed(_layers_of(config, wanted), self.later), config.layers, wanted, work
            ) as done:
                yield done
            return
        network, wanted = self._network(self.classifier.config), self._in_batches(wanted)
        if wanted.fanout:
            yield self._sampled(network, wanted, work)
            return
        with self._passes(self._streamed(network, wanted), len(network.convs), wanted, work) as done:
            yield done

    @contextmanager
    def _passes(
        self, run: StreamedRun | TypedStreamedRun, last_layer: int, wanted: Wanted, work: WorkFolder
    ) -> Iterator[OutputTables]:
        """Compute layers by passes over neighbour lists."""
        plans: list[PassesPlan] = []

        def planned(plan: PassesPlan) -> None:
            self.space.require(work, plan.work_bytes, plan.result_bytes)
            plans.append(plan)
            self.on_plan(str(plan))

        with run.compute(work, planned) as computed:
            yield OutputTables(
                computed.layers.get(last_layer) if wanted.logits else None,
                computed.layers.get(wanted.layer),
                plans[0].to_dict(),
                computed.steps,
            )

    def require_memory(self, wanted: Wanted) -> None:
        """Raise BudgetError, with the smallest budget that works for all of the work, if outputs cannot be read.

        Nor if a hop model cannot be computed, whose tables would be made in vain.
        """
        config, needed_bytes = self.classifier.config, sum(self.later.values())
        steps = [self.later]
        if isinstance(config, HopConfig):
            steps.append(self._hop_work(config, wanted).held_by_all)
        if all(sum(step.values()) <= self.budget.available_bytes for step in steps):
            return
        try:
            self.plan(wanted)
        except BudgetError as error:
            if (error.smallest_bytes or 0) >= needed_bytes:
                raise
        self.budget.require(self.later)

    def plan(self, wanted: Wanted) -> OutputPlan:
        """Plan what compute() would do, without reading the graph for it. Raises ConfigError, BudgetError."""
        config = self.classifier.config
        if isinstance(config, TypedConfig):
            opened = self._open_typed(config, wanted, WorkFolder(self.dataset.path))
            numbers = _layers_of(config, wanted)
            if opened.is_streamed and not wanted.fanout:
                return plan_of_passes(opened.streamed(numbers, self.later).plan())
            return plan_of_layers(opened.plan(numbers), self.tools.processes_per_machine)
        if isinstance(config, HopConfig):
            self._build_hops(config)()
            return plan_hops(
                self.dataset,
                _spec_of(config),
                self._hop_work(config, wanted),
                self.budget,
                scratch=self.scratch,
                disk=self._disk,
            )
        network, wanted = self._network(config), self._in_batches(wanted)
        if not wanted.fanout:
            return plan_of_passes(self._streamed(network, wanted).plan())
        model = unroll(network)
        run = LayerRun(
            budget=self.budget,
            tools=self.tools,
            threads=self.threads,
            disk=self._disk,
            seed=wanted.seed,
            edge_weights=config.edge_weights == USE,
        )
        work = WorkFolder(self.dataset.path)  # opens no stage, so nothing is created
        fanouts = list(wanted.fanout) * (len(model.layers) // len(wanted.fanout))
        layers = Prediction(
            self._with_features(config), model, fanouts, run, work, RANGE_BYTES, self.progress, self.space
        )
        return plan_of_layers(layers.plan({wanted.layer} - {0}), self.tools.processes_per_machine)

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
            "edge_weights": self.classifier.config.edge_weights,
            "wanted": [wanted.logits, wanted.layer, list(wanted.fanout), wanted.seed],
        }
        return json.dumps(facts, sort_keys=True)

    def _in_batches(self, wanted: Wanted) -> Wanted:
        """Ask for batches with all neighbours where lists cannot be streamed: with weights."""
        is_exact = not wanted.fanout and self.classifier.config.edge_weights == USE
        return replace(wanted, fanout=(ALL_NEIGHBORS,)) if is_exact else wanted

    def _sampled(self, network: Network, wanted: Wanted, work: WorkFolder) -> OutputTables:
        assert isinstance(self.classifier.config, SampledConfig)
        started = time.perf_counter()
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
            space=self.space,
            progress=self.progress,
            tools=self.tools,
            edge_weights=self.classifier.config.edge_weights == USE,
            build=self._build(self.classifier.config),
        )
        plans = {f"layer {number}": plan.to_dict() for number, plan in found.plans.items()}
        steps = [{"step": "layers", "seconds": time.perf_counter() - started}]
        last = found.last if wanted.logits else None
        return OutputTables(last, found.tables.get(wanted.layer), {"layers": plans}, steps)

    def _of_types(self, opened: TypedPrediction, config: TypedConfig, wanted: Wanted) -> OutputTables:
        started = time.perf_counter()
        found = opened.run(_layers_of(config, wanted))
        steps = [{"step": "layers", "seconds": time.perf_counter() - started}]
        plans = {name: plan.to_dict() for name, plan in found.plans.items()}
        logits = found.tables[config.layers] if wanted.logits else None
        return OutputTables(logits, found.tables.get(wanted.layer), {"layers": plans}, steps)

    def _open_typed(self, config: TypedConfig, wanted: Wanted, work: WorkFolder) -> TypedPrediction:
        run = LayerRun(
            budget=self.budget, tools=self.tools, threads=self.threads, scratch=self.scratch, seed=wanted.seed
        )
        return open_typed(
            self.classifier,
            self._with_products(config),
            self.dataset,
            wanted.fanout,
            run,
            work,
            space=self.space,
            progress=self.progress,
        )

    def _of_hops(self, config: HopConfig, wanted: Wanted, work: WorkFolder) -> OutputTables:
        build, hop_work = self._build_hops(config), self._hop_work(config, wanted)
        network = build()
        self.classifier.load_into(network)
        self.budget.require(hop_work.held_by_all)
        self.space.require(work, hop_work.rows_bytes, hop_work.rows_bytes)
        propagated = propagate(
            self.dataset,
            _spec_of(config),
            self.budget,
            disk=self.space.tables_bytes or None,
            scratch=self.scratch,
            threads=self.threads,
            engine=self.tools.engine,
            progress=self.progress,
            executor=self.tools.executor or "",
            on_plan=lambda plan: self.on_plan(str(plan)),
            injector=self.tools.injector,
        )
        tables, started = propagated.tables, time.perf_counter()
        which = _tables_read(config)
        rows = HopRows(
            dataset=self.dataset,
            tables=tables,
            which=(which.start, which.stop),
            network=SharedNetwork(network.eval(), build),
            num_outputs=self.classifier.num_outputs,
            hidden_dim=_hidden_dim(config, wanted),
            work=hop_work,
        )
        self.space.require(work, hop_work.rows_bytes, hop_work.rows_bytes)
        key = self.key(wanted)
        folder, done = work.stage("outputs", key), work.stage("outputs-done", key)
        found = rows.compute(folder, done, self.budget, self.tools, self.progress)
        steps = [*propagated.steps, {"step": "model", "seconds": time.perf_counter() - started}]
        return OutputTables(found["logits"], found.get("embedding"), {"tables": str(tables.path)}, steps)

    def _hop_work(self, config: HopConfig, wanted: Wanted) -> HopWork:
        return HopWork(
            shape=shape_of(self.dataset, _spec_of(config)),
            num_tables=len(_tables_read(config)),
            dim=self.classifier.num_outputs + _hidden_dim(config, wanted),
            threads=self.threads,
            most_processes=self.tools.processes_per_machine,
        )

    def _network(self, config: SampledConfig) -> Network:
        network = self._build(config)()
        self.classifier.load_into(network)
        return network.eval()

    def _build(self, config: SampledConfig) -> Callable[[], Network]:
        """Return what makes the network with random weights, also in another process."""
        dims = self.classifier.schema.feature_dim, self.classifier.num_outputs
        return partial(build_model, self._with_products(config), *dims)

    def _build_hops(self, config: HopConfig) -> Callable[[], HopNetwork]:
        """Return what makes the network of a hop model with random weights, also in another process."""
        schema = self.classifier.schema
        dims = schema.feature_dim, len(_tables_read(config)), schema.num_outputs
        return partial(build_hop_model, self._with_products(config), *dims)

    def _streamed(self, network: Network, wanted: Wanted) -> StreamedRun:
        assert isinstance(self.classifier.config, SampledConfig)
        return StreamedRun(
            dataset=self._with_features(self.classifier.config),
            network=network,
            wanted=frozenset({len(network.convs)} if wanted.logits else set()) | ({wanted.layer} - {0}),
            budget=self.budget,
            threads=self.threads,
            tools=self.tools,
            disk=self._disk,
            progress=self.progress,
            later=self.later,
            build=self._build(self.classifier.config),
        )

    @property
    def _disk(self) -> DiskModel:
        return remembered_model(self.dataset.path, self.tools.engine.name)

    def _with_features(self, config: SampledConfig) -> Dataset:
        if self.dataset.feature_table() is None and config.features:
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


def _spec_of(config: HopConfig) -> PropagationSpec:
    """Return the spec of hop tables of all nodes."""
    return PropagationSpec(
        operators=config.operators,
        hops=config.hops,
        direction=config.direction,
        dtype=config.dtype,
        edge_weights=config.edge_weights,
    )


def _tables_read(config: HopConfig) -> range:
    """Return the numbers of the hop tables that the model reads."""
    return hops_read(config.model, num_hop_tables(config))


def _layers_of(config: TypedConfig, wanted: Wanted) -> set[int]:
    """Return the layers whose tables are wanted."""
    return ({config.layers} if wanted.logits else set()) | ({wanted.layer} - {0})


def _hidden_dim(config: HopConfig, wanted: Wanted) -> int:
    return hidden_dim(config) if wanted.layer else 0
