"""Intervals are times or numbers; what is neither is refused, and a signal that is put off is delivered once."""

from __future__ import annotations

import signal

import pytest

from diskhop.config.interval import Interval, parse_interval
from diskhop.config.options import check_options
from diskhop.config.sampled import SampledConfig
from diskhop.errors import ConfigError
from diskhop.runs.interruptions import put_off_interruptions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10min", Interval(seconds=600)),
        ("1.5 h", Interval(seconds=5400)),
        (" 90s ", Interval(seconds=90)),
        ("500 batches", Interval(count=500)),
        ("3batches", Interval(count=3)),
        ("epoch", Interval()),
    ],
)
def test_intervals_are_parsed(text: str, expected: Interval) -> None:
    assert parse_interval(text, "batches") == expected


@pytest.mark.parametrize("text", ["", "0min", "0 batches", "1.5 batches", "4 states", "10", "min", "-1h", "1 day"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint_every must be a time in s, min or h, a number"):
        check_options({"checkpoint_every": text}, "here", [SampledConfig])


def test_an_interval_is_over_after_its_time_or_its_number() -> None:
    assert [Interval(seconds=2).is_over(seconds, 10**9) for seconds in (1.9, 2)] == [False, True]
    assert [Interval(count=2).is_over(1e9, count) for count in (1, 2)] == [False, True]
    assert not Interval().is_over(1e9, 10**9)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_put_off_until_it_is_delivered(number: signal.Signals) -> None:
    heard = []
    before = signal.signal(number, lambda number, _frame: heard.append(number))
    try:
        with put_off_interruptions() as interruption:
            signal.raise_signal(number)
            assert (interruption.number, heard) == (number, [])
            interruption.deliver()
            assert (interruption.number, heard) == (None, [number])
        with put_off_interruptions():
            signal.raise_signal(number)
        assert heard == [number, number], "at the end, if nobody delivered it"
        with put_off_interruptions():
            signal.raise_signal(number)
            signal.raise_signal(number)
            assert len(heard) == 3, "a second one is not put off"
        signal.signal(number, signal.SIG_IGN)
        with put_off_interruptions() as interruption:
            signal.raise_signal(number)
            assert interruption.number is None, "what is ignored stays so"
    finally:
        signal.signal(number, before)
