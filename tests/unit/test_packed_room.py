"""Room for batches' rows against a buffer of which every row is marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diskhop.stores.packed.buffer_space import BufferSpace


class MarkedRows:
    """Every row of a buffer by itself: whose it is, or None."""

    def __init__(self, first: int, end: int, slot_rows: int) -> None:
        self._first = first
        self._slot_rows = slot_rows
        self._owners: list[int | None] = [None] * (end - first)

    def take(self, owner: int, num_rows: int) -> int | None:
        for begin in range(0, len(self._owners) - num_rows + 1, self._slot_rows):
            run = slice(begin, begin + num_rows)
            if all(each is None for each in self._owners[run]):
                self._owners[run] = [owner] * num_rows
                return self._first + begin
        return None

    def give_back(self, owner: int) -> None:
        self._owners = [None if each == owner else each for each in self._owners]


# How many rows to take, or which of the runs that are out to give back.
STEPS = st.lists(
    st.tuples(st.just("take"), st.integers(0, 12)) | st.tuples(st.just("give_back"), st.integers(0, 100)), max_size=60
)


@given(st.integers(0, 5), st.integers(0, 30), st.integers(1, 8), STEPS)
def test_runs_are_the_lowest_that_are_free(
    first: int, num_rows: int, slot_rows: int, steps: list[tuple[str, int]]
) -> None:
    room = BufferSpace(first, first + num_rows, slot_rows)
    marked = MarkedRows(first, first + num_rows, slot_rows)
    assert room.num_rows == num_rows
    out: list[tuple[int, int, int]] = []
    for owner, (step, value) in enumerate(steps):
        if step == "take":
            begin = room.take(value)
            assert begin == marked.take(owner, value)
            if begin is not None:
                out.append((owner, begin, value))
        elif out:
            returned, begin, length = out.pop(value % len(out))
            room.give_back(begin, length)
            marked.give_back(returned)
    for owner, begin, length in out:
        room.give_back(begin, length)
        marked.give_back(owner)
    assert room.take(num_rows) == first


def test_a_larger_batch_takes_the_place_of_one_that_has_left() -> None:
    room = BufferSpace(0, 30, 10)
    places = [room.take(num_rows) for num_rows in (8, 9, 8)]
    assert places == [0, 10, 20]
    room.give_back(0, 8)
    assert room.take(10) == 0
    assert room.take(1) is None
