"""Metrics of links equal scikit-learn's, and ranks equal those that are counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from diskhop.embedding.ranking.protocol import Protocol
from diskhop.runs.links.measures import PairMeasure, PairScores, RankMeasure, RankScores


def scores(shape: tuple[int, ...], seed: int, shift: float = 0.0) -> torch.Tensor:
    """Few distinct values, so that there are ties."""
    drawn = np.random.default_rng(seed).normal(shift, 1.0, shape)
    return torch.from_numpy(drawn.round(1).astype(np.float32))


@pytest.mark.parametrize("metric", ["auc", "ap"])
def test_pairs_are_measured_as_by_scikit_learn(metric: str) -> None:
    measure = PairMeasure(metric)
    batches = [PairScores(scores((40,), seed, 1.0), scores((40, 2), seed + 10)) for seed in range(3)]
    for batch in batches:
        measure.add(measure.part(batch))
    values = torch.cat([part.flatten() for batch in batches for part in batch]).numpy()
    labels = np.concatenate([np.repeat([1, 0], [40, 80]) for _ in batches])
    function = {"auc": roc_auc_score, "ap": average_precision_score}[metric]
    assert measure.value() == pytest.approx(function(labels, values), abs=1e-12)
    assert (measure.details()["edges"], measure.details()["random_pairs"]) == (120, 240)


@pytest.mark.parametrize("metric", ["mrr", "hits_at_1", "hits_at_10"])
@pytest.mark.parametrize("ties", ["realistic", "optimistic", "pessimistic"])
def test_ranks_are_counted(metric: str, ties: str) -> None:
    protocol = Protocol(filtered=True, candidates=30, sides="both", ties=ties)
    measure = RankMeasure(metric, protocol, 20)
    own, tails, heads = scores((20,), 1, 1.0), scores((20, 30), 2), scores((20, 30), 3)
    tails[3, 4:9] = heads[5, :7] = -torch.inf
    measure.add(measure.part(RankScores(own, tails, heads)))
    ranks = []
    for table in (tails, heads):
        for score, others in zip(own.tolist(), table.tolist(), strict=True):
            above, tied = sum(each > score for each in others), sum(each == score for each in others)
            ranks.append(1 + above + {"realistic": tied / 2, "optimistic": 0, "pessimistic": tied}[ties])
    wanted = {
        "mrr": np.mean([1 / rank for rank in ranks]),
        "hits_at_1": np.mean([rank <= 1 for rank in ranks]),
        "hits_at_10": np.mean([rank <= 10 for rank in ranks]),
    }
    assert measure.value() == pytest.approx(wanted[metric])
    assert measure.details()["protocol"] == {
        "filtered": True, "candidates": 30, "sides": "both", "ties": ties, "edges": "20 of 20",
    }  # fmt: skip
