"""Memory of a device that a run of embeddings needs, within --device-memory."""

from __future__ import annotations

from typing import NamedTuple

from diskhop.budget import format_bytes
from diskhop.config.embed import EmbedConfig
from diskhop.embedding.device.step import device_step_bytes
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import device_known_bytes
from diskhop.errors import BudgetError
from diskhop.planning.embeddings.size import EmbedSize

# Rows of both ends, relation, order, and what sorting the order takes.
_BYTES_PER_EDGE = 8 + 8 + 4 + 8 + 24


class DeviceParts(NamedTuple):
    """Bytes of a device's memory.

    partitions: in the slots.
    edges: of a phase; with --mask-known, of all training, too.
    batch: gradients and scores.
    relations: embeddings and their Adagrad state.
    """

    partitions: int
    edges: int
    batch: int
    relations: int

    def describe(self, config: EmbedConfig) -> str:
        """Describe them in one line."""
        shares = ", ".join(f"{name} {format_bytes(value)}" for name, value in self._asdict().items() if value)
        return f"Device {config.device}: {shares}, of --device-memory {format_bytes(config.device_memory_bytes)}"

    def require(self, config: EmbedConfig, hint: str) -> None:
        """Raise BudgetError where --device-memory is too small. hint: what else would fit, or ''."""
        needed = sum(self)
        if needed > config.device_memory_bytes:
            raise BudgetError(
                f"--device-memory {format_bytes(config.device_memory_bytes)} is too small for {config.partitions} "
                f"partitions, {config.buffer} at a time (partitions {format_bytes(self.partitions)}, edges "
                f"{format_bytes(self.edges)}, batch {format_bytes(self.batch)}); the smallest that works is "
                f"--device-memory {-(-needed // 1_000_000)}MB{hint}"
            )


def relations_bytes(config: EmbedConfig, size: EmbedSize) -> int:
    """Return the bytes of the relations' embeddings and their Adagrad state."""
    score = SCORES[config.model]
    relation_dim = score.relation_dim(config.dim)
    num_rows = size.num_relations * (2 if config.reciprocal else 1) if score.uses_relations else 0
    return 4 * num_rows * (relation_dim + (1 if config.adagrad == "row" else relation_dim))


def device_parts(
    config: EmbedConfig, size: EmbedSize, layout: PartitionLayout, num_slots: int, most_in_phase: int
) -> DeviceParts:
    """Return what a run needs of a device. most_in_phase: edges that are trained in one phase."""
    relation_dim = SCORES[config.model].relation_dim(config.dim)
    return DeviceParts(
        partitions=num_slots * layout.partition_bytes,
        edges=most_in_phase * _BYTES_PER_EDGE + (device_known_bytes(size.num_edges) if config.mask_known else 0),
        batch=device_step_bytes(StepOptions(**config.step_options()), config.dim, relation_dim),
        relations=relations_bytes(config, size),
    )
