"""A run shows its speed, its waits and its memory while it trains."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from diskhop.runs.callbacks import BatchProgress
from diskhop.ui.terminal import TerminalCallback

PROGRESS = BatchProgress(
    stage="train", epoch=1, num_epochs=3, batch=4, num_batches=10, loss=0.25, seconds_left=12.4, rate=3.26,
    unit="batches", stall_share=0.04, hit_rate=0.5,
)  # fmt: skip


def shown(progress: BatchProgress, *, is_terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=200, no_color=True)
    with TerminalCallback(console) as terminal:
        terminal.batch_done(progress)
    return out.getvalue()


def test_a_batch_shows_rate_waiting_hits_and_memory() -> None:
    line = shown(PROGRESS)
    for text in ("epoch 2/3 train", "loss 0.2500", "3.3 batches/s", "waiting 4%", "hits 50%", "resident", "12 s left"):
        assert text in line


@pytest.mark.parametrize(
    ("change", "there", "missing"),
    [
        ({"hit_rate": None}, "waiting 4%", "hits"),
        ({"loss": None}, "3.3 batches/s", "loss"),
        ({"seconds_left": None}, "resident", "left"),
        ({"rate": 120_345.6, "unit": "edges"}, "120,346 edges/s", "batches"),
    ],
)
def test_what_there_is_not_is_not_shown(change: dict[str, object], there: str, missing: str) -> None:
    line = shown(replace(PROGRESS, **change))  # type: ignore[arg-type]
    assert there in line
    assert missing not in line


def test_epochs_count_from_1_and_the_test_belongs_to_the_last() -> None:
    assert "epoch 1/3 train" in shown(replace(PROGRESS, epoch=0))
    assert "epoch 3/3 test" in shown(replace(PROGRESS, epoch=3, stage="test"))


def test_off_a_terminal_nothing_moves() -> None:
    assert shown(PROGRESS, is_terminal=False) == ""
