"""Computes a built-in network over all nodes, table after table, within a plan.

A table is removed once the next one is complete, unless its rows are wanted. Every table resumes after a crash, with
any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from diskhop.predicting.streamed.steps import Step, StreamedSteps
from diskhop.predicting.streamed.table_work import TableWork


@dataclass(slots=True, eq=False, kw_only=True)
class Computation:
    """Computes the tables of a network.

    steps: the steps.
    kept: numbers of the tables that stay.
    work: writes the tables, by the same plan.
    """

    steps: StreamedSteps
    kept: frozenset[int]
    work: TableWork

    def run(self) -> None:
        """Compute what is missing."""
        tables = self.steps.tables
        last = len(tables) - 1
        first = next((number for number in range(last, -1, -1) if tables[number].is_complete), -1)
        with torch.no_grad():
            if first < 0:
                with self.work.step("read features", 0):
                    self._write(Step("features"), "reading features")
                first = 0
            for number in range(first):  # left by an interrupted run
                self._drop(number)
            for number in range(first, last):
                self._write_norms(number)
                self._write_sums(number)
                with self.work.step(f"layer {number + 1}", 1):
                    self._write(Step("layer", number), f"layer {number + 1}")
                self._drop(number)
        kept = (tables[number] for number in self.kept)
        self.work.spares.clear({table.path: table.shape.num_bytes for table in kept})

    def _write(self, step: Step, stage: str) -> None:
        self.work.write(self.steps, step, stage)
        self.steps.release(step)

    def _drop(self, number: int) -> None:
        """Leave the disk space of what a layer has read to the next tables."""
        steps = self.steps
        steps.tables[number + 1].settle()
        tables = [each[number] for each in (steps.sums, steps.norms) if number in each]
        if number not in self.kept:
            tables.append(steps.tables[number])
        for table in tables:
            self.work.drop(table)

    def _write_norms(self, number: int) -> None:
        """Write the norms of a layer with attention."""
        table, name = self.steps.norms.get(number), f"layer {number + 1}: attention"
        if table is None or table.is_complete:
            return
        with self.work.step(name, 1):
            self._write(Step("norms", number), name)
            table.settle()

    def _write_sums(self, number: int) -> None:
        """Write the sums of all blocks of a layer but the last."""
        table, name = self.steps.sums.get(number), f"layer {number + 1}: first sums"
        if table is None:
            return
        missing = table.missing_bands()
        with self.work.step(name, len(missing)):
            for band in missing:
                self.work.write(self.steps, Step("sums", number, band), name)
            self.steps.release(Step("sums", number))
