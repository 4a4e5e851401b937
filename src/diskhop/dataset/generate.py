"""Made-up graphs of any size with a known answer, streamed to disk.

`sbm`: a stochastic block model. Node v is of class v mod C. A node's features are signal * m[class] + N(0, 1) noise,
with orthonormal m, so that what features alone can tell is known exactly; a share `homophily` of its in-neighbours is
of its own class, so that averaging over neighbours tells more. All draws are keyed by (seed, purpose, block of
nodes).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.progress import Progress, row_ranges, silent, tracked
from diskhop.errors import ConfigError
from diskhop.io.atomic import Injector
from diskhop.io.memory import default_memory_bytes

# Part of the result: another length gives other draws.
_NODES_A_BLOCK = 1 << 13
_DEGREES, _EDGES, _FEATURES, _SPLIT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SbmConfig:
    """mean_degree: of the in-neighbour lists (Poisson). homophily: chance that a neighbour is of the node's own class.

    signal: length of the class means, in standard deviations of the noise. train_fraction: of all nodes; eval_fraction:
    for validation and, as many again, for test.
    """

    num_nodes: int
    dim: int
    num_classes: int
    mean_degree: float
    homophily: float
    signal: float
    train_fraction: float
    eval_fraction: float
    seed: int

    def __post_init__(self) -> None:
        rules = (
            ("num_classes", self.num_classes, self.num_classes >= 2, "at least 2"),
            (
                "num_nodes",
                self.num_nodes,
                2 * self.num_classes <= self.num_nodes < 2**32,
                "2 for each class, below 2^32",
            ),
            ("dim", self.dim, self.num_classes <= _width(self.dim), "so large that a power of 2 holds num_classes"),
            ("mean_degree", self.mean_degree, 0 <= self.mean_degree <= 10_000, "from 0 to 10000"),
            ("homophily", self.homophily, 0 <= self.homophily <= 1, "from 0 to 1"),
            ("signal", self.signal, 0 <= self.signal <= 1000, "from 0 to 1000"),
            ("train_fraction", self.train_fraction, 0 < self.train_fraction <= 1, "more than 0, at most 1"),
            (
                "eval_fraction",
                self.eval_fraction,
                0 < self.eval_fraction <= (1 - self.train_fraction) / 2 + 1e-9,
                "more than 0, at most half of what train_fraction leaves",
            ),
            ("seed", self.seed, 0 <= self.seed < 2**63, "from 0 to 2^63 - 1"),
        )
        for name, value, holds, rule in rules:
            if not holds:
                raise ConfigError(f"{name} must be {rule}, got {value}")


def generate_sbm(
    destination: Path,
    *,
    num_nodes: int,
    dim: int,
    num_classes: int,
    mean_degree: float,
    homophily: float,
    signal: float,
    train_fraction: float,
    eval_fraction: float = 0.02,
    seed: int,
    engine: Engine,
    injector: Injector | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Make a stochastic block model with float32 features; see SbmConfig. Holds a few MiB, whatever the size."""
    config = SbmConfig(
        num_nodes=num_nodes,
        dim=dim,
        num_classes=num_classes,
        mean_degree=mean_degree,
        homophily=homophily,
        signal=signal,
        train_fraction=train_fraction,
        eval_fraction=eval_fraction,
        seed=seed,
    )
    report = progress or silent
    # The lists are drawn in order: nothing is sorted, nothing reserved.
    budget = Budget(default_memory_bytes())
    with DatasetBuilder(destination, name="sbm", engine=engine, budget=budget, threads=1, injector=injector) as builder:
        builder.add_nodes("node", num_nodes)
        builder.require_space(int(num_nodes * (4 * dim + 16 + 4 * mean_degree)))
        features = tracked(_feature_blocks(config), report, "features", num_nodes)
        builder.add_features("node", features, dim=dim, dtype="float32")
        indptr = tracked(_indptr_blocks(config), report, "degrees", num_nodes + 1)
        indices = tracked(_index_blocks(config), report, "edges", round(num_nodes * mean_degree))
        builder.add_edges("edge", "node", "node", indptr=indptr, indices=indices)
        nodes = (np.arange(*block) for block in _node_blocks(config))
        builder.add_labels("node", (block % num_classes for block in nodes), num_classes)
        for part in ("train", "valid", "test"):
            builder.add_split("node", part, _split_blocks(config, part))
        return builder.finish()


def features_alone_accuracy(num_classes: int, signal: float) -> float:
    """The best accuracy that any classifier of a node's own features can reach, classes being equally likely.

    It is the chance that the projection on the node's own class mean, N(signal, 1), exceeds the num_classes - 1 others,
    N(0, 1): the integral of phi(z - signal) * Phi(z)^(num_classes - 1).
    """
    # The integrand is smooth and vanishes at both ends, where the trapezoidal rule converges faster than any power.
    points = np.linspace(signal - 12.0, signal + 12.0, 4001)
    density = np.exp(-0.5 * (points - signal) ** 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-point / math.sqrt(2)) for point in points])
    return float(np.trapezoid(density * below ** (num_classes - 1), points))


def _width(dim: int) -> int:
    """The largest power of 2 that is at most dim; 0 for none."""
    return 1 << (dim.bit_length() - 1) if dim > 0 else 0


def _class_means(config: SbmConfig) -> NDArray[np.float32]:
    """Orthonormal rows (classes, dim): of a Hadamard matrix, so that no single column tells a class; then zeros."""
    width = _width(config.dim)
    rows, columns = np.indices((config.num_classes, width))
    signs = 1 - 2 * (np.bitwise_count(rows & columns) % 2).astype(np.float32)
    means = np.zeros((config.num_classes, config.dim), np.float32)
    means[:, :width] = signs / np.float32(math.sqrt(width))
    return means


def _node_blocks(config: SbmConfig) -> Iterator[tuple[int, int]]:
    return row_ranges(config.num_nodes, _NODES_A_BLOCK)


def _draws(config: SbmConfig, purpose: int, first_node: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64((config.seed, purpose, first_node)))


def _feature_blocks(config: SbmConfig) -> Iterator[NDArray[np.float32]]:
    means = np.float32(config.signal) * _class_means(config)
    for start, stop in _node_blocks(config):
        rows = _draws(config, _FEATURES, start).standard_normal((stop - start, config.dim), np.float32)
        rows += means[np.arange(start, stop) % config.num_classes]
        yield rows


def _degrees(config: SbmConfig, start: int, stop: int) -> NDArray[np.int64]:
    return _draws(config, _DEGREES, start).poisson(config.mean_degree, stop - start)


def _indptr_blocks(config: SbmConfig) -> Iterator[NDArray[np.int64]]:
    num_edges = 0
    for start, stop in _node_blocks(config):
        ends = np.cumsum(_degrees(config, start, stop)) + num_edges
        yield np.concatenate([[num_edges], ends[:-1]])
        num_edges = int(ends[-1])
    yield np.array([num_edges])


def _index_blocks(config: SbmConfig) -> Iterator[NDArray[np.uint32]]:
    """In-neighbours, drawn with replacement, never the node itself, sorted in each list."""
    for start, stop in _node_blocks(config):
        local = np.repeat(np.arange(stop - start), _degrees(config, start, stop))
        nodes = local + start
        draws = _draws(config, _EDGES, start)
        classes = nodes % config.num_classes
        is_same = draws.random(len(nodes)) < config.homophily
        others = (classes + draws.integers(1, config.num_classes, len(nodes))) % config.num_classes
        source_classes = np.where(is_same, classes, others)
        # Members of class c are c, c + C, c + 2 C ...; of its own class a node skips itself.
        members = (config.num_nodes - 1 - source_classes) // config.num_classes + 1
        positions = (draws.random(len(nodes)) * (members - is_same)).astype(np.int64)
        positions += is_same & (positions >= nodes // config.num_classes)
        keys = (local.astype(np.uint64) << np.uint64(32)) | (positions * config.num_classes + source_classes).astype(
            np.uint64
        )
        keys.sort()
        yield keys.astype(np.uint32)


def _split_blocks(config: SbmConfig, part: str) -> Iterator[NDArray[np.int64]]:
    train, one = config.train_fraction, config.eval_fraction
    low, high = {"train": (0.0, train), "valid": (train, train + one), "test": (train + one, train + 2 * one)}[part]
    for start, stop in _node_blocks(config):
        chances = _draws(config, _SPLIT, start).random(stop - start)
        yield np.flatnonzero((chances >= low) & (chances < high)) + start
