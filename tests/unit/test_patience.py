"""Patience counts validations in a row that are not better than the best before them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.config.embed import EmbedConfig
from diskhop.config.options import option_fields
from diskhop.config.train import TrainConfig
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.patience import is_out_of_patience
from tests.runs import small_graph

VALUES = st.lists(st.integers(0, 4).map(float), max_size=12)


@pytest.mark.parametrize(
    ("validations", "patience", "is_out"),
    [
        ([], 1, False),
        ([0.5], 1, False),
        ([0.5, 0.5], 1, True),
        ([0.5, 0.4, 0.6], 2, False),
        ([0.5, 0.4, 0.5], 2, True),
        ([0.5, 0.6, 0.4, 0.5], 2, True),
        ([0.5, 0.4, 0.45, 0.48], 3, True),
        ([0.5] * 9, 0, False),
        ([0.0, 0.0, 0.0], 3, False),
    ],
)
def test_validations_that_are_not_better_than_the_best_before_are_counted(
    validations: list[float], patience: int, is_out: bool
) -> None:
    assert is_out_of_patience(validations, patience) == is_out


@given(validations=VALUES, patience=st.integers(1, 6))
def test_a_run_is_out_when_the_last_are_all_no_better(validations: list[float], patience: int) -> None:
    expected = len(validations) > patience and max(validations[-patience:]) <= max(validations[:-patience])
    assert is_out_of_patience(validations, patience) == expected


def test_both_commands_say_the_same() -> None:
    helps = [option_fields(config)["patience"].help for config in (TrainConfig, EmbedConfig)]
    assert helps[0] == helps[1]
    assert "consecutive validations that are not better than the best before them" in helps[0]


def test_what_is_chosen_in_epochs_is_as_many_epochs_of_validations(tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph")
    given = {"matmul": "blas", "batch_size": 100}
    every = resolve_config(dataset, given).config
    assert (every.epochs, every.patience) == (167, 41)
    for eval_every, patience in ((2, 21), (41, 1), (50, 1)):
        resolved = resolve_config(dataset, {**given, "eval_every": eval_every})
        assert resolved.config.patience == patience
        why = f"stops after {patience} validations in a row that are not better"
        assert ("patience", str(patience), why) in resolved.choices
