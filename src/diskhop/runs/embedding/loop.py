"""The training loop of embeddings: passes, states, phases, batches, commits (Legend, section 4).

A *phase* of a state is the buckets that touch partitions which are evicted after it, or the other buckets. Edges,
negatives and dropout of a batch depend on the configuration and the batch's number alone, not on what is in memory.
A resumed run, and one that does not overlap training with moving partitions, therefore end with the same bits.

A *pass* goes through all states. An epoch is one pass, or several with a share of the edges each. Nodes are then
assigned to partitions again before every pass, so that an edge meets other negatives and is trained next to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from diskhop.config.interval import parse_interval
from diskhop.embedding.partitions.edges import EdgeBuckets
from diskhop.embedding.partitions.sort import sort_edges
from diskhop.embedding.ranking.protocol import MeasuredEdges
from diskhop.embedding.ranking.reader import EmbeddingReader
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.known_edges import KnownEdges
from diskhop.embedding.step.step import Table
from diskhop.errors import TrainingError
from diskhop.io.atomic import remove_tree
from diskhop.policies.schedule import schedule_of_pass
from diskhop.runs.batch_times import StateTimes, timed_epoch
from diskhop.runs.callbacks import BatchProgress, Callbacks, Patience
from diskhop.runs.embedding.evaluate import evaluate_by
from diskhop.runs.embedding.folder import Commit
from diskhop.runs.embedding.parts import EmbeddingParts, make_relations
from diskhop.runs.embedding.phases import Phase, phases_of
from diskhop.runs.embedding.sharing import Sharing, Sums
from diskhop.runs.embedding.trainers import BatchTrainer, PhaseEdges
from diskhop.runs.embedding.warm_start import WarmStart


class EmbeddingRun:
    """A run from its start, or from a commit, to its end. history: a record per epoch done.

    make_trainer: returns what trains batches, for the relations of this rank.
    """

    def __init__(self, parts: EmbeddingParts, make_trainer: Callable[[Table | None], BatchTrainer]) -> None:
        self._parts = parts
        self._config = parts.config
        self._group, self._ranks = parts.group, parts.group.ranks
        self._relations = make_relations(parts)
        self._sharing = Sharing(parts.group, parts.store, self._relations, parts.edges.num_relations)
        self._trainer = make_trainer(self._relations)
        relations = torch.empty(0) if self._relations is None else torch.from_numpy(self._relations.values)
        score, is_reciprocal = SCORES[self._config.model], self._config.reciprocal
        self._reader = EmbeddingReader(parts.store, parts.layout, score, relations, is_reciprocal)
        self._edges = parts.edges
        self._buckets: EdgeBuckets | None = None
        self._known: KnownEdges | None = None  # edges that negatives must not form
        self._epoch, self._passes_done, self._states_done, self._sums = 0, 0, 0, Sums()
        self._relations_file = 0
        self._first_epoch, self._begun = 0, time.perf_counter()
        self._interval, self._kept_at = parse_interval(self._config.checkpoint_every, "states"), self._begun
        self._since = self._counters()
        self._times: StateTimes | None = None
        self.history: list[dict[str, Any]] = []

    def initialise(self, warm_start: WarmStart | None) -> None:
        """Draw all embeddings, replace those that another run has, and commit them."""
        parts, config = self._parts, self._config
        if self._ranks.is_first:
            parts.store.create()
        self._group.wait()
        for partition in self._ranks.share(range(config.partitions)):
            shape = parts.layout.num_rows(partition), config.dim
            values = np.empty(shape, np.float32)
            torch.from_numpy(values).normal_(
                0, config.init_scale, generator=generator(config.seed, Draw.PARTITION, partition)
            )
            if warm_start is not None:
                warm_start.fill(parts.layout.start(partition), values)
            parts.buffer.fill(partition, values)
            parts.callback.prepared("initialising partitions", partition + 1, config.partitions)
        if warm_start is not None and self._relations is not None:
            warm_start.fill_relations(self._relations.values)
        self._sharing.keep_relations()
        self._trainer.take_relations()
        self._commit(is_epoch=False)

    def restore(self, commit: Commit) -> None:
        """Continue from a commit."""
        if self._relations is not None:
            try:
                tensors = self._parts.folder.load_relations(commit.relations)
                self._relations.values[:] = tensors["values"].numpy()
                self._relations.squares[:] = tensors["squares"].numpy()
            except (KeyError, ValueError) as error:
                raise TrainingError(
                    f"{self._parts.folder.path}: relations do not fit the run: {error}; train again in a new folder"
                ) from error
        self._sharing.keep_relations()
        self._trainer.take_relations()
        self._epoch, self._passes_done, self._states_done = commit.epoch, commit.passes, commit.states
        self._relations_file = commit.relations
        self._edges = self._edges.repartitioned(self._edges.permutation.after(commit.dealt))
        self._first_epoch = commit.epoch
        self._sums = Sums(**commit.sums[self._ranks.rank])
        self.history = commit.history

    def train(self) -> None:
        """Train until the last epoch, or until a callback ends it; every epoch is committed."""
        patience = Patience(self._config.patience, self.history)
        callback = Callbacks([patience, self._parts.callback])
        is_over = patience.is_exhausted
        while self._epoch < self._config.epochs and not is_over:
            is_over = self._group.first(partial(callback.epoch_done, self._train_epoch()))

    def test(self) -> dict[str, Any] | None:
        """Rank test edges; None where there are none."""
        return None if self._edges.test is None else self._measure(self._edges.test)

    def _measure(self, edges: MeasuredEdges) -> dict[str, Any]:
        """Rank edges by the configuration's protocol; returns entries of result.json."""
        progress = partial(self._parts.callback.prepared, "ranking edges")
        return evaluate_by(self._config, self._reader, self._edges, edges, progress, self._group)

    @property
    def _pass(self) -> int:
        """The number of the current pass, among all of the run."""
        return self._epoch * self._config.passes + self._passes_done

    def _train_epoch(self) -> dict[str, Any]:
        num_passes = self._config.passes
        while self._passes_done < num_passes:
            self._begin_pass()
            self._train_pass()
            self._passes_done, self._states_done = self._passes_done + 1, 0
            if self._passes_done < num_passes:
                self._commit(is_epoch=False)
        return self._finish_epoch()

    def _begin_pass(self) -> None:
        """Assign nodes to partitions again, if that is due, and sort the edges of the pass into buckets."""
        parts, config, permutation = self._parts, self._config, self._edges.permutation
        if self._buckets is not None and not config.is_repartitioned:
            return
        self._buckets = self._known = None
        if config.is_repartitioned and permutation.number != self._pass:
            self._since = self._counters()
            new = permutation.after(self._pass)
            own = self._ranks.share(range(config.partitions))
            parts.buffer.repartition(lambda places: new.places(permutation.nodes(places)), own)
            self._count()
            self._edges = self._edges.repartitioned(new)
            self._commit(is_epoch=False)
        # Files that rank 0 writes and all ranks read.
        self._buckets = self._group.first(self._sort_edges)
        if not config.is_repartitioned:
            parts.close_executor()
        edges = self._edges
        if config.mask_known:
            self._known = KnownEdges.read(edges.num_train, edges.num_relations, edges.train)

    def _sort_edges(self) -> EdgeBuckets:
        parts, folder = self._parts, None
        if parts.edges_folder is not None:
            # A process that was taken for dead may still write to the files of an earlier pass.
            remove_tree(parts.edges_folder)
            folder = parts.edges_folder / str(self._pass)
            folder.mkdir(parents=True)
        found = sort_edges(
            parts.layout,
            self._edges.train_share(self._epoch, self._passes_done, self._config.passes),
            has_relations=self._edges.num_relations > 0,
            folder=folder,
            in_memory=not parts.edges_on_disk,
            tools=parts.tools,
            progress=partial(parts.callback.prepared, "sorting edges into buckets"),
        )
        if folder is not None and not parts.edges_on_disk:
            remove_tree(folder)
        return found

    def _train_pass(self) -> None:
        parts, config = self._parts, self._config
        schedule = schedule_of_pass(parts.schedule, self._pass, config.seed)
        states = schedule.states[self._ranks.rank]
        phases = phases_of(schedule, self._ranks.rank, reuses_slots=config.reuses_slots)
        round_ends = schedule.round_ends
        self._since = self._counters()
        if self._epoch == timed_epoch(config.epochs) and not self._passes_done:
            self._times = StateTimes(self._states_done)
        parts.buffer.load(states[self._states_done])
        for number in range(self._states_done, len(states)):
            began = self._counters()
            next_state = states[number + 1] if number + 1 < len(states) else states[number]
            leaving, staying = phases[number]
            # Another rank may still train what this one gets in the next round.
            to_load = () if number in round_ends else next_state
            if not config.overlap:
                self._train_phase(leaving)
                self._train_phase(staying)
                parts.buffer.exchange(staying.gone, to_load)
            elif config.reuses_slots:
                self._train_phase(leaving)
                parts.buffer.exchange(staying.gone, to_load)
                self._train_phase(staying)
            else:
                parts.buffer.begin(to_load)
                self._train_phase(leaving)
                parts.buffer.release(staying.gone)
                self._train_phase(staying)
            parts.buffer.finish()
            self._trainer.give_relations()
            if self._sharing.combine_relations():
                self._trainer.take_relations()
            is_last = number + 1 == len(states)
            if number in round_ends and not is_last:
                parts.buffer.wait_for_writes()
                self._sharing.exchange_versions()
                parts.buffer.load(next_state)
            if self._times is not None and not self._passes_done:
                seconds, waited, *_ = self._counters()
                self._times.add(seconds - began[0], waited - began[1])
            if not is_last and self._group.first(partial(self._is_due, number + 1)):
                self._states_done = number + 1
                parts.buffer.flush()
                self._count()
                self._commit(is_epoch=False)
        parts.buffer.flush()
        self._sharing.exchange_versions()
        self._count()

    def _is_due(self, states_done: int) -> bool:
        """Return whether to commit within a pass."""
        return self._interval.is_over(time.perf_counter() - self._kept_at, states_done - self._states_done)

    def _counters(self) -> tuple[float, float, int, int]:
        """Return the clock's seconds, stalled seconds, and partitions read and written so far."""
        store = self._parts.store
        return time.perf_counter(), self._parts.buffer.stall_seconds, store.partitions_read, store.partitions_written

    def _count(self) -> None:
        """Add the counts since the last call to the epoch's sums."""
        since, now, sums = self._since, self._counters(), self._sums
        sums.seconds += now[0] - since[0]
        sums.stall_seconds += now[1] - since[1]
        sums.partitions_read += now[2] - since[2]
        sums.partitions_written += now[3] - since[3]
        self._since = now

    def _finish_epoch(self) -> dict[str, Any]:
        """Validate if that is due, commit, and return the epoch's record."""
        parts, config = self._parts, self._config
        sums = self._sharing.sum_of_ranks(self._sums)
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
        if self._times is not None:
            record["state_seconds"] = self._times.record()
            self._times = None
        self._epoch, self._passes_done, self._sums = self._epoch + 1, 0, Sums()
        is_due = self._epoch % config.eval_every == 0 or self._epoch == config.epochs
        if self._edges.valid is not None and is_due:
            measured = self._measure(self._edges.valid)
            record |= {"valid": measured["mrr"], "validation": measured}
        record["memory"] = parts.memory.take()
        self.history.append(record)
        self._commit(is_epoch=True)
        return record

    def _train_phase(self, phase: Phase) -> None:
        parts, config = self._parts, self._config
        assert self._buckets is not None, "_begin_pass() makes them"
        if not self._buckets.count(phase.buckets):
            return
        edges = self._buckets.rows(phase.buckets, parts.buffer.base)
        self._trainer.begin(PhaseEdges(edges, phase, self._pass, self._known))
        for number in range(-(-len(edges) // config.batch_size)):
            trained = self._trainer.train(number, self._lr_share())
            if not np.isfinite(trained.loss):
                raise TrainingError(
                    f"the loss is {trained.loss} in epoch {self._epoch}, batch {number} of phase {phase.number}, with "
                    f"--lr {config.lr:g}; try --lr {config.lr / 10:g}; the last commit is kept in {parts.folder.path}"
                )
            self._sums.loss += trained.loss
            self._sums.edges += trained.num_edges
            self._report(trained.loss / trained.num_edges)
        self._trainer.end()
        self._sharing.count_relations(edges.relations)

    def _lr_share(self) -> float:
        if self._config.lr_schedule == "constant":
            return 1.0
        return 1 - (self._epoch + self._share_done) / self._config.epochs

    @property
    def _share_done(self) -> float:
        """The share of the epoch that is done, 0 to 1; of several ranks, as if all were as fast as this one."""
        return min(1.0, self._ranks.count * self._sums.edges / self._parts.edges.num_train)

    def _commit(self, *, is_epoch: bool) -> None:
        """Commit everything that was written, for a run to resume from."""
        parts = self._parts
        parts.store.sync()
        self._sharing.exchange_versions()
        sums = self._sharing.gather_sums(self._sums)
        self._relations_file = 1 - self._relations_file
        if self._ranks.is_first:
            self._write_commit(sums, is_epoch=is_epoch)
        # Before, a rank could overwrite what the last commit needs.
        self._group.wait()
        parts.store.committed()
        self._kept_at = time.perf_counter()

    def _write_commit(self, sums: list[dict[str, Any]], *, is_epoch: bool) -> None:
        parts = self._parts
        if self._relations is not None:
            tensors = {
                "values": torch.from_numpy(self._relations.values),
                "squares": torch.from_numpy(self._relations.squares),
            }
            parts.folder.save_relations(self._relations_file, tensors)
        versions = parts.store.record()
        commit = Commit(
            self._epoch,
            self._passes_done,
            self._states_done,
            self._edges.permutation.number,
            sums,
            versions,
            self._relations_file,
            self.history,
        )
        parts.folder.commit(commit, is_epoch=is_epoch)

    def _report(self, loss: float) -> None:
        num_epochs, num_edges = self._config.epochs, self._parts.edges.num_train
        done = self._epoch - self._first_epoch + self._share_done
        seconds = time.perf_counter() - self._begun
        seconds_left = seconds * (num_epochs - self._first_epoch - done) / done if seconds > 1 else None
        now, since = self._counters(), self._since
        epoch_seconds = self._sums.seconds + now[0] - since[0]
        self._parts.callback.batch_done(
            BatchProgress(
                stage="train",
                epoch=self._epoch,
                num_epochs=num_epochs,
                batch=round(self._share_done * num_edges),
                num_batches=num_edges,
                loss=loss,
                seconds_left=seconds_left,
                rate=self._ranks.count * self._sums.edges / epoch_seconds,
                unit="edges",
                stall_share=(self._sums.stall_seconds + now[1] - since[1]) / epoch_seconds,
                hit_rate=None,
            )
        )
