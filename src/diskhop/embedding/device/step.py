"""A training step on a device: like step.Step, with tables, batches and gradients in the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diskhop.embedding.step.gradients import SOFTMAXES, AnyGradients, Batch, Draws, Gradients, StepOptions
from diskhop.embedding.step.known_edges import KnownBatch
from diskhop.embedding.step.step import EPSILON
from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.contrast_workspace import MOST_DIM, SCORES, Workspace, workspace_bytes
from diskhop.nn.kernels.row_adagrad import update_rows

# Sizes of float32 that looking up one negative among the known answers of one edge takes: six int64.
_VALUES_PER_LOOKUP = 12


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable:
    """Embeddings with their Adagrad state on a device, updated in place; see step.Table.

    values: embeddings, float32 (rows, dim).
    squares: sums of squares, float32 (rows, dim) or (rows, 1).
    """

    values: Tensor
    squares: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEdges:
    """Edges on a device by the rows of their ends in the slots; see EdgeRows.

    sources, destinations: int64 (edges). relations: int32 (edges), or None without relations.
    """

    sources: Tensor
    relations: Tensor | None
    destinations: Tensor

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, order: Tensor) -> DeviceEdges:
        """Return the edges at positions."""
        relations = None if self.relations is None else self.relations[order]
        return DeviceEdges(self.sources[order], relations, self.destinations[order])


class DeviceStep:
    """Trains batches with the same options on the device of the tables. Owns memory for a batch's gradients."""

    def __init__(self, options: StepOptions, nodes: DeviceTable, relations: DeviceTable | None) -> None:
        self._options = options
        self._nodes = nodes
        self._relations = relations
        device, dim = nodes.values.device, nodes.values.shape[1]
        self._grads = torch.empty(options.most_rows, dim, device=device)
        num_relation_rows = 0 if relations is None else 2 * options.batch_size
        relation_dim = 0 if relations is None else relations.values.shape[1]
        self._relation_grads = torch.empty(num_relation_rows, relation_dim, device=device)
        self._gradients = _choose_gradients(options, nodes.values, None if relations is None else relations.values)

    def run(
        self,
        edges: DeviceEdges,
        negatives: Tensor,
        draws: Draws,
        fixed: Sequence[range] = (),
        known: KnownBatch | None = None,
        lr_share: float = 1.0,
    ) -> float:
        """Train a batch; see Step.run(). negatives: rows on the device, (2, chunks, num_negatives)."""
        num_edges = len(edges)
        rows = torch.cat([edges.sources, edges.destinations, negatives.flatten()])
        grads, relation_grads = self._grads[: len(rows)], self._relation_grads[: 2 * num_edges]
        relation_rows = self._relation_rows(edges)
        loss = self._gradients(Batch(num_edges, rows, relation_rows, known, grads, relation_grads), draws)
        if not np.isfinite(loss):
            return loss
        drawn, of_drawn = rows[2 * num_edges :], grads[2 * num_edges :]
        for each in fixed:
            # Gradients of 0 leave a row unchanged.
            of_drawn.masked_fill_(((drawn >= each.start) & (drawn < each.stop))[:, None], 0)
        self._update(self._nodes, rows, grads, lr_share)
        if self._relations is not None and relation_rows is not None:
            self._update(self._relations, relation_rows, relation_grads, lr_share)
        return loss

    def _update(self, table: DeviceTable, rows: Tensor, grads: Tensor, lr_share: float) -> None:
        update_rows(table.values, table.squares, rows, grads, self._options.lr * lr_share, EPSILON)

    def _relation_rows(self, edges: DeviceEdges) -> Tensor | None:
        """Return each edge's relation row for tail queries, then for head queries."""
        if self._relations is None or edges.relations is None:
            return None
        numbers = edges.relations.long()
        reverse = numbers + len(self._relations.values) // 2 if self._options.reciprocal else numbers
        return torch.cat([numbers, reverse])


class KernelGradients:
    """Gradients of softmax losses of some scores without dropout, by Triton's kernels; see Gradients."""

    def __init__(self, options: StepOptions, nodes: Tensor, relations: Tensor | None) -> None:
        self._options = options
        self._nodes = nodes
        self._relations = nodes if relations is None else relations
        self._workspace = Workspace.of(options.batch_size, options.num_negatives, nodes.shape[1], nodes.device)

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """See Gradients."""
        from diskhop.nn.kernels.triton_contrast import EdgeBatch, gradients_by_triton
        from diskhop.nn.kernels.triton_known import KnownAnswers

        options = self._options
        losses = gradients_by_triton(
            EdgeBatch(
                score=options.model,
                with_positive=SOFTMAXES[options.loss],
                is_reciprocal=options.reciprocal,
                num_edges=batch.num_edges,
                chunk_size=options.chunk_size,
                num_negatives=options.num_negatives,
                l2=options.l2,
                n3=options.n3,
                nodes=self._nodes,
                relations=self._relations,
                rows=batch.rows,
                relation_rows=batch.rows if batch.relation_rows is None else batch.relation_rows,
                grads=batch.grads,
                relation_grads=batch.relation_grads,
                workspace=self._workspace,
                known=None if batch.known is None else KnownAnswers(*batch.known),
            )
        )
        return float(losses.sum())


def has_kernels(options: StepOptions, dim: int) -> bool:
    """Return whether Triton's kernels compute a step of these options."""
    return options.model in SCORES and options.loss in SOFTMAXES and not options.dropout and dim <= MOST_DIM


def device_step_bytes(options: StepOptions, dim: int, relation_dim: int) -> int:
    """Return the memory of a DeviceStep on the device in bytes: gradients, sorted rows, and temporaries."""
    rows = options.most_rows * (4 * dim + 6 * 8) + 2 * options.batch_size * (8 * relation_dim + 6 * 8)
    chunk = options.chunk_size * (3 * options.num_negatives + 12 * dim) + 3 * options.num_negatives * dim
    if options.masks_known:
        chunk += _VALUES_PER_LOOKUP * options.chunk_size * options.num_negatives
        # Their places, and what they are made of.
        rows += 4 * 8 * options.most_rows
    # The reference adds up gradients of repeated rows in tensors of their own.
    by_reference = 4 * (chunk + 4 * options.most_rows * dim)
    # Known answers are looked up among sorted negatives.
    by_kernels = workspace_bytes(options.batch_size, options.num_negatives, dim) + options.masks_known * 4 * 8 * (
        options.most_chunks * options.num_negatives
    )
    return rows + (max(by_kernels, by_reference) if has_kernels(options, dim) else by_reference)


def _choose_gradients(options: StepOptions, nodes: Tensor, relations: Tensor | None) -> Gradients:
    if has_kernels(options, nodes.shape[1]) and runs_kernels(nodes):
        return KernelGradients(options, nodes, relations)
    return AnyGradients(options, nodes, relations)
