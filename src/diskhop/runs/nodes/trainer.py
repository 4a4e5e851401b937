"""One pass over a split: forward, loss, step; or forward, metric.

Everything random is keyed by (seed, epoch, batch): a pass gives the same values wherever the run was started from.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from diskhop.config.train import TrainConfig
from diskhop.counters import FetchCounts
from diskhop.errors import TrainingError
from diskhop.protocols import Purpose
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.nodes.feeds import Batch, Batches, Feed
from diskhop.runs.nodes.metrics import METRICS

_INITIALISATION = -1


class NodeTrainer:
    """A model and its optimiser, and the passes that use them. labels: see Dataset.labels()."""

    def __init__(
        self, make_model: Callable[[], nn.Module], labels: NDArray[Any], config: TrainConfig, watcher: Callback
    ) -> None:
        torch.manual_seed(_key(config.seed, _INITIALISATION, 0))
        self.model = make_model()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self._labels = labels
        self._config = config
        self._watcher = watcher
        self._started = time.perf_counter()
        self._first_epoch: int | None = None

    def train_pass(self, feed: Feed, epoch: int) -> dict[str, Any]:
        """One epoch of steps; returns its record."""
        loss_sum = 0.0
        num_nodes = 0
        self.model.train()
        passed = _Pass()
        with feed.train(epoch) as batches:
            for batch in batches:
                with passed.computing(batch):
                    loss = self._step(feed, batch, epoch)
                loss_sum += loss * len(batch.nodes)
                num_nodes += len(batch.nodes)
                del batch  # The plan counts on it: a batch that is held while the next comes is one more than reserved.
                self._report("train", epoch, passed, batches, loss)
        return {"epoch": epoch, "loss": loss_sum / num_nodes, **passed.record()}

    @torch.no_grad()
    def evaluate(self, feed: Feed, purpose: Purpose, epoch: int) -> tuple[float, dict[str, Any]]:
        """The metric over all nodes of a split's part, and what the pass took."""
        metric = METRICS[self._config.metric]()
        self.model.eval()
        passed = _Pass()
        with feed.measure(purpose) as batches:
            for batch in batches:
                with passed.computing(batch):
                    metric.update(feed.forward(self.model, batch).numpy(), self._labels[batch.nodes])
                del batch  # As in training.
                self._report(purpose.name.lower(), epoch, passed, batches, None)
        return metric.value(), passed.record()

    def parameters(self) -> dict[str, Tensor]:
        """A copy of the model's state."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _step(self, feed: Feed, batch: Batch, epoch: int) -> float:
        """One step of the optimiser; returns the loss before it. Nothing of the batch is left when it returns."""
        torch.manual_seed(_key(self._config.seed, epoch, batch.number))
        self.optimizer.zero_grad()
        loss = self._loss(feed, batch)
        value = loss.item()
        if not np.isfinite(value):
            raise TrainingError(
                f"the loss is {value} in epoch {epoch}, batch {batch.number}, with learning rate "
                f"{self._config.lr}: try a smaller --lr, and check the features for very large values"
            )
        torch.autograd.backward(loss)
        self.optimizer.step()
        return value

    def _loss(self, feed: Feed, batch: Batch) -> Tensor:
        scores = feed.forward(self.model, batch)
        labels = torch.from_numpy(self._labels[batch.nodes])
        if labels.ndim == 1:
            return functional.cross_entropy(scores, labels)
        is_known = ~labels.isnan()
        return functional.binary_cross_entropy_with_logits(scores[is_known], labels[is_known])

    def _report(self, stage: str, epoch: int, passed: _Pass, batches: Batches, loss: float | None) -> None:
        batch = passed.num_batches
        num_epochs = self._config.epochs
        if self._first_epoch is None:
            self._first_epoch, self._started = epoch, time.perf_counter()
        done = epoch - self._first_epoch + (batch / len(batches) if stage == "train" else 1)
        seconds = time.perf_counter() - self._started
        seconds_left = seconds * (num_epochs - self._first_epoch - done) / done if seconds > 1 else None
        self._watcher.progressed(
            BatchProgress(
                stage=stage,
                epoch=epoch,
                num_epochs=num_epochs,
                batch=batch,
                num_batches=len(batches),
                loss=loss,
                seconds_left=seconds_left,
                **passed.rates(),
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

    def computing(self, batch: Batch) -> _Pass:
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

    def rates(self) -> dict[str, Any]:
        """By the names of Progress."""
        seconds, counts = time.perf_counter() - self._started, self._counts
        in_memory = counts.rows_hit + counts.rows_shared
        return {
            "rate": self.num_batches / seconds,
            "unit": "batches",
            "stall_share": self._stall_seconds / seconds,
            "hit_rate": in_memory / counts.rows_requested if counts.rows_requested else None,
        }

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


def _key(seed: int, epoch: int, number: int) -> int:
    """A seed for torch that depends on all three."""
    return xxhash.xxh3_64_intdigest(struct.pack("<qqq", seed, epoch, number))
