"""Bars of long work: a line a stage with how far it is and the time left, on a terminal alone."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from diskhop.ui.progress import stage_progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_stage_shows_how_far_it_is_and_the_time_it_took_and_has_left(is_terminal: bool) -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=is_terminal, width=100)
    with stage_progress(console) as progress:
        progress("parsing", 1, 4)
        progress("parsing", 3, 4)
        progress("sorting edges", 0, 7)
    if is_terminal:
        assert "parsing" in drawn.getvalue()
        assert "75%" in drawn.getvalue()
        assert "sorting edges" in drawn.getvalue()
        assert "0:00:00" in drawn.getvalue(), "elapsed"
        assert "-:--:--" in drawn.getvalue(), "left, not known yet"
    else:
        assert drawn.getvalue() == ""


def test_an_error_before_the_first_stage_stands_alone() -> None:
    drawn = io.StringIO()
    with pytest.raises(ValueError, match="early"), stage_progress(Console(file=drawn, force_terminal=True)):
        raise ValueError("early")
    assert drawn.getvalue() == ""
