"""Runs that benchmarks/device_training.py measures, each a turn (see devices.take_turn_on).

All of them train the same model: GraphSAGE, 3 layers of 256, without normalisation and dropout, by Adam. The device's
clock says when it begins and ends each step: events of CUDA on the stream that computes. Between the end of a step and
the begin of the next one the device waits: for the batch, its copy, or Python.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import xxhash
from torch import Tensor
from torch.nn import functional

import diskhop
from devices import Moment, moment, seconds_between
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import map_array
from diskhop.nn.models import Network, SageLayer, fastest_products
from diskhop.runs import training
from diskhop.runs.feeds import Batch, Feed
from diskhop.runs.start import train
from diskhop.runs.sums import LossValue
from diskhop.runs.trainer import Trainer
from diskhop.stores.stores import STORES
from workloads import evict

# Kernels are compiled, and libraries loaded, in the first steps.
WARM_UP_BATCHES = 3
# One that is skipped, and two between which the device waits.
LEAST_BATCHES = 3
LR = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The graph, the model and the memory that all runs train with.

    path: of the dataset.
    device: torch's name of it.
    memory_bytes: budget of runs from disk; runs in memory get the table on top.
    cache_bytes: part of it for stores that have a cache.
    fanout, batch_size, hidden: of the model.
    num_batches: per epoch.
    threads: that sample and read; 0: the default.
    """

    path: Path
    device: str
    memory_bytes: int
    cache_bytes: int
    fanout: tuple[int, ...]
    batch_size: int
    hidden: int
    num_batches: int
    threads: int = 0

    @property
    def dataset(self) -> Dataset:
        """Open the dataset."""
        return open_dataset(self.path)

    def in_memory_bytes(self, dataset: Dataset) -> int:
        """Return the budget of a run that keeps the table in memory."""
        table = dataset.feature_table()
        assert table is not None
        return self.memory_bytes + table.num_rows * table.row_bytes

    def cache_of(self, store: str) -> int:
        """Return the bytes of a store's cache; 0 where the planner chooses."""
        return self.cache_bytes if store != AUTO and "cache" in STORES[store].uses else 0

    def budget_of(self, store: str, dataset: Dataset) -> int:
        """Return the memory of a run by a store."""
        return self.in_memory_bytes(dataset) if store == "memory" else self.memory_bytes


def require_batches(parser: argparse.ArgumentParser, num_batches: int, options: str) -> None:
    """Refuse fewer batches per epoch than can be timed. options: that decide how many there are, with good values."""
    if num_batches < LEAST_BATCHES:
        parser.error(f"an epoch must have at least {LEAST_BATCHES} batches, got {num_batches}; use {options}")


class Step(NamedTuple):
    """When the device began a step, and when it ended."""

    begin: Moment
    end: Moment


def measure(steps: Sequence[Step], stages: dict[str, float], num_skipped: int) -> None:
    """Put seconds per batch and the device's waiting share into stages, from the end of the steps that are skipped on.

    Whoever skips an epoch counts the start of the next one, before its first batch is there. steps: LEAST_BATCHES or
    more.
    """
    timed = steps[min(num_skipped, len(steps) - 2) - 1 :]
    periods = [seconds_between(one.begin, other.begin) for one, other in pairwise(timed[1:])]
    waits = [seconds_between(one.end, other.begin) for one, other in pairwise(timed)]
    stages["seconds"] = statistics.median(periods)
    stages["mean"] = statistics.mean(periods)
    stages["least"], stages["most"] = min(periods), max(periods)
    stages["waiting"] = sum(waits) / seconds_between(timed[0].end, timed[-1].end)


class TimedTrainer(Trainer):
    """Trains as always, and records each step."""

    def __init__(self, *arguments: Any, steps: list[Step]) -> None:
        super().__init__(*arguments)
        self._timed = steps
        self._on = next(self.model.parameters()).device

    def _add_gradients(self, feed: Feed, batch: Batch, epoch: int) -> LossValue:
        self._begin = moment(self._on)
        return super()._add_gradients(feed, batch, epoch)

    def _step(self, rate: float, weight: float) -> None:
        super()._step(rate, weight)
        self._timed.append(Step(self._begin, moment(self._on)))


def train_from_disk(
    setting: Setting, store: str, device_bytes: int, epochs: int, seed: int, stages: dict[str, float]
) -> None:
    """Train as `diskhop train` does, cold. Also records the epochs' losses, waits of the host, copies and reads."""
    dataset, steps = setting.dataset, list[Step]()
    chosen: dict[str, Any] = {"threads": setting.threads} if setting.threads else {}
    evict(dataset)
    started = time.perf_counter()
    with patch.object(training, "Trainer", partial(TimedTrainer, steps=steps)):
        result = train(
            dataset,
            model="sage",
            layers=len(setting.fanout),
            hidden=setting.hidden,
            norm="none",
            dropout=0.0,
            lr=LR,
            fanout=setting.fanout,
            batch_size=setting.batch_size,
            epochs=epochs,
            max_batches=setting.num_batches,
            evaluate=False,
            memory=setting.budget_of(store, dataset),
            store=store,
            cache_bytes=setting.cache_of(store),
            device=setting.device,
            device_memory_bytes=device_bytes,
            seed=seed,
            **chosen,
        ).result
    records: list[dict[str, Any]] = result["epochs"]
    stages["all seconds"] = time.perf_counter() - started
    stages["host waiting"] = sum(each["stall_seconds"] for each in records) / sum(each["seconds"] for each in records)
    for name in ("transfer_seconds", "sample_seconds", "fetch_seconds", "bytes_read"):
        stages[name] = sum(each.get(name, 0) for each in records) / len(steps)
    stages |= {f"loss {number}": each["loss"] for number, each in enumerate(records)}
    measure(steps, stages, len(steps) // epochs if epochs > 1 else WARM_UP_BATCHES)


# A batch on the device: features, edges as the model takes them, labels of the seed nodes.
Moved = tuple[Tensor, Any, Tensor]


def train_in_memory(setting: Setting, threads: int, on_device: bool, stages: dict[str, float]) -> None:
    """Train on batches of the `memory` store: moved by .to(device), or with all features in the device's memory."""
    dataset, device = setting.dataset, torch.device(setting.device)
    table = dataset.feature_table()
    assert table is not None
    with _open_loader(
        setting,
        store="memory",
        memory=setting.in_memory_bytes(dataset),
        threads=threads,
        device=device if on_device else None,
        device_memory=table.num_rows * table.row_bytes if on_device and device.type == "cuda" else None,
    ) as loader:

        def batches() -> Iterator[Moved]:
            for batch in loader:
                y = batch.y[: batch.batch_size]
                block = batch.block.mapped(lambda tensor: tensor.to(device))
                yield batch.x.to(device), block, y.to(device)

        _train(setting, _network(setting, dataset), batches(), stages)


def train_pyg(setting: Setting, num_workers: int, on_device: bool, stages: dict[str, float]) -> None:
    """Train on batches of PyG's NeighborLoader with its GraphSAGE, trimmed by hops where pyg-lib samples.

    Batches are moved by .to(device), or all features are in the device's memory.
    """
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import GraphSAGE

    dataset, device = setting.dataset, torch.device(setting.device)
    files, table = dataset.topology, dataset.feature_table()
    labels, train_ids = dataset.label_rows(), dataset.split_rows("train")
    assert table is not None
    assert labels is not None
    assert train_ids is not None
    indptr = torch.from_numpy(map_array(files.indptr_path, "<i8", files.num_nodes + 1).copy())
    sources = torch.from_numpy(map_array(files.indices_path, files.index_dtype, files.num_edges).astype("<i8"))
    targets = torch.repeat_interleave(torch.arange(files.num_nodes), indptr.diff())
    dim = dataset.feature_dim
    x = torch.from_numpy(map_array(table.path, "<f4", files.num_nodes * dim).copy().reshape(-1, dim))
    features = x.to(device) if on_device else None
    data = Data(edge_index=torch.stack([sources, targets]), y=torch.from_numpy(labels.copy()))
    data.num_nodes = files.num_nodes
    if not on_device:
        data.x = x
    loader = NeighborLoader(
        data, list(setting.fanout), torch.from_numpy(train_ids.copy()), batch_size=setting.batch_size, shuffle=True,
        is_sorted=True, num_workers=num_workers, persistent_workers=num_workers > 0,
    )  # fmt: skip
    model = GraphSAGE(dim, setting.hidden, len(setting.fanout), dataset.num_outputs).to(device)

    def forward(x: Tensor, edges: tuple[Tensor, dict[str, list[int]]]) -> Tensor:
        edge_index, sampled = edges
        out: Tensor = model(x, edge_index, **sampled)
        return out

    def batches() -> Iterator[Moved]:
        for batch in loader:
            rows = batch.x.to(device) if features is None else features[batch.n_id.to(device)]
            # The sampler of torch-sparse does not say what it sampled per hop.
            sampled = {
                f"{name}_per_hop": batch[name] for name in ("num_sampled_nodes", "num_sampled_edges") if name in batch
            }
            yield rows, (batch.edge_index.to(device), sampled), batch.y[: batch.batch_size].to(device)

    forward.parameters = model.parameters  # type: ignore[attr-defined]
    # It takes a multiple of our time.
    num_batches = setting.num_batches if num_workers else min(setting.num_batches, 10)
    _train(replace(setting, num_batches=num_batches), forward, batches(), stages)


def digest_of(setting: Setting, store: str, device_bytes: int | None, device: str | None, num_batches: int) -> str:
    """Return a digest of the first batches of a loader: features, edges, labels and nodes, brought to memory."""
    dataset, digest = setting.dataset, xxhash.xxh3_128()
    with _open_loader(
        setting,
        store=store,
        memory=setting.budget_of(store, dataset),
        ordered=True,
        device=device,
        device_memory=device_bytes or None,
    ) as loader:
        for number, batch in enumerate(loader):
            block = batch.block
            for tensor in (batch.x, batch.edge_index, batch.y, batch.n_id, block.indptr, block.sources):
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
            if number + 1 == num_batches:
                break
    return digest.hexdigest()


def _open_loader(setting: Setting, **options: Any) -> diskhop.NeighborLoader:
    return diskhop.NeighborLoader(
        setting.dataset, list(setting.fanout), "train", batch_size=setting.batch_size, shuffle=True, **options
    )


def _network(setting: Setting, dataset: Dataset) -> Network:
    products = fastest_products()
    return Network(
        lambda in_dim, out_dim, _: SageLayer(in_dim, out_dim, products),
        dataset.feature_dim,
        setting.hidden,
        dataset.num_outputs,
        len(setting.fanout),
    ).to(setting.device)


def _train(setting: Setting, model: Any, batches: Iterator[Moved], stages: dict[str, float]) -> None:
    """Train on one epoch of batches, and record its steps."""
    device = torch.device(setting.device)
    optimizer = torch.optim.Adam(model.parameters(), LR, fused=True)
    steps: list[Step] = []
    for _ in range(setting.num_batches):
        moved = next(batches, None)
        if moved is None:
            break
        x, edges, y = moved
        begin = moment(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, edges)[: len(y)], y)
        torch.autograd.backward(loss)
        loss.item()
        optimizer.step()
        steps.append(Step(begin, moment(device)))
        del moved, x, edges, y, loss
    measure(steps, stages, WARM_UP_BATCHES)


# Work of a turn, which gets stages last.
Work = Callable[..., None]
