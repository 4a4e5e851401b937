"""The tables of a model's layers in a work folder: which are missing, what they need, and when they are removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import free_bytes
from diskhop.errors import ConfigError, DestinationError
from diskhop.nn.reproducible import reproducible
from diskhop.plans import SampledPlan
from diskhop.predict.batched.batches import LayerRun, compute_layer
from diskhop.predict.batched.dry_run import LayerCost, dry_run, dry_run_rows
from diskhop.predict.batched.head import compute_head
from diskhop.predict.batched.identity import describe_model
from diskhop.predict.batched.modules import twin_of
from diskhop.predict.batched.unroll import Unrolled
from diskhop.predict.row_files import RowFile
from diskhop.predict.rows import RowTable
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


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The tables of one model on one graph.

    dataset, work, range_bytes, progress: see predict_modules().
    model: the layers.
    fanouts: neighbours per layer.
    run_by: memory, threads and strategies.
    """

    dataset: Dataset
    model: Unrolled
    fanouts: Sequence[int]
    run_by: LayerRun
    work: WorkFolder
    range_bytes: int
    progress: Progress

    def run(self, keep: Collection[int]) -> LayerTables:
        """Compute what is missing. keep: see predict_modules()."""
        dims, costs = self._try_layers()
        last = len(costs)
        for number in keep:
            if not 1 <= number <= last:
                raise ConfigError(f"layer {number} does not exist; the model has layers 1 to {last}")
        wanted = {*keep, last}
        files = self._open_files(costs)
        self._require_disk(files, wanted)
        plans: dict[int, SampledPlan] = {}
        missing = self._missing(files, wanted)
        # Left by a run that ended between finishing a table and removing those that it was made from.
        self._drop_unused(files, wanted, min(missing, default=last + 1) - 1)
        for number in missing:
            plan = self._compute(number, dims, costs[number], files)
            if plan is not None:
                plans[number] = plan
            self._drop_unused(files, wanted, number)
        return LayerTables({number: files[number] for number in sorted(wanted)}, plans)

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
        folder, done = self.work.stage("tables", key), self.work.stage("done", key)
        return {
            number: RowFile(f"layer-{number}", folder, done, self.dataset.num_nodes, cost.out_dim, self.range_bytes)
            for number, cost in costs.items()
        }

    def _settings(self) -> Iterator[Any]:
        """Yield everything else that tables depend on."""
        yield self.dataset.made_features
        yield self.fanouts, self.run_by.seed, self.range_bytes
        yield torch.__version__
        yield describe_model(self.model)

    def _inputs(self, number: int) -> list[int]:
        """Return the tables that a layer reads, without the features."""
        if number == self._head_number:
            return list(range(1, number))
        return [number - 1] if number > 1 else []

    def _missing(self, files: Mapping[int, RowFile], wanted: Collection[int]) -> list[int]:
        """Return the layers to compute, in order: wanted ones that are not complete, and what they need."""
        missing: set[int] = set()
        pending = [number for number in wanted if not files[number].is_complete()]
        while pending:
            number = pending.pop()
            if number not in missing:
                missing.add(number)
                pending += [each for each in self._inputs(number) if not files[each].is_complete()]
        return sorted(missing)

    def _drop_unused(self, files: Mapping[int, RowFile], wanted: Collection[int], done: int) -> None:
        """Remove tables that only layers up to `done` read."""
        read_later = {each for number in files if number > done for each in self._inputs(number)}
        for number, file in files.items():
            if number <= done and number not in wanted and number not in read_later:
                file.drop(self.run_by.tools)

    def _require_disk(self, files: Mapping[int, RowFile], wanted: Collection[int]) -> None:
        """Raise DestinationError if the tables that exist at the same time do not fit the disk."""
        most_bytes = 0
        for number in files:
            read = {each for later in files if later >= number for each in self._inputs(later)}
            alive = {each for each in files if each <= number and (each in wanted or each in read)} | {number}
            most_bytes = max(most_bytes, sum(files[each].num_bytes for each in alive))
        folder = self.work.path.parent
        free = free_bytes(folder) + self.work.kept_bytes()
        if most_bytes > free:
            raise DestinationError(
                f"{folder}: the tables of the layers take {format_bytes(most_bytes)}, only {format_bytes(free)} are "
                "free; free some space or choose another disk with --scratch"
            )

    def _compute(
        self, number: int, dims: Sequence[int], cost: LayerCost, files: Mapping[int, RowFile]
    ) -> SampledPlan | None:
        tell = partial(self.progress, f"layer {number}")
        head, out = self.model.head, files[number]
        if head is not None and number == self._head_number:
            inputs = [files[each] for each in self._inputs(number)]
            compute_head(self.dataset, self._head_label, head, cost, inputs, out, self.run_by, tell)
            return None
        below = self.dataset if number == 1 else self.dataset.with_rows(files[number - 1].table(), dims[number - 1])
        layer, fanout = self.model.layers[number - 1], self.fanouts[number - 1]
        return compute_layer(below, layer, cost, out, self.run_by, fanout=fanout, progress=tell)
