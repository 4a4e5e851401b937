"""A network over relations for all nodes of a type: from the network to tables of its layers' outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
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
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.earlier_blocks import Blocks, plan_with_earlier
from diskhop.predicting.streamed.layers import HIDDEN
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.streamed.run import Computed
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import RANGE_BYTES, GroupRows
from diskhop.predicting.typed.first_rows import GivenRows, digest_of
from diskhop.predicting.typed.open_steps import open_steps
from diskhop.predicting.typed.relation_passes import RelationPasses
from diskhop.predicting.typed.relation_steps import RelationSteps
from diskhop.predicting.typed.relation_tables import RelationTables
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedStreamedRun:
    """A network to compute for all nodes of its target type; see sums_relations().

    dataset: the graph, with its types merged.
    shared: the network, in evaluation mode.
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
    shared: SharedNetwork[TypedNetwork]
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
        with ExitStack() as stack:
            stack.enter_context(reproducible(self.threads))
            steps = open_steps(tables, plan, work, settings, self.tools, stack, self.range_bytes)
            for name, num_bytes in self.held.items():
                stack.enter_context(self.budget.reserve(name, num_bytes))
            passes = RelationPasses(
                steps=steps,
                work=TableWork(
                    plan=plan,
                    tables=[file for each in steps.files.values() for file in each],
                    tools=self.tools,
                    budget=self.budget,
                    progress=self.progress,
                    spares=stack.enter_context(SpareFiles(self.tools.injector)),
                    processes=self.tools.processes,
                ),
            )
            passes.run()
            outputs = {number: self._rows(steps, number) for number in self.wanted}
            reading_bytes = reading_outputs_bytes(tables.wanted_tiles, plan.part_rows, self.threads)
            with self.budget.reserve("reading outputs", reading_bytes):
                yield Computed(outputs, passes.work.steps)

    @property
    def _tables(self) -> RelationTables:
        return RelationTables(self.dataset, self.shared, self.given, self.wanted)

    def _plan(self, tables: RelationTables, blocks: Blocks = ()) -> TypedPassesPlan:
        budget, sharing = self.budget, self.tools.processes_per_machine
        available_bytes = budget.available_bytes - sum(self.held.values())
        try:
            plan = plan_typed_passes(
                tables.work(),
                memory_bytes=max(1, available_bytes // sharing),
                threads=max(1, self.threads // sharing),
                engine=self.tools.engine.name,
                disk=self.disk,
                later={name: -(-num_bytes // sharing) for name, num_bytes in self.later.items()},
                blocks=blocks,
                processes=self.tools.processes,
            )
        except BudgetError as error:
            budget.require({"computing layers": sharing * (error.smallest_bytes or 0), **self.held})
            raise
        return replace(plan, memory_bytes=budget.available_bytes, num_processes=sharing)

    def _settings(self) -> Iterator[str]:
        """Yield everything that tables depend on."""
        yield f"version {_VERSION}"
        yield f"dataset {self.dataset.hash}"
        yield str(sorted(self.given.made.items()))
        for name, rows in self.given.learned.items():
            yield f"{name} {digest_of(rows)}"
        yield f"wanted {sorted(self.wanted)}, torch {torch.__version__}"
        # A digest, since every table has a file with the settings.
        yield xxhash.xxh3_64_hexdigest("\n".join(describe_module("network", self.shared.network)).encode())

    def _rows(self, steps: RelationSteps, number: int) -> RowTable:
        key = number, self.shared.network.target
        layout = steps.layouts[key]
        name = KEPT if layout.has(KEPT) else HIDDEN
        return GroupRows(steps.files[key][0], layout, name, steps.plan.part_rows, self.tools.engine, self.threads)
