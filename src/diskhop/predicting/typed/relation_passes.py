"""Computes the tables of a network over relations within a plan; every table resumes after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.typed.relation_steps import RelationStep, RelationSteps
from diskhop.predicting.typed.relation_tables import MeansKey, TableKey


@dataclass(slots=True, eq=False, kw_only=True)
class RelationPasses:
    """Computes tables.

    steps: the steps.
    work: writes the tables, by the same plan.
    """

    steps: RelationSteps
    work: TableWork

    def run(self) -> None:
        """Compute what is missing."""
        order, files = self.steps.tables.order, self.steps.files
        missing = order.missing(lambda key: all(file.is_complete for file in files[key]))
        self._drop(order.unused(missing[0] if missing else None))  # left by an interrupted run
        for key in missing:
            with torch.no_grad():
                if len(key) == 3:
                    self._write_means(key)
                else:
                    name, stays = self.steps.name(key), key[0] == 0 and self.steps.tables.given.stays(key[1])
                    with self.work.step(name, 0):
                        self.work.write(self.steps, RelationStep(key), name, stays=stays)
            for file in files[key]:
                file.settle()
            self._drop(order.unused(order.after(key)))
        kept = (file for key in order.wanted for file in files[key])
        self.work.spares.clear({file.path: file.shape.num_bytes for file in kept})

    def _drop(self, keys: Sequence[TableKey]) -> None:
        for key in keys:
            for file in self.steps.files[key]:
                self.work.drop(file)

    def _write_means(self, key: MeansKey) -> None:
        """Write means over the relations of a group of a source type's rows, block by block."""
        steps, relations = self.steps, self.steps.tables.means_of(key)
        num_bands = steps.num_bands(key)
        with self.work.step(steps.name(key), num_bands * len(relations)):
            for band in range(num_bands):
                for ends in relations:
                    stage = f"layer {key[0]}: means over {'-'.join(ends)}"
                    self.work.write(steps, RelationStep(key, ends, band), stage)
            steps.release()
