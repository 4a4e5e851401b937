"""The same validations stop training and embeddings at the same epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import diskhop
from diskhop.protocols import Purpose
from diskhop.runs.embedding.loop import EmbeddingRun
from diskhop.runs.trainer import Measured, Trainer
from tests.embedding import OPTIONS as EMBED_OPTIONS
from tests.embedding import small_triples
from tests.runs import OPTIONS, small_graph

EPOCHS = 12


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    ("validations", "eval_every", "num_epochs"),
    [
        ([0.5, 0.4, 0.3, 0.6, 0.6, 0.5, 0.2], 1, 7),
        ([0.5, 0.5, 0.5, 0.5], 1, 4),
        ([0.5, 0.4, 0.3, 0.5], 2, 8),  # an epoch without a validation does not count
        ([0.1, 0.4, 0.3, 0.2, 0.4], 2, 10),
        ([0.5, 0.4, 0.3], 5, EPOCHS),  # the last is after epoch 12
    ],
)
def test_the_same_validations_stop_both_at_the_same_epoch(
    validations: list[float], eval_every: int, num_epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, embedded = list(validations), list(validations)

    def evaluate(_: Trainer, __: Any, purpose: Purpose, ___: int, ____: Any = None) -> Measured:
        return Measured(trained.pop(0) if purpose is Purpose.VALID else 0.0, {}, {})

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    monkeypatch.setattr(EmbeddingRun, "_measure", lambda *_: {"mrr": embedded.pop(0)})
    monkeypatch.setattr(EmbeddingRun, "test", lambda _: None)
    options = {"epochs": EPOCHS, "eval_every": eval_every, "patience": 3}
    train = diskhop.train(small_graph(tmp_path / "graph"), **{**OPTIONS, **options})
    embed = diskhop.embed(small_triples(tmp_path / "triples"), out=tmp_path / "run", **{**EMBED_OPTIONS, **options})
    assert len(train.result["epochs"]) == len(embed.result["epochs"]) == num_epochs
    assert [epoch.get("valid") for epoch in train.result["epochs"]] == [
        epoch.get("valid") for epoch in embed.result["epochs"]
    ]
    assert not trained
    assert not embedded
