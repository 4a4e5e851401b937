"""Passes over seed nodes: forward, loss, step in training; forward, metric in evaluation.

Everything random is keyed by (seed, epoch, batch), so a pass has the same values in a resumed run.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from diskhop.config.learning import CONSTANT, COSINE
from diskhop.config.train import TrainConfig
from diskhop.counters import FetchCounts, WaitSeconds
from diskhop.errors import TrainingError
from diskhop.nn.adam import Adam
from diskhop.nn.reproducible import seed_torch
from diskhop.nn.schedules import step_factor
from diskhop.protocols import Purpose
from diskhop.runs.batch_times import BatchTimes, timed_epoch
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.checkpoint import EpochPart
from diskhop.runs.distributed import Group
from diskhop.runs.epoch_commits import EpochCommits
from diskhop.runs.feeds import Batch, Feed, Task
from diskhop.runs.passes import RunPass
from diskhop.runs.result import added_records, merged_records
from diskhop.runs.sums import GradientSums, LossSums, LossValue, separate_gradients

_INITIALISATION = -1


class Measured(NamedTuple):
    """The result of a pass of evaluation.

    value: the metric that models are selected by.
    details: other values, and the protocol that they were measured by, as in result.json.
    record: counts and seconds of the pass.
    entries: other entries of result.json.
    """

    value: float
    details: Mapping[str, Any]
    record: dict[str, Any]
    entries: Mapping[str, Any] = MappingProxyType({})


@runtime_checkable
class StepsRows(Protocol):
    """A model that has rows with an optimiser of their own."""

    def step_rows(self, factor: float, weight: float) -> None:
        """Apply their gradients. factor: of the learning rate in this step. weight: gradients are divided by it."""


class Trainer:
    """A model with its optimiser, and the passes that use them.

    make_model: draws parameters from torch's generator. task: the loss and the metric. callback: hears of every batch.
    group: the ranks that share the batches of every pass. device: where the model computes; None: in memory.
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        task: Task,
        config: TrainConfig,
        callback: Callback,
        group: Group | None = None,
        device: torch.device | None = None,
    ) -> None:
        seed_torch(_key(config.seed, _INITIALISATION, 0), device)
        # Drawn in memory: the same everywhere.
        self.model = make_model().to(device)
        self.optimizer = Adam(self.model.parameters(), config.lr, config.weight_decay)
        self._task = task
        self._config = config
        self._callback = callback
        self._device = device
        self._group = group or Group()
        self._sums = GradientSums(self.model, self._group)
        self._started = time.perf_counter()
        # Epochs that were done when this process began to train, with the share of one.
        self._epochs_before: float | None = None

    def train_pass(
        self,
        feed: Feed,
        epoch: int,
        rate_factor: float = 1.0,
        following: RunPass | None = None,
        *,
        begun: EpochPart | None = None,
        commits: EpochCommits | None = None,
    ) -> dict[str, Any]:
        """Train one epoch, or the rest of one, and return its record.

        rate_factor: factor of the learning rate in this epoch. following: the next pass of the run.
        begun: the part that is done already; None: nothing is.
        commits: hears of every step, to keep the run within the epoch; None: it is not kept.
        """
        self.model.train()
        begun = begun or EpochPart(done=torch.zeros(0, dtype=torch.int64), loss_sum=0.0, loss_weight=0.0, record={})
        before, config, ranks = frozenset(begun.done.tolist()), self._config, self._group.ranks
        passed, numbers = _Pass(len(before)), list[int]()
        with feed.train(epoch, ranks, following, before) as batches, self._sums.training():
            num_batches = len(before) + sum(self._group.gather(len(batches)))
            losses = LossSums(
                num_batches,
                config.accumulate,
                ranks.count,
                num_done=len(before),
                total=begun.loss_sum,
                weight=begun.loss_weight,
            )
            rates = islice(self._rates(epoch, num_batches, rate_factor), len(before) // config.accumulate, None)

            def finish_step() -> None:
                if commits is not None and losses.end_step:
                    commits.step_done(config.accumulate, lambda: self._part(begun, losses, numbers, passed))

            # Not enumerate(), which would keep a batch while the next one is fetched.
            for batch in batches:
                with passed.computing(batch):
                    loss = self._add_gradients(feed, batch, epoch)
                    numbers.append(batch.number)
                    self._finish_round(losses, loss, rates)
                del batch  # Planned for: a batch kept while the next one is fetched needs memory for one more.
                self._report("train", epoch, passed, num_batches, loss.mean, num_before=len(before))
                finish_step()
            if not losses.are_all:  # the last batches are those of other ranks
                self._finish_round(losses, None, rates)
                finish_step()
        scheduled = {"lr": self.optimizer.lr} if self._is_scheduled else {}
        record = added_records([begun.record, merged_records(self._group.gather(passed.record()))])
        # Of this rank: those of others are at other steps.
        times = {"batch_seconds": passed.times.record()} if epoch == timed_epoch(config.epochs) else {}
        return {"epoch": epoch, "loss": losses.mean, **scheduled, **record, **times}

    def _part(self, begun: EpochPart, losses: LossSums, numbers: list[int], passed: _Pass) -> EpochPart:
        """Return what an epoch has added up after a step. numbers: of the batches of this rank."""
        of_ranks, records = zip(*self._group.gather((numbers, passed.record())), strict=True)
        done = sorted(chain(begun.done.tolist(), *of_ranks))
        return EpochPart(
            done=torch.tensor(done, dtype=torch.int64),
            loss_sum=losses.total,
            loss_weight=losses.weight,
            record=added_records([begun.record, merged_records(records)]),
        )

    @torch.no_grad()
    def evaluate(self, feed: Feed, purpose: Purpose, epoch: int, following: RunPass | None = None) -> Measured:
        """Return the metric over all of a split's part, and the record of the pass. following: as in training."""
        metric = self._task.measure(self._config.metric, purpose)
        self.model.eval()
        passed = _Pass()
        # Of this rank's batches: all are added in the order of their numbers.
        parts = []
        with feed.measure(purpose, self._group.ranks, following) as batches:
            num_batches = sum(self._group.gather(len(batches)))
            for batch in batches:
                with passed.computing(batch):
                    part = metric.part(feed.forward(self.model, batch), batch)
                    if self._group.is_alone:
                        metric.add(part)
                    else:
                        parts.append(part)
                del batch  # As in training.
                self._report(purpose.name.lower(), epoch, passed, num_batches, None)
        for part in self._group.gather_in_turns(parts):
            metric.add(part)
        record = merged_records(self._group.gather(passed.record()))
        return Measured(metric.value(), metric.details(), record, metric.entries())

    def parameters(self) -> dict[str, Tensor]:
        """Return a copy of the model's state, in memory."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.model.state_dict().items()}

    def _add_gradients(self, feed: Feed, batch: Batch, epoch: int) -> LossValue:
        """Add a batch's gradients, and return its loss; keeps nothing of the batch."""
        seed_torch(_key(self._config.seed, epoch, batch.number), self._device)
        loss = self._task.loss(feed.forward(self.model, batch), batch)
        value = loss.mean.item()
        if not np.isfinite(value):
            raise TrainingError(
                f"the loss is {value} in epoch {epoch}, batch {batch.number}, with learning rate "
                f"{self._config.lr}; try --lr {self._config.lr / 10:g}, and check the features for very large values"
            )
        # Sums of several batches are divided by all weights in the end; a single mean needs no rounding.
        torch.autograd.backward(loss.mean if self._config.accumulate == 1 else loss.mean * loss.weight)
        if self._config.accumulate > 1 or self._config.clip_norm:
            separate_gradients(self.model)
        return LossValue(value, loss.weight)

    def _finish_round(self, losses: LossSums, own: LossValue | None, rates: Iterator[float]) -> None:
        """Add the gradients of a batch of every rank, and take a step when it is due. own: the loss here."""
        self._sums.add(own)
        losses.end_round()
        if losses.end_step:
            losses.add(self._sums.finish())
            self._step(next(rates), losses.take_step_weight())

    def _step(self, rate: float, weight: float) -> None:
        """Take a step of the optimiser with the gradients that were added. weight: of all losses in them."""
        parameters = [each for each in self.model.parameters() if each.grad is not None]
        if self._config.accumulate > 1:
            for parameter in parameters:
                assert parameter.grad is not None, "only those are kept"
                parameter.grad /= weight or 1.0
        if self._config.clip_norm:
            nn.utils.clip_grad_norm_(parameters, self._config.clip_norm)
        self.optimizer.lr = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        if isinstance(self.model, StepsRows):
            self.model.step_rows(rate / self._config.lr, (weight or 1.0) if self._config.accumulate > 1 else 1.0)

    @property
    def _is_scheduled(self) -> bool:
        return self._config.lr_schedule != CONSTANT or self._config.warmup > 0

    def _rates(self, epoch: int, num_batches: int, factor: float) -> Iterator[float]:
        """Yield the learning rate of each step of an epoch."""
        config = self._config
        steps = -(-num_batches // config.accumulate)
        for step in range(epoch * steps, (epoch + 1) * steps):
            scheduled = step_factor(
                step, config.epochs * steps, warmup=config.warmup, is_cosine=config.lr_schedule == COSINE
            )
            yield config.lr * factor * scheduled

    def _report(
        self, stage: str, epoch: int, passed: _Pass, num_batches: int, loss: float | None, *, num_before: int = 0
    ) -> None:
        """Tell of a batch. num_before: batches of the pass that were done before it was resumed."""
        batch = min(num_before + passed.num_batches * self._group.ranks.count, num_batches)
        num_epochs = self._config.epochs
        if self._epochs_before is None:
            self._epochs_before, self._started = epoch + num_before / num_batches, time.perf_counter()
        done = epoch - self._epochs_before + (batch / num_batches if stage == "train" else 1)
        seconds = time.perf_counter() - self._started
        seconds_left = seconds * (num_epochs - self._epochs_before - done) / done if seconds > 1 else None
        self._callback.batch_done(
            BatchProgress(
                stage=stage,
                epoch=epoch,
                num_epochs=num_epochs,
                batch=batch,
                num_batches=num_batches,
                loss=loss,
                seconds_left=seconds_left,
                **passed.rates(batch - num_before),
            )
        )


class _Pass:
    """Counts and seconds of a pass, added up batch by batch. num_before: batches that were done before it."""

    def __init__(self, num_before: int = 0) -> None:
        self.num_batches = 0
        self.times = BatchTimes(num_before)
        self._started = self._computed_until = time.perf_counter()
        self._counts = FetchCounts()
        self._sample_seconds = 0.0
        self._stall_seconds = 0.0
        self._waits = WaitSeconds()
        self._compute_seconds = 0.0
        self._computing_since = 0.0

    def computing(self, batch: Batch) -> _Pass:
        """Count a batch; the returned context measures the work on it."""
        self.num_batches += 1
        self._counts.add(batch.counts)
        self._sample_seconds += batch.sample_seconds
        self._waits = batch.waits
        self._stall_seconds += sum(batch.waits)
        return self

    def __enter__(self) -> None:
        self._computing_since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        now = time.perf_counter()
        self._compute_seconds += now - self._computing_since
        between = self._computing_since - self._computed_until
        self.times.add(self._waits, now - self._computing_since, max(0.0, between - sum(self._waits)))
        self._computed_until = now

    def rates(self, num_batches: int) -> dict[str, Any]:
        """Return rates by the names of BatchProgress. num_batches: that all ranks have done."""
        seconds, counts = time.perf_counter() - self._started, self._counts
        in_memory = counts.rows_hit + counts.rows_shared
        return {
            "rate": num_batches / seconds,
            "unit": "batches",
            "stall_share": self._stall_seconds / seconds,
            "hit_rate": in_memory / counts.rows_requested if counts.rows_requested else None,
        }

    def _of_device(self) -> dict[str, float]:
        seconds = self._counts.transfer_seconds
        return {"transfer_seconds": seconds} if seconds else {}

    def record(self) -> dict[str, Any]:
        """Return the record by the names of result.json."""
        return {
            "seconds": time.perf_counter() - self._started,
            "batches": self.num_batches,
            "sample_seconds": self._sample_seconds,
            "fetch_seconds": self._counts.seconds,
            **self._of_device(),
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
        """Return seconds and bytes of packing that overlapped training, if any."""
        names = ("packing_seconds", "packing_bytes_read", "packing_bytes_written")
        found = {name: getattr(self._counts, name) for name in names}
        return found if found["packing_bytes_written"] else {}


def _key(seed: int, epoch: int, number: int) -> int:
    """Return a seed for torch that depends on all three."""
    return xxhash.xxh3_64_intdigest(struct.pack("<qqq", seed, epoch, number))
