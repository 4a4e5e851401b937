"""A stand-in for the papers' trainer, a GPU that takes 5 to 30 ms per batch: each step only waits, and holds no core.

The CPU's model takes ten times as long and needs the cores that sample and read, which hides differences of stores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.step.step import Step
from diskhop.runs import training
from diskhop.runs.embedding import trainers
from diskhop.runs.embedding.loop import EmbeddingRun
from diskhop.runs.embedding.phases import Phase
from diskhop.runs.embedding.trainers import HostTrainer, Trained
from diskhop.runs.feeds import Batch, Feed
from diskhop.runs.nodes import sampled
from diskhop.runs.sums import LossValue
from diskhop.runs.trainer import Trainer

_STAND_IN = "stand-in:"


class StandIn(Trainer):
    """Takes batches as training does, and waits instead of computing."""

    def __init__(self, *arguments: Any, step_seconds: float) -> None:
        super().__init__(*arguments)
        self._step_seconds = step_seconds

    def _add_gradients(self, _feed: Feed, _batch: Batch, _epoch: int) -> LossValue:
        time.sleep(self._step_seconds)
        return LossValue(0.0, 1.0)

    def _step(self, _rate: float, _weight: float) -> None:
        pass


@contextmanager
def trained_by_stand_in(step_seconds: float) -> Iterator[None]:
    """Let train() and pack() use a stand-in; with 0 seconds they train as always."""
    if not step_seconds:
        yield
        return
    with (
        patch.object(training, "Trainer", partial(StandIn, step_seconds=step_seconds)),
        patch.object(sampled, "measure_step_seconds", lambda *_: step_seconds),
    ):
        yield


@contextmanager
def embedded_by_stand_in(edge_seconds: float) -> Iterator[None]:
    """Let embed() wait for each edge of a batch instead of training on it; with 0 seconds it trains as always.

    A phase takes that long from its begin to its end. In Legend's Table 6, batches and moves of partitions take the
    whole epoch, so that the CPU prepares edges meanwhile.
    """

    class Idle(Step):
        def run(self, edges: EdgeRows, *_: Any) -> float:
            return 0.0

    train_phase, make_and_train = EmbeddingRun._train_phase, HostTrainer.train
    busy_until = 0.0

    def begin(run: EmbeddingRun, phase: Phase) -> None:
        nonlocal busy_until
        busy_until = time.perf_counter()
        train_phase(run, phase)

    def train(trainer: HostTrainer, number: int, lr_share: float) -> Trained:
        nonlocal busy_until
        trained = make_and_train(trainer, number, lr_share)
        busy_until += edge_seconds * trained.num_edges
        time.sleep(max(0.0, busy_until - time.perf_counter()))
        return trained

    if not edge_seconds:
        yield
        return
    with (
        patch.object(trainers, "Step", Idle),
        patch.object(EmbeddingRun, "_train_phase", begin),
        patch.object(HostTrainer, "train", train),
    ):
        yield


def add_trainer_option(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Add --trainer, whose value is the seconds of a step; 0 for the default, which `otherwise` describes."""
    parser.add_argument(
        "--trainer",
        dest="step_seconds",
        type=_read_trainer,
        default=0.0,
        metavar="stand-in:MILLISECONDSms",
        help=f"replace each step by a wait that holds no core, as on a GPU, e.g. stand-in:12ms; default: {otherwise}",
    )


def name_trainer(step_seconds: float, otherwise: str) -> str:
    """Return the trainer for people to read."""
    return f"a stand-in of {step_seconds * 1e3:g} ms per batch" if step_seconds else otherwise


def _read_trainer(text: str) -> float:
    milliseconds = text.removeprefix(_STAND_IN).removesuffix("ms")
    try:
        seconds = float(milliseconds) / 1e3
    except ValueError:
        seconds = 0.0
    if text != f"{_STAND_IN}{milliseconds}ms" or not 0 < seconds < 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is no stand-in: write --trainer stand-in:12ms")
    return seconds
