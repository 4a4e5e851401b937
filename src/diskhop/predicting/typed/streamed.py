"""A network over relations for all nodes of a type: from the network to tables of its layers' outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
import xxhash

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.nn.reproducible import reproducible
from diskhop.nn.typed.network import TypedNetwork
from diskhop.planning.predict_sizes import reading_outputs_bytes
from diskhop.planning.predict_typed import TypedPassesPlan, plan_typed_passes
from diskhop.predicting.batched.identity import describe_module
from diskhop.predicting.rows import RowTable
from diskhop.predicting.streamed.earlier_blocks import Blocks, plan_with_earlier
from diskhop.predicting.streamed.layers import HIDDEN
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.streamed.run import Computed
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import RANGE_BYTES, GroupRows, LayerTable
from diskhop.predicting.typed.first_rows import GivenRows, digest_of
from diskhop.predicting.typed.relation_passes import RelationPasses
from diskhop.predicting.typed.relation_steps import RelationSteps
from diskhop.predicting.typed.relation_tables import RelationTables, TableKey
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedStreamedRun:
    """A network to compute for all nodes of its target type; see sums_relations().

    dataset: the graph, with its types merged.
    network: the network, in evaluation mode.
    given: rows of types without features.
    wanted: numbers of the layers whose outputs are wanted, from 1.
    budget: memory to reserve from.
    threads: cores.
    tools: engine and fault injector.
    disk: model of the disk.
    held: memory by name that is reserved for all of the work, in bytes.
    progress: receives progress.
    range_bytes: bytes of a table that a crash costs, roughly.
    later: memory by name of what reads the outputs, in bytes; it is planned with, not reserved.
    """

    dataset: Dataset
    network: TypedNetwork
    given: GivenRows
    wanted: frozenset[int]
    budget: Budget
    threads: int
    tools: TaskTools
    disk: DiskModel
    held: Mapping[str, int] = field(default_factory=dict)
    progress: Progress = silent
    range_bytes: int = RANGE_BYTES
    later: Mapping[str, int] = field(default_factory=dict)

    def plan(self) -> TypedPassesPlan:
        """Plan the work. Raises BudgetError with the smallest budget that works."""
        return self._plan(self._tables)

    @contextmanager
    def compute(self, work: WorkFolder, on_plan: Callable[[TypedPassesPlan], None]) -> Iterator[Computed]:
        """Compute what is missing in a work folder, and give access to the wanted outputs.

        Raises BudgetError, PredictionError for values that are not finite, DestinationError.
        """
        tables, settings = self._tables, "\n".join(self._settings())
        plan = plan_with_earlier(work, f"{settings}\nblocks", partial(self._plan, tables), self.tools.injector)
        on_plan(plan)
        layouts = _layouts(tables, plan)
        with ExitStack() as stack:
            stack.enter_context(reproducible(self.threads))
            files = {
                key: [
                    stack.enter_context(self._file(name, layouts[key], num_rows, work, settings))
                    for name, num_rows in _names(tables, key)
                ]
                for key in tables.order.inputs
            }
            for name, num_bytes in self.held.items():
                stack.enter_context(self.budget.reserve(name, num_bytes))
            passes = RelationPasses(
                steps=RelationSteps(tables=tables, layouts=layouts, files=files, plan=plan, engine=self.tools.engine),
                work=TableWork(
                    plan=plan,
                    tables=[file for each in files.values() for file in each],
                    tools=self.tools,
                    budget=self.budget,
                    progress=self.progress,
                    spares=stack.enter_context(SpareFiles(self.tools.injector)),
                ),
            )
            passes.run()
            outputs = {number: self._rows(number, files, layouts, plan) for number in self.wanted}
            reading_bytes = reading_outputs_bytes(tables.wanted_tiles, plan.part_rows, self.threads)
            with self.budget.reserve("reading outputs", reading_bytes):
                yield Computed(outputs, passes.work.steps)

    @property
    def _tables(self) -> RelationTables:
        return RelationTables(self.dataset, self.network, self.given, self.wanted)

    def _plan(self, tables: RelationTables, blocks: Blocks = ()) -> TypedPassesPlan:
        budget = self.budget
        try:
            return plan_typed_passes(
                tables.work(),
                memory_bytes=budget.available_bytes - sum(self.held.values()),
                threads=self.threads,
                engine=self.tools.engine.name,
                disk=self.disk,
                later=self.later,
                blocks=blocks,
            )
        except BudgetError as error:
            budget.require({"computing layers": error.smallest_bytes or 0, **self.held})
            raise

    def _file(self, name: str, layout: Layout, num_rows: int, work: WorkFolder, settings: str) -> LayerTable:
        shape = layout.shape(num_rows)
        key = f"{settings}\n{name} in bands of {shape.widths}"
        return LayerTable(name, shape, work, key, self.tools, self.range_bytes)

    def _settings(self) -> Iterator[str]:
        """Yield everything that tables depend on."""
        yield f"version {_VERSION}"
        yield f"dataset {self.dataset.hash}"
        yield str(sorted(self.given.made.items()))
        for name, rows in self.given.learned.items():
            yield f"{name} {digest_of(rows)}"
        yield f"wanted {sorted(self.wanted)}, torch {torch.__version__}"
        # A digest, since every table has a file with the settings.
        yield xxhash.xxh3_64_hexdigest("\n".join(describe_module("network", self.network)).encode())

    def _rows(
        self,
        number: int,
        files: Mapping[TableKey, Sequence[LayerTable]],
        layouts: Mapping[TableKey, Layout],
        plan: TypedPassesPlan,
    ) -> RowTable:
        key = number, self.network.target
        name = KEPT if layouts[key].has(KEPT) else HIDDEN
        return GroupRows(files[key][0], layouts[key], name, plan.part_rows, self.tools.engine, self.threads)


def _layouts(tables: RelationTables, plan: TypedPassesPlan) -> dict[TableKey, Layout]:
    """Return the layouts of all tables, whose summed groups are cut into blocks."""
    means = [key for key in tables.order.inputs if len(key) == 3]
    blocks = dict(zip(means, plan.blocks, strict=True))
    layouts: dict[TableKey, Layout] = {}
    for key in tables.order.inputs:
        if len(key) == 3:
            layouts[key] = Layout({key[2]: tables.means_dim(key)}, blocks[key])
            continue
        number, node_type = key
        summed = tables.layers[number].summed(node_type) if number < len(tables.layers) else ()
        cut = [tiles for group in summed for tiles in blocks[number + 1, node_type, group]]
        layouts[key] = Layout(tables.groups(key), cut)
    return layouts


def _names(tables: RelationTables, key: TableKey) -> list[tuple[str, int]]:
    """Return the name and the rows of each file of a table."""
    types = tables.types
    if len(key) == 2:
        return [(f"rows-{key[0]}-{types.node_types.index(key[1])}", types.num_nodes[key[1]])]
    places = [edges.ends for edges in types.edges]
    return [(f"means-{key[0]}-{places.index(ends)}", types.num_nodes[ends[2]]) for ends in tables.means_of(key)]
