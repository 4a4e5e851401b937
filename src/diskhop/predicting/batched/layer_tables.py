"""The tables of a model's layers in a work folder: what each needs, and computing those that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_folder, scratch_path
from diskhop.errors import ConfigError
from diskhop.nn.layers.network import Network
from diskhop.nn.reproducible import reproducible
from diskhop.planning.measure import disk_model
from diskhop.plans import SampledPlan, StepPlan
from diskhop.predicting.batched.batches import LayerRun, PlannedLayer, plan_layer
from diskhop.predicting.batched.degrees import loop_bytes, open_loops
from diskhop.predicting.batched.dry_run import LayerCost, dry_run, dry_run_rows
from diskhop.predicting.batched.head import compute_head, head_bytes
from diskhop.predicting.batched.identity import describe_model
from diskhop.predicting.batched.layer_rows import compute_layer
from diskhop.predicting.batched.model_layers import ModelLayer
from diskhop.predicting.batched.modules import twin_of
from diskhop.predicting.batched.table_files import TableFiles
from diskhop.predicting.batched.unroll import Unrolled
from diskhop.predicting.disk import DiskSpace
from diskhop.predicting.row_files import RowFile
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import WorkFolder

_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class LayerTables:
    """Tables of a model, in its work folder.

    tables: tables by the number of their layer: the last one, and those that were asked for.
    plans: plan of each layer that was computed by this call.
    """

    tables: Mapping[int, RowFile]
    plans: Mapping[int, SampledPlan] = field(default_factory=dict)

    @property
    def last(self) -> RowTable:
        """The table of the last layer."""
        return self.tables[max(self.tables)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerPlans:
    """Plans of a model's layers.

    plans: plan of each layer, by its name, as 'layer 1'; jumping knowledge has none.
    table_bytes: bytes of each layer's table.
    work_bytes: bytes of the tables that exist at the same time, at most.
    result_bytes: bytes of the tables that stay.
    first: steps before the layers.
    """

    plans: Mapping[str, SampledPlan]
    table_bytes: Mapping[str, int]
    work_bytes: int
    result_bytes: int
    first: tuple[StepPlan, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The tables of one model on one graph.

    dataset, work, range_bytes, progress, space: see predict_modules().
    model: the layers.
    fanouts: neighbours per layer.
    run_by: memory, threads and strategies.
    network: the model, if other processes can build it.
    """

    dataset: Dataset
    model: Unrolled
    fanouts: Sequence[int]
    run_by: LayerRun
    work: WorkFolder
    range_bytes: int
    progress: Progress
    space: DiskSpace
    network: SharedNetwork[Network] | None = None

    def plan(self, keep: Collection[int]) -> LayerPlans:
        """Plan every layer without computing any, as if nodes had self-loops. keep: see predict_modules()."""
        dims, costs = self._try_layers()
        wanted = self._wanted(keep, costs)
        with ExitStack() as stack:
            if self._counts_loops(costs):
                stack.enter_context(self.run_by.budget.reserve("self-loops", loop_bytes(self.dataset)))
            planned, files = self._plan_layers(sorted(costs), dims, costs)
        tables = TableFiles(files, {number: self._inputs(number) for number in files}, wanted)
        return LayerPlans(
            plans={f"layer {number}": each.plan for number, each in planned.items()},
            table_bytes={f"layer {number}": file.num_bytes for number, file in files.items()},
            work_bytes=tables.most_bytes,
            result_bytes=tables.result_bytes,
        )

    def run(self, keep: Collection[int]) -> LayerTables:
        """Compute what is missing, once all of it is known to fit the memory. keep: see predict_modules()."""
        dims, costs = self._try_layers()
        files = self._open_files(costs)
        tables = TableFiles(files, {number: self._inputs(number) for number in files}, self._wanted(keep, costs))
        self.space.require(self.work, tables.most_bytes, tables.result_bytes)
        missing, tools = tables.missing(), self.run_by.tools
        with ExitStack() as stack:
            loops = None
            if self._counts_loops(missing):
                loops = stack.enter_context(open_loops(self.dataset, self.run_by.budget, self.progress))
            planned, _ = self._plan_layers(missing, dims, costs)
            # Left by a run that ended between finishing a table and removing those that it was made from.
            tables.drop_unused(tools, missing[0] if missing else None)
            for number in missing:
                stage = f"layer {number}"
                if number in planned:
                    below = self._below(number, dims, files)
                    source = ModelLayer(self.model.layers[number - 1], loops, self.network)
                    compute_layer(below, planned[number], files[number], self.run_by, source, self.progress, stage)
                else:
                    self._compute_head(costs[number], files, stage)
                tables.drop_made(tools, number)
        plans = {number: each.plan for number, each in planned.items()}
        return LayerTables({number: files[number] for number in sorted(tables.wanted)}, plans)

    @staticmethod
    def _wanted(keep: Collection[int], costs: Collection[int]) -> set[int]:
        """Return the layers whose tables are wanted. Raises ConfigError for one that does not exist."""
        last = len(costs)
        for number in keep:
            if not 1 <= number <= last:
                raise ConfigError(f"layer {number} does not exist; the model has layers 1 to {last}")
        return {*keep, last}

    def _counts_loops(self, numbers: Collection[int]) -> bool:
        """Return whether some of these layers need the self-loops of nodes."""
        used = any(layer.uses_degrees for layer in self.model.layers if layer.number in numbers)
        return used and not self.run_by.edge_weights

    def _plan_layers(
        self, numbers: Sequence[int], dims: Sequence[int], costs: Mapping[int, LayerCost]
    ) -> tuple[dict[int, PlannedLayer], dict[int, RowFile]]:
        """Plan some layers, ascending. Returns plans by layer, without the head's, and all files as planned for.

        Raises BudgetError for the first layer that does not fit.
        """
        planned = {}
        scratch = None if self.run_by.scratch is None else Path(self.run_by.scratch)
        # Tables of layers are no disks to measure before they have rows.
        run = self.run_by.of_one_process
        run = replace(run, disk=run.disk or disk_model(self.dataset, run.tools.engine.name))
        with self.run_by.refusals_of_all(), scratch_folder(scratch_path(self.dataset.path, scratch)) as folder:
            files = self._files(costs, folder, folder)
            for number in numbers:
                if number == self._head_number:
                    self.run_by.budget.require(
                        head_bytes(costs[number], [files[each] for each in self._inputs(number)])
                    )
                    continue
                if number > 1:
                    with files[number - 1].path.open("wb") as file:  # stores look at the file; it takes no disk space
                        file.truncate(files[number - 1].num_bytes)
                below, layer, fanout = self._below(number, dims, files), self.model.layers[number - 1], self.fanouts
                planned[number] = plan_layer(below, layer, costs[number], files[number], run, fanout=fanout[number - 1])
        return planned, files

    @property
    def _head_number(self) -> int | None:
        return None if self.model.head is None else len(self.model.layers) + 1

    @property
    def _head_label(self) -> str:
        return f"layer {self._head_number} (jumping knowledge)"

    def _try_layers(self) -> tuple[list[int], dict[int, LayerCost]]:
        """Try every layer on a small block. Returns the columns of tables 0, 1, ..., and costs by layer."""
        dims = [self.dataset.feature_dim or self.dataset.made_features.dim]
        costs = {}
        with reproducible(1):
            for layer in self.model.layers:
                costs[layer.number] = dry_run(layer, dims[-1])
                dims.append(costs[layer.number].out_dim)
            if self.model.head is not None:
                costs[len(dims)] = dry_run_rows(self._head_label, twin_of(self.model.head), dims[1:])
        return dims, costs

    def _open_files(self, costs: Mapping[int, LayerCost]) -> dict[int, RowFile]:
        key = "\n".join([f"version {_VERSION}", f"dataset {self.dataset.hash}", *map(str, self._settings())])
        return self._files(costs, self.work.stage("tables", key), self.work.stage("done", key))

    def _files(self, costs: Mapping[int, LayerCost], folder: Path, done: Path) -> dict[int, RowFile]:
        return {
            number: RowFile(f"layer-{number}", folder, done, self.dataset.num_nodes, cost.out_dim, self.range_bytes)
            for number, cost in costs.items()
        }

    def _settings(self) -> Iterator[Any]:
        """Yield everything else that tables depend on."""
        yield self.dataset.made_features
        yield self.fanouts, self.run_by.seed, self.range_bytes
        if self.run_by.edge_weights:
            yield "edge weights"
        yield torch.__version__
        yield describe_model(self.model)

    def _inputs(self, number: int) -> list[int]:
        """Return the tables that a layer reads, without the features."""
        if number == self._head_number:
            return list(range(1, number))
        return [number - 1] if number > 1 else []

    def _below(self, number: int, dims: Sequence[int], files: Mapping[int, RowFile]) -> Dataset:
        """Return the dataset with the table that a layer reads as its features."""
        if number == 1:
            return self.dataset
        return self.dataset.with_rows(files[number - 1].table(), dims[number - 1])

    def _compute_head(self, cost: LayerCost, files: Mapping[int, RowFile], stage: str) -> None:
        head, number = self.model.head, self._head_number
        assert head is not None
        assert number is not None
        inputs = [files[each] for each in self._inputs(number)]
        compute_head(
            self.dataset, self._head_label, head, cost, inputs, files[number], self.run_by, self.progress, stage
        )
