"""The choices of a run are one table: option, value, why."""

from __future__ import annotations

from diskhop.runs.choices import Choice, Choices
from diskhop.ui.table import plan_choices, table_lines


def test_given_options_are_not_explained_and_chosen_ones_are() -> None:
    choices = Choices({"lr": 0.1})
    assert choices.choose("lr", 0.3, "never shown") == 0.1
    assert choices.choose("fanout", (10, 5), "bounds a batch") == (10, 5)
    assert choices.made == [Choice("fanout", "10,5", "bounds a batch")]
    assert choices.complete == {"lr": 0.1, "fanout": (10, 5)}


def test_a_plans_reasons_are_split_as_far_as_they_have_parts() -> None:
    reasons = ("In-flight batches: 229 MB (up to 36.9 MB each)", "store static: 1.2 s per epoch", "no parts at all")
    assert plan_choices(reasons) == [
        Choice("In-flight batches", "229 MB", "up to 36.9 MB each"),
        Choice("store", "static", "1.2 s per epoch"),
        Choice("plan", "", "no parts at all"),
    ]


def test_a_table_has_a_line_per_choice_or_wraps_reasons_below_each_other() -> None:
    rows = [Choice("memory_bytes", "2 GB", "half of the free memory"), Choice("eval_batch_size", "9" * 30, "long")]
    assert table_lines(rows, None) == [
        "option           value  why",
        "memory           2 GB   half of the free memory",
        f"eval-batch-size  {'9' * 30}  long",
    ]
    wrapped = table_lines([Choice("lr", "0.1", "one two three four five six seven eight nine ten")], 45)
    assert wrapped[1:] == ["lr      0.1    one two three four five six", " " * 15 + "seven eight nine ten"]
