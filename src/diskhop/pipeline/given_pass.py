"""Passes of batches that were sampled elsewhere: they have no seeds to sample from, only files that were read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diskhop.pipeline.batch import Pass
from diskhop.protocols import NodeRows, Purpose, SamplerSpec
from diskhop.sampling.given_samples import GIVEN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenPass(Pass):
    """A pass of given batches. digest: of their files, as GivenSamples has it; it stands for the seeds."""

    digest: str

    def _seeds_hash(self) -> str:
        return self.digest


def given_pass(digest: str, epoch: int, num_batches: int, numbers: Sequence[int] | None = None) -> GivenPass:
    """Return the pass of an epoch of num_batches given batches. numbers: those to deliver; None for all."""
    return GivenPass(
        seeds=NodeRows(np.empty(0, np.int64)),
        numbers=range(num_batches) if numbers is None else numbers,
        batch_size=1,
        sampler=SamplerSpec(GIVEN, ()),
        seed=0,
        purpose=Purpose.TRAIN,
        epoch=epoch,
        row_starts=np.arange(num_batches + 1),
        digest=digest,
    )
