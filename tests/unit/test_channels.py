from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from diskhop.runtime.channels import ByteGate, ClosedError, OrderedChannel, Phase

SECONDS = 10


def in_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_items_leave_in_order_whatever_the_order_they_come_in() -> None:
    channel = OrderedChannel[int](capacity=4)
    counter = iter(range(200))
    lock = threading.Lock()

    def produce() -> None:
        while True:
            with lock:
                index = next(counter, None)
            if index is None:
                return
            for _ in range(random.randrange(200)):
                pass
            channel.put(index, index * 10)

    threads = [in_thread(produce) for _ in range(3)]
    assert [channel.get() for _ in range(200)] == [index * 10 for index in range(200)]
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_full_channel_holds_its_producer_back() -> None:
    channel = OrderedChannel[int](capacity=2)
    channel.put(0, 0)
    channel.put(1, 1)
    passed = threading.Event()

    def put_third() -> None:
        channel.put(2, 2)
        passed.set()

    thread = in_thread(put_third)
    assert not passed.wait(0.05)
    assert channel.get() == 0
    assert passed.wait(SECONDS)
    thread.join(SECONDS)


def test_closing_wakes_everyone_with_the_first_error() -> None:
    channel = OrderedChannel[int](capacity=1)
    seen: list[BaseException] = []

    def get() -> None:
        try:
            channel.get()
        except ValueError as error:
            seen.append(error)

    threads = [in_thread(get) for _ in range(3)]
    channel.close(ValueError("first"))
    channel.close(KeyError("second"))
    for thread in threads:
        thread.join(SECONDS)
    assert [str(error) for error in seen] == ["first"] * 3
    with pytest.raises(ValueError, match="first"):
        channel.put(0, 0)


def test_closing_without_an_error_says_closed() -> None:
    gate = ByteGate(1)
    gate.close()
    with pytest.raises(ClosedError):
        gate.enter(1)


def test_more_than_the_gate_holds_goes_alone() -> None:
    gate = ByteGate(100)
    gate.enter(60)
    passed = threading.Event()

    def enter_large() -> None:
        gate.enter(500)
        passed.set()

    thread = in_thread(enter_large)
    assert not passed.wait(0.05)
    gate.leave(60)
    assert passed.wait(SECONDS)
    thread.join(SECONDS)
    # Nobody joins it inside.
    small = threading.Event()

    def enter_small() -> None:
        gate.enter(1)
        small.set()

    thread = in_thread(enter_small)
    assert not small.wait(0.05)
    gate.leave(500)
    assert small.wait(SECONDS)
    thread.join(SECONDS)


def test_a_phase_ends_when_no_thread_works_any_more() -> None:
    phase, events = Phase(), list[str]()
    inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        for _ in range(2):
            with phase.work():
                events.append("works")
                inside.set()
                assert may_leave.wait(SECONDS)
                events.append("leaves")

    thread = in_thread(work)
    assert not events
    phase.begin()
    assert inside.wait(SECONDS)
    in_thread(may_leave.set)
    phase.end()
    events.append("over")
    phase.begin()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert events[:2] == ["works", "leaves"]
    assert events.count("works") == 2
    assert "over" in events[2:]


def test_closing_a_phase_wakes_who_waits_for_it() -> None:
    phase = Phase()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with phase.work():
                pass
        except ValueError as error:
            raised.append(error)

    thread = in_thread(work)
    phase.close(ValueError("the disk is gone"))
    thread.join(SECONDS)
    assert [str(error) for error in raised] == ["the disk is gone"]
    with pytest.raises(ValueError, match="the disk is gone"):
        phase.end()
