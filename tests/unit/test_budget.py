from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.errors import BudgetError, ConfigError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1500", 1500),
        ("2GB", 2_000_000_000),
        ("512 MiB", 512 * 2**20),
        ("1.5MB", 1_500_000),
        ("1e3KB", 1_000_000),
        ("3B", 3),
        ("0", 0),
    ],
)
def test_sizes_are_decimal_with_b_and_binary_with_ib(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "2 G", "2gb", "-1MB", "1e30GB", "nan", "two GB"])
def test_other_sizes_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="size"):
        parse_bytes(text)


@given(st.integers(0, 2**62))
def test_formatted_sizes_read_back_within_their_digits(num_bytes: int) -> None:
    assert parse_bytes(format_bytes(num_bytes)) == pytest.approx(num_bytes, rel=0.006, abs=0.5)


def test_reservations_add_up_and_come_back() -> None:
    budget = Budget(100)
    with budget.reserve("topology", 40):
        with budget.reserve("cache", 60):
            assert budget.available_bytes == 0
        assert budget.available_bytes == 60
    assert budget.available_bytes == 100
    assert budget.table() == {"topology": 40, "cache": 60}
    assert budget.peak_bytes == 100


def test_refusal_names_holders_and_the_smallest_budget_that_would_do() -> None:
    budget = Budget(3_000_000)
    with budget.reserve("topology", 2_000_000), pytest.raises(BudgetError) as caught:
        budget.reserve("cache", 4_500_000)
    message = str(caught.value)
    assert "topology 2 MB" in message
    assert "cache 4.5 MB" in message
    assert "smallest that works is --memory 7MB" in message
    assert caught.value.smallest_bytes == 6_500_000
    Budget(parse_bytes("7MB")).require({"topology": 2_000_000, "cache": 4_500_000})


def test_the_parts_of_a_refusal_are_all_that_is_held_and_wanted() -> None:
    budget = Budget(10_000_000)
    budget.reserve("done", 1_000_000).release()
    with budget.reserve("ids", 4_000_000), pytest.raises(BudgetError) as caught:
        budget.require({"ids": 7_000_000, "names": 2_000_000, "nothing": 0})
    told = "it needs ids 11 MB, names 2 MB; the smallest that works is --memory 13MB"
    assert told in str(caught.value)


def test_releasing_twice_gives_back_once() -> None:
    budget = Budget(10)
    reservation = budget.reserve("cache", 6)
    reservation.release()
    reservation.release()
    assert budget.available_bytes == 10


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        Budget(0)
    with pytest.raises(ConfigError, match="cache"):
        Budget(10).reserve("cache", -1)


def test_threads_never_reserve_more_than_there_is() -> None:
    budget = Budget(7)
    most = 0

    def reserve_often() -> None:
        nonlocal most
        for _ in range(500):
            try:
                with budget.reserve("slot", 2):
                    most = max(most, budget.total_bytes - budget.available_bytes)
            except BudgetError:
                continue

    threads = [threading.Thread(target=reserve_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 6
    assert budget.available_bytes == 7
