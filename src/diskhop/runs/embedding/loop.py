"""A run of embeddings from where it stands to its end: states, phases, batches, commits (Legend, section 4).

A *phase* of a state is the buckets that touch partitions which leave after it, or those that do not. What a batch has,
edges, negatives and dropout, depends on the configuration and the batch's number alone, not on what is in memory when:
a run that goes on from a commit, and one whose partitions do not move beside training, end with the same bits.

A *pass* goes through all states. An epoch is one, or several with a share of the edges each, before each of which nodes
are dealt to partitions anew: no edge then meets the same few nodes only, nor are the same ones trained last together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diskhop.config.embed import EmbedConfig
from diskhop.embedding.graph_edges import EdgeParts
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.edges import EdgeBuckets, EdgeRows, shuffled
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.ranking.evaluate import MeasuredEdges
from diskhop.embedding.ranking.reader import EmbeddingReader
from diskhop.embedding.scoring.scores import SCORES, Score
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import KnownEdges
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import Step, Table
from diskhop.errors import TrainingError
from diskhop.policies.orderings import Bucket, State, buckets_by_state, states_of_epoch
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.embedding.evaluate import evaluate_by
from diskhop.runs.embedding.folder import Commit, EmbeddingFolder
from diskhop.runs.embedding.warm_start import WarmStart
from diskhop.runs.patience import is_out_of_patience
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True)
class _Phase:
    """Buckets that are trained together. number: in the epoch. partitions: of negatives; gone: those not changed."""

    number: int
    buckets: tuple[Bucket, ...]
    partitions: tuple[int, ...]
    gone: tuple[int, ...]


@dataclass(slots=True)
class _Sums:
    """What an epoch found so far."""

    loss: float = 0.0
    edges: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    partitions_read: int = 0
    partitions_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddingParts:
    """What a run is put together from. edges: as first dealt. columns: the folder of edges that are not in memory."""

    config: EmbedConfig
    layout: PartitionLayout
    states: list[State]
    store: PartitionStore
    buffer: PartitionBuffer
    edges: EdgeParts
    columns: Path | None
    folder: EmbeddingFolder
    memory: MemoryLog
    watcher: Callback


class EmbeddingRun:
    """history: a record for each epoch that is done."""

    def __init__(self, parts: EmbeddingParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._relations = _make_relations(parts)
        nodes = Table(parts.buffer.values, parts.buffer.squares)
        self._step = Step(StepOptions(**parts.config.step_options()), nodes, self._relations)
        relations = torch.empty(0) if self._relations is None else torch.from_numpy(self._relations.values)
        score, is_reciprocal = _score(self._config), self._config.reciprocal
        self._reader = EmbeddingReader(parts.store, parts.layout, score, relations, is_reciprocal)
        self._edges = parts.edges
        self._buckets: EdgeBuckets | None = None
        self._known: KnownEdges | None = None  # that negatives must not make
        self._epoch, self._passes_done, self._states_done, self._sums = 0, 0, 0, _Sums()
        self._relations_file = 0
        self._first_epoch, self._begun = 0, time.perf_counter()
        self._since = self._counters()
        self.history: list[dict[str, Any]] = []

    def initialise(self, warm_start: WarmStart | None) -> None:
        """Draw all embeddings, take those that another run has, and commit them."""
        parts, config = self._parts, self._config
        parts.store.create()
        for partition in range(config.partitions):
            shape = parts.layout.num_rows(partition), config.dim
            values = np.empty(shape, np.float32)
            torch.from_numpy(values).normal_(
                0, config.init_scale, generator=generator(config.seed, Draw.PARTITION, partition)
            )
            if warm_start is not None:
                warm_start.fill(parts.layout.start(partition), values)
            parts.buffer.fill(partition, values)
            parts.watcher.prepared("initialising partitions", partition + 1, config.partitions)
        if warm_start is not None and self._relations is not None:
            warm_start.fill_relations(self._relations.values)
        self._commit(is_epoch=False)

    def restore(self, commit: Commit) -> None:
        """Go on from what was committed."""
        if self._relations is not None:
            try:
                tensors = self._parts.folder.load_relations(commit.relations)
                self._relations.values[:] = tensors["values"].numpy()
                self._relations.squares[:] = tensors["squares"].numpy()
            except (KeyError, ValueError) as error:
                raise TrainingError(f"{self._parts.folder.path}: relations do not fit the run: {error}") from error
        self._epoch, self._passes_done, self._states_done = commit.epoch, commit.passes, commit.states
        self._relations_file = commit.relations
        self._edges = self._edges.dealt(self._edges.dealing.anew(commit.dealt))
        self._first_epoch = commit.epoch
        self._sums = _Sums(**commit.sums)
        self.history = commit.history

    def train(self) -> None:
        """All epochs that are left, each committed, unless validations say that more are no use."""
        while self._epoch < self._config.epochs and not self.has_stopped:
            self._train_epoch()

    @property
    def has_stopped(self) -> bool:
        """Whether validations say that more epochs are no use."""
        return is_out_of_patience([each["valid"] for each in self.history if "valid" in each], self._config.patience)

    def test(self) -> dict[str, Any] | None:
        """How test edges are ranked, where there are some."""
        return None if self._edges.test is None else self._measure(self._edges.test)

    def _measure(self, edges: MeasuredEdges) -> dict[str, Any]:
        """Ranks of edges by the configuration's protocol, by the names of result.json."""
        progress = partial(self._parts.watcher.prepared, "ranking edges")
        return evaluate_by(self._config, self._reader, self._edges, edges, progress)

    @property
    def _pass(self) -> int:
        """Of all passes of the run the one that is trained."""
        return self._epoch * self._config.passes + self._passes_done

    def _train_epoch(self) -> None:
        num_passes = self._config.passes
        while self._passes_done < num_passes:
            self._begin_pass()
            self._train_pass()
            self._passes_done, self._states_done = self._passes_done + 1, 0
            if self._passes_done < num_passes:
                self._commit(is_epoch=False)
        self._finish_epoch()

    def _begin_pass(self) -> None:
        """Deal nodes anew, where they are to be, and sort the edges of the pass into buckets."""
        parts, config, dealing = self._parts, self._config, self._edges.dealing
        if self._buckets is not None and not config.is_repartitioned:
            return
        self._buckets = self._known = None
        if config.is_repartitioned and dealing.number != self._pass:
            self._since = self._counters()
            dealt = dealing.anew(self._pass)
            parts.buffer.deal(lambda places: dealt.places(dealing.nodes(places)))
            self._count()
            self._edges = self._edges.dealt(dealt)
            self._commit(is_epoch=False)
        edges, has_relations = self._edges, self._edges.num_relations > 0
        blocks, num_edges = edges.train_share(self._epoch, self._passes_done, config.passes)
        progress = partial(parts.watcher.prepared, "sorting edges into buckets")
        self._buckets = EdgeBuckets(parts.layout, num_edges, has_relations, blocks, parts.columns, progress)
        if config.mask_known:
            self._known = KnownEdges(edges.num_train, edges.num_relations, edges.train)

    def _train_pass(self) -> None:
        parts, config = self._parts, self._config
        states = states_of_epoch(parts.states, self._pass, config.seed)
        phases = _phases(states)
        self._since = self._counters()
        parts.buffer.load(states[self._states_done])
        for number in range(self._states_done, len(states)):
            next_state = states[number + 1] if number + 1 < len(states) else states[number]
            leaving, staying = phases[number]
            if config.overlap:
                parts.buffer.begin(next_state)
                self._train_phase(leaving)
                parts.buffer.release(staying.gone)
                self._train_phase(staying)
            else:
                self._train_phase(leaving)
                self._train_phase(staying)
                parts.buffer.begin(next_state)
                parts.buffer.release(staying.gone)
            parts.buffer.finish()
            is_last = number + 1 == len(states)
            if config.commit_states and not is_last and (number + 1) % config.commit_states == 0:
                self._states_done = number + 1
                parts.buffer.flush()
                self._count()
                self._commit(is_epoch=False)
        parts.buffer.flush()
        self._count()

    def _counters(self) -> tuple[float, float, int, int]:
        """Seconds, of them stalled, partitions read and written, since anything began."""
        store = self._parts.store
        return time.perf_counter(), self._parts.buffer.stall_seconds, store.partitions_read, store.partitions_written

    def _count(self) -> None:
        """Add what was counted since the last time to the epoch's sums."""
        since, now, sums = self._since, self._counters(), self._sums
        sums.seconds += now[0] - since[0]
        sums.stall_seconds += now[1] - since[1]
        sums.partitions_read += now[2] - since[2]
        sums.partitions_written += now[3] - since[3]
        self._since = now

    def _finish_epoch(self) -> None:
        parts, config, sums = self._parts, self._config, self._sums
        partition_bytes = parts.layout.partition_bytes
        record: dict[str, Any] = {
            "epoch": self._epoch,
            "seconds": sums.seconds,
            "loss": sums.loss / sums.edges,
            "edges_per_second": sums.edges / sums.seconds,
            "stall_seconds": sums.stall_seconds,
            "partitions_read": sums.partitions_read,
            "partitions_written": sums.partitions_written,
            "bytes_read": sums.partitions_read * partition_bytes,
            "bytes_written": sums.partitions_written * partition_bytes,
        }
        self._epoch, self._passes_done, self._sums = self._epoch + 1, 0, _Sums()
        is_due = self._epoch % config.eval_every == 0 or self._epoch == config.epochs
        if self._edges.valid is not None and is_due:
            measured = self._measure(self._edges.valid)
            record |= {"valid": measured["mrr"], "validation": measured}
        record["memory"] = parts.memory.take()
        self.history.append(record)
        self._commit(is_epoch=True)
        parts.watcher.epoch_done(record)

    def _train_phase(self, phase: _Phase) -> None:
        parts, config = self._parts, self._config
        assert self._buckets is not None, "a pass begins with them"
        if not self._buckets.count(phase.buckets):
            return
        edges = self._buckets.rows(phase.buckets, parts.buffer.base)
        order = shuffled(len(edges), config.seed, self._pass, phase.number)
        sampler = NegativeSampler(parts.layout, phase.partitions, config.degree_negatives, config.seed)
        bases = [parts.buffer.base(partition) for partition in phase.gone]
        fixed = [range(base, base + parts.layout.stride_rows) for base in bases]
        for number, start in enumerate(range(0, len(edges), config.batch_size)):
            batch = edges.take(order[start : start + config.batch_size])
            self._train_batch(batch, sampler, phase.number << 32 | number, fixed)

    def _train_batch(self, batch: EdgeRows, sampler: NegativeSampler, number: int, fixed: list[range]) -> None:
        parts, config = self._parts, self._config
        shape = 2, -(-len(batch) // config.chunk_size), config.negatives
        negatives = sampler.draw(shape, batch, (self._pass, number), parts.buffer.base)
        draws = partial(generator, config.seed, Draw.DROPOUT, self._pass, number)
        known = None
        if self._known is not None:
            rows = np.concatenate([batch.sources, batch.destinations, negatives.reshape(-1)])
            known = self._known.of_batch(parts.buffer.places(rows), batch.relations, len(batch))
        loss = self._step.run(batch, negatives, draws, fixed, known, self._lr_share())
        if not np.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} in epoch {self._epoch}, batch {number & 0xFFFFFFFF} of phase {number >> 32}, with "
                f"learning rate {config.lr}: try a smaller --lr; the last commit is kept in {parts.folder.path}"
            )
        self._sums.loss += loss
        self._sums.edges += len(batch)
        self._report(loss / len(batch))

    def _lr_share(self) -> float:
        if self._config.lr_schedule == "constant":
            return 1.0
        done = self._epoch + self._sums.edges / self._parts.edges.num_train
        return 1 - done / self._config.epochs

    def _commit(self, *, is_epoch: bool) -> None:
        """All that is written becomes what a run goes on from."""
        parts = self._parts
        parts.store.sync()
        self._relations_file = 1 - self._relations_file
        if self._relations is not None:
            tensors = {
                "values": torch.from_numpy(self._relations.values),
                "squares": torch.from_numpy(self._relations.squares),
            }
            parts.folder.save_relations(self._relations_file, tensors)
        sums = {name: getattr(self._sums, name) for name in _Sums.__slots__}
        versions = parts.store.record()
        commit = Commit(
            self._epoch,
            self._passes_done,
            self._states_done,
            self._edges.dealing.number,
            sums,
            versions,
            self._relations_file,
            self.history,
        )
        parts.folder.commit(commit, is_epoch=is_epoch)
        parts.store.committed()

    def _report(self, loss: float) -> None:
        num_epochs, num_edges = self._config.epochs, self._parts.edges.num_train
        done = self._epoch - self._first_epoch + self._sums.edges / num_edges
        seconds = time.perf_counter() - self._begun
        seconds_left = seconds * (num_epochs - self._first_epoch - done) / done if seconds > 1 else None
        now, since = self._counters(), self._since
        epoch_seconds = self._sums.seconds + now[0] - since[0]
        self._parts.watcher.progressed(
            BatchProgress(
                stage="train",
                epoch=self._epoch,
                num_epochs=num_epochs,
                batch=self._sums.edges,
                num_batches=num_edges,
                loss=loss,
                seconds_left=seconds_left,
                rate=self._sums.edges / epoch_seconds,
                unit="edges",
                stall_share=(self._sums.stall_seconds + now[1] - since[1]) / epoch_seconds,
                hit_rate=None,
            )
        )


def _score(config: EmbedConfig) -> Score:
    return SCORES[config.model]


def _make_relations(parts: EmbeddingParts) -> Table | None:
    config, score = parts.config, _score(parts.config)
    if not score.uses_relations:
        return None
    num_rows = parts.edges.num_relations * (2 if config.reciprocal else 1)
    dim = score.relation_dim(config.dim)
    values = np.empty((num_rows, dim), np.float32)
    score.draw_relations(torch.from_numpy(values), config.init_scale, generator(config.seed, Draw.RELATION))
    return Table(values, np.zeros((num_rows, 1 if config.adagrad == "row" else dim), np.float32))


def _phases(states: list[State]) -> list[tuple[_Phase, _Phase]]:
    """For each state the phase of what leaves, and of what stays."""
    found = []
    for number, buckets in enumerate(buckets_by_state(states)):
        state = states[number]
        next_state = states[number + 1] if number + 1 < len(states) else state
        gone = tuple(partition for partition in state if partition not in next_state)
        found.append(
            (_Phase(2 * number, buckets.leaving, state, ()), _Phase(2 * number + 1, buckets.staying, state, gone))
        )
    return found
