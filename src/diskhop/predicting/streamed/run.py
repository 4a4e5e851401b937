"""A built-in network over all nodes of a dataset: from the network to tables of its layers' outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import xxhash

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, PredictionError
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.make.passes import Lists
from diskhop.hops.make.tiles import format_ids
from diskhop.hops.stream.scan import Scan, ScannedLists, read_scan, scanning_bytes
from diskhop.nn.layers.network import Network
from diskhop.nn.reproducible import reproducible
from diskhop.planning.predict import StreamedPlan, plan_streamed
from diskhop.planning.predict_sizes import GraphCounts, StreamedWork, reading_outputs_bytes
from diskhop.predicting.rows import RowTable
from diskhop.predicting.streamed.compute import Computation, StreamedNetwork
from diskhop.predicting.streamed.earlier_blocks import Blocks, plan_with_earlier
from diskhop.predicting.streamed.layers import HIDDEN, StreamedLayer, num_tiles, streamed_layers
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.passes import Streaming
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.streamed.source import first_dim, first_row_bytes, first_rows
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import RANGE_BYTES, GroupRows, LayerTable
from diskhop.protocols import NodeRows
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.system.memory import default_threads


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Outputs of layers for all nodes, on disk until the context ends.

    layers: float32 rows, by the number of the layer from 1.
    steps: name and seconds of each step.
    """

    layers: Mapping[int, RowTable]
    steps: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedRun:
    """A network to compute for all nodes of a dataset.

    dataset: the dataset.
    network: the network, in evaluation mode; its first `num_layers` layers are computed.
    wanted: numbers of the layers whose outputs are wanted, from 1.
    budget: memory to reserve from.
    threads: cores.
    tools: engine and fault injector.
    disk: model of the disk.
    progress: receives progress.
    range_bytes: bytes of a table that a crash costs, roughly.
    later: memory by name of what reads the outputs, in bytes; it is planned with, not reserved.
    """

    dataset: Dataset
    network: Network
    wanted: frozenset[int]
    budget: Budget
    threads: int
    tools: TaskTools
    disk: DiskModel
    progress: Progress = silent
    range_bytes: int = RANGE_BYTES
    later: Mapping[str, int] = field(default_factory=dict)

    def plan(self) -> StreamedPlan:
        """Plan the work without reading the graph, as if every node were a neighbour. Raises BudgetError."""
        layers = streamed_layers(self.network)[: max(self.wanted)]
        return self._plan(self._work(layers, self.dataset.topology.num_nodes))

    def _plan(self, work: StreamedWork, blocks: Blocks = ()) -> StreamedPlan:
        budget = self.budget
        try:
            return plan_streamed(
                work,
                memory_bytes=budget.available_bytes,
                threads=self.threads,
                cores=default_threads(),
                engine=self.tools.engine.name,
                disk=self.disk,
                later=self.later,
                blocks=blocks,
            )
        except BudgetError as error:
            if budget.available_bytes < budget.total_bytes:  # the smallest budget has room for the rest, too
                budget.require({"computing layers": error.smallest_bytes or 0})
            raise

    @contextmanager
    def compute(self, work: WorkFolder, on_plan: Callable[[StreamedPlan], None]) -> Iterator[Computed]:
        """Compute what is missing in a work folder, and give access to the wanted outputs.

        Raises BudgetError, PredictionError for values that are not finite, DestinationError.
        """
        layers = streamed_layers(self.network)[: max(self.wanted)]
        lists = dataset_lists(self.dataset.topology)
        scanned = self._scan(lists, layers[0].weighing != "mean", work)
        plan_layers = partial(self._plan, self._work(layers, scanned.num_sources))
        plan = plan_with_earlier(work, self._key("blocks"), plan_layers, self.tools.injector)
        on_plan(plan)
        layouts = self._layouts(layers, plan.blocks)
        with ExitStack() as stack:
            stack.enter_context(reproducible(self.threads))
            tables = [self._table(stack, work, f"table-{number}", layout) for number, layout in enumerate(layouts)]
            sums = {
                number: self._table(stack, work, f"sums-{number}", Layout({}, layer.blocks[:-1]))
                for number, layer in enumerate(plan.layers)
                if layer.num_blocks > 1
            }
            norms = {
                number: self._table(stack, work, f"norms-{number}", Layout({"norms": 2 * layer.num_heads}))
                for number, layer in enumerate(layers)
                if layer.num_heads
            }
            streaming = Streaming(
                lists=lists,
                scanned=scanned,
                part_rows=plan.part_rows,
                stretch_edges=plan.stretch_edges,
                engine=self.tools.engine,
                threads=plan.threads_per_worker,
            )
            computation = Computation(
                network=StreamedNetwork(layers=layers, layouts=layouts, prepare=self.network.prepared),
                plan=plan,
                tables=tables,
                sums=sums,
                norms=norms,
                kept=self.wanted,
                streaming=streaming,
                open_features=partial(first_rows, self.dataset, engine=self.tools.engine),
                bad_rows=self._not_finite,
                work=TableWork(
                    plan=plan,
                    tables=[*tables, *sums.values(), *norms.values()],
                    engine=self.tools.engine,
                    budget=self.budget,
                    progress=self.progress,
                    spares=stack.enter_context(SpareFiles(self.tools.injector)),
                ),
            )
            computation.run()
            outputs = {number: self._rows(tables[number], layouts[number], plan.part_rows) for number in self.wanted}
            reading_bytes = reading_outputs_bytes(self._wanted_tiles(layers), plan.part_rows, self.threads)
            with self.budget.reserve("reading outputs", reading_bytes):
                yield Computed(outputs, computation.work.steps)

    def _groups(self, layers: Sequence[StreamedLayer], number: int) -> dict[str, int]:
        """Return the columns of a layer's table by name, with those that are kept for other uses."""
        groups = dict(layers[number].groups)
        if number in self.wanted and HIDDEN not in groups:
            groups[KEPT] = layers[number - 1].out_dim
        return groups

    def _layouts(self, layers: Sequence[StreamedLayer], blocks: Blocks) -> list[Layout]:
        layouts = [Layout(self._groups(layers, number), blocks[number]) for number in range(len(layers))]
        return [*layouts, Layout({KEPT: layers[-1].out_dim})]

    def _scan(self, lists: Lists, counts_loops: bool, work: WorkFolder) -> ScannedLists:
        """Scan the lists, or read what an earlier scan found."""
        memory_bytes = self.budget.available_bytes
        folder = work.stage("lists", f"{self.dataset.hash}, loops: {counts_loops}")
        scan = Scan("scan", lists, counts_loops, memory_bytes, self.progress)
        with self.budget.reserve("reading lists", scanning_bytes(lists, memory_bytes)):
            run_tasks([scan], folder, self.tools, threads=1)
        return read_scan(folder / scan.name)

    def _work(self, layers: Sequence[StreamedLayer], num_sources: int) -> StreamedWork:
        topology = self.dataset.topology
        shapes = [layer.shape() for layer in layers]
        kept = [num_tiles(self._groups(layers, number).get(KEPT, 0)) for number in range(len(layers))]
        return StreamedWork(
            layers=tuple(shapes),
            output_tiles=num_tiles(layers[-1].out_dim),
            kept_tiles=tuple(kept),
            wanted_tiles=self._wanted_tiles(layers),
            graph=GraphCounts(
                num_nodes=topology.num_nodes,
                num_edges=topology.num_edges,
                index_bytes=topology.index_dtype.itemsize,
                num_sources=num_sources,
                feature_row_bytes=first_row_bytes(self.dataset),
                feature_dim=first_dim(self.dataset),
            ),
            kept=self.wanted - {len(layers)},
        )

    def _wanted_tiles(self, layers: Sequence[StreamedLayer]) -> int:
        return sum(num_tiles(layers[number - 1].out_dim) for number in self.wanted)

    def _table(self, stack: ExitStack, work: WorkFolder, name: str, layout: Layout) -> LayerTable:
        shape = layout.shape(self.dataset.num_nodes)
        key = self._key(f"{name} in bands of {shape.widths}")
        return stack.enter_context(LayerTable(name, shape, work, key, self.tools, self.range_bytes))

    def _key(self, name: str) -> str:
        """Return a text that differs wherever a byte of a table may."""
        weights = xxhash.xxh3_64()
        for key, tensor in self.network.state_dict().items():
            weights.update(key.encode())
            weights.update(tensor.detach().contiguous().numpy().tobytes())
        facts = {
            "dataset": self.dataset.hash,
            "features": [self.dataset.made_features.kind, self.dataset.made_features.seed],
            "network": repr(self.network),
            "weights": weights.hexdigest(),
            "wanted": sorted(self.wanted),
            "table": name,
        }
        return json.dumps(facts, sort_keys=True)

    def _rows(self, table: LayerTable, layout: Layout, part_rows: int) -> RowTable:
        name = KEPT if layout.has(KEPT) else HIDDEN
        return GroupRows(table, layout, name, part_rows, self.tools.engine, self.threads)

    def _not_finite(self, number: int, rows: Sequence[int]) -> PredictionError:
        ids = format_ids(self.dataset.id_map().ids(NodeRows(rows)))  # type: ignore[arg-type]
        what = "the features" if number == 0 else f"the output of layer {number}"
        noun = "node" if len(rows) == 1 else "nodes"
        return PredictionError(
            f"{self.dataset.path}: {what} for {noun} {ids} has NaN or infinite values; check the features of the "
            "dataset and the weights of the run"
        )
