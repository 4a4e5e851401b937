"""One pass over a split: forward, loss, step; or forward, metric.

Everything random is keyed by (seed, epoch, batch): a pass gives the same values wherever the run was started from.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from diskhop._native import keyed_permutation
from diskhop.batch_stream import BatchStream, MiniBatch
from diskhop.config import ALL_NEIGHBORS, TrainConfig
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.errors import TrainingError
from diskhop.models import Block, build_model
from diskhop.pipeline import Pipeline
from diskhop.protocols import NodeIds, Purpose
from diskhop.training.metrics import METRICS
from diskhop.training.seeds import shuffled_seeds
from diskhop.training.watch import Progress, Watcher

# What the pipeline gives for a graph without features: a constant and log(1 + in-degree).
_STRUCTURE_DIM = 2
_INITIALISATION = -1


class NodeTrainer:
    """A model and its optimiser, and the passes that use them. labels: see Dataset.labels()."""

    def __init__(self, dataset: Dataset, labels: NDArray[Any], config: TrainConfig, watcher: Watcher) -> None:
        torch.manual_seed(_key(config.seed, _INITIALISATION, 0))
        in_dim = dataset.feature_dim or _STRUCTURE_DIM
        self.model = build_model(config, in_dim, dataset.num_tasks or dataset.num_classes)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self._labels = labels
        self._config = config
        self._watcher = watcher
        self._started = time.perf_counter()
        self._first_epoch: int | None = None

    def train_pass(self, pipeline: Pipeline, ids: NodeIds, epoch: int) -> dict[str, Any]:
        """One epoch of steps, seeds in an order of its own; returns its record.

        Where samples are reused, seeds and draws are those of the first epoch, and batches come in an order of its own.
        """
        config = self._config
        # Sampled degrees, as PyG; with all neighbours the whole graph's are the sampled ones, and exact at the rim too.
        draws_all = all(count == ALL_NEIGHBORS for count in config.fanout)
        sampled_epoch = 0 if config.reuse else epoch
        shuffled = shuffled_seeds(ids, config.seed, sampled_epoch)
        loss_sum = 0.0
        num_seeds = 0
        self.model.train()
        passed = _Pass()
        with pipeline.run(
            shuffled,
            purpose=Purpose.TRAIN,
            epoch=sampled_epoch,
            fanouts=config.fanout,
            batch_size=config.batch_size,
            seed=config.seed,
            max_batches=config.max_batches or None,
            order=None if sampled_epoch == epoch else self._reuse_order(len(ids), epoch),
            with_in_degrees=draws_all and self.model.uses_degrees,
        ) as batches:
            for batch in batches:
                with passed.computing(batch):
                    loss = self._step(batch, epoch)
                loss_sum += loss * batch.sampled.num_seeds
                num_seeds += batch.sampled.num_seeds
                del batch  # The plan counts on it: a batch that is held while the next comes is one more than reserved.
                self._report("train", epoch, passed.num_batches, batches, loss)
        return {"epoch": epoch, "loss": loss_sum / num_seeds, **passed.record()}

    @torch.no_grad()
    def evaluate(self, pipeline: Pipeline, ids: NodeIds, purpose: Purpose, epoch: int) -> tuple[float, dict[str, Any]]:
        """The metric over all seeds, and what the pass took. Draws are the same in every epoch: epochs compare."""
        config = self._config
        metric = METRICS[config.metric]()
        self.model.eval()
        passed = _Pass()
        with pipeline.run(
            ids,
            purpose=purpose,
            epoch=0,
            fanouts=config.eval_fanout,
            batch_size=config.eval_batch_size,
            seed=config.seed,
            with_in_degrees=self.model.uses_degrees,
        ) as batches:
            for batch in batches:
                with passed.computing(batch):
                    metric.update(self._forward(batch).numpy(), self._labels[_seeds_of(batch)])
                del batch  # As in training.
                self._report(purpose.name.lower(), epoch, passed.num_batches, batches, None)
        return metric.value(), passed.record()

    def _reuse_order(self, num_seeds: int, epoch: int) -> Sequence[int]:
        """The first epoch's batches, by number, as a later one takes them."""
        num_batches = -(-num_seeds // self._config.batch_size)
        num_batches = min(num_batches, self._config.max_batches or num_batches)
        order: list[int] = keyed_permutation(num_batches, self._config.seed, int(Purpose.BATCH_ORDER), epoch).tolist()
        return order

    def parameters(self) -> dict[str, Tensor]:
        """A copy of the model's state."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _step(self, batch: MiniBatch, epoch: int) -> float:
        """One step of the optimiser; returns the loss before it. Nothing of the batch is left when it returns."""
        torch.manual_seed(_key(self._config.seed, epoch, batch.sampled.number))
        self.optimizer.zero_grad()
        loss = self._loss(batch)
        value = loss.item()
        if not np.isfinite(value):
            raise TrainingError(
                f"the loss is {value} in epoch {epoch}, batch {batch.sampled.number}, with learning rate "
                f"{self._config.lr}: try a smaller --lr, and check the features for very large values"
            )
        torch.autograd.backward(loss)
        self.optimizer.step()
        return value

    def _forward(self, batch: MiniBatch) -> Tensor:
        rows = None if batch.rows is None else torch.from_numpy(batch.rows.astype(np.int32))
        scores: Tensor = self.model(batch.x, Block.of(batch.sampled, batch.in_degrees, rows))
        return scores

    def _loss(self, batch: MiniBatch) -> Tensor:
        scores = self._forward(batch)
        labels = torch.from_numpy(self._labels[_seeds_of(batch)])
        if labels.ndim == 1:
            return functional.cross_entropy(scores, labels)
        is_known = ~labels.isnan()
        return functional.binary_cross_entropy_with_logits(scores[is_known], labels[is_known])

    def _report(self, stage: str, epoch: int, batch: int, batches: BatchStream, loss: float | None) -> None:
        num_epochs = self._config.epochs
        if self._first_epoch is None:
            self._first_epoch, self._started = epoch, time.perf_counter()
        done = epoch - self._first_epoch + (batch / len(batches) if stage == "train" else 1)
        seconds = time.perf_counter() - self._started
        seconds_left = seconds * (num_epochs - self._first_epoch - done) / done if seconds > 1 else None
        self._watcher.progressed(
            Progress(
                stage=stage,
                epoch=epoch,
                num_epochs=num_epochs,
                batch=batch,
                num_batches=len(batches),
                loss=loss,
                seconds_left=seconds_left,
            )
        )


class _Pass:
    """What a pass took, batch by batch."""

    def __init__(self) -> None:
        self.num_batches = 0
        self._started = time.perf_counter()
        self._counts = FetchCounts()
        self._sample_seconds = 0.0
        self._stall_seconds = 0.0
        self._compute_seconds = 0.0
        self._computing_since = 0.0

    def computing(self, batch: MiniBatch) -> _Pass:
        """A context for the work on a batch."""
        self.num_batches += 1
        self._counts.add(batch.counts)
        self._sample_seconds += batch.sample_seconds
        self._stall_seconds += batch.stall_seconds
        return self

    def __enter__(self) -> None:
        self._computing_since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._compute_seconds += time.perf_counter() - self._computing_since

    def record(self) -> dict[str, Any]:
        """By the names of result.json."""
        return {
            "seconds": time.perf_counter() - self._started,
            "batches": self.num_batches,
            "sample_seconds": self._sample_seconds,
            "fetch_seconds": self._counts.seconds,
            "compute_seconds": self._compute_seconds,
            "stall_seconds": self._stall_seconds,
            "rows_requested": self._counts.rows_requested,
            "rows_hit": self._counts.rows_hit,
            "rows_shared": self._counts.rows_shared,
            "rows_filled": self._counts.rows_filled,
            "reads": self._counts.reads,
            "bytes_needed": self._counts.bytes_needed,
            "bytes_read": self._counts.bytes_read,
            **self._packing(),
        }

    def _packing(self) -> dict[str, Any]:
        """What packing took, where it went on beside training."""
        names = ("packing_seconds", "packing_bytes_read", "packing_bytes_written")
        found = {name: getattr(self._counts, name) for name in names}
        return found if found["packing_bytes_written"] else {}


def _seeds_of(batch: MiniBatch) -> NodeIds:
    return batch.sampled.node_ids[: batch.sampled.num_seeds]


def _key(seed: int, epoch: int, number: int) -> int:
    """A seed for torch that depends on all three."""
    return xxhash.xxh3_64_intdigest(struct.pack("<qqq", seed, epoch, number))
