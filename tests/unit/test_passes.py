"""The order of a run's passes."""

from __future__ import annotations

import pytest

from diskhop.protocols import Purpose
from diskhop.runs.passes import PassOrder, RunPass


@pytest.mark.parametrize(
    ("epochs", "eval_every", "has_valid", "has_test", "expected"),
    [
        (2, 1, True, True, "T0 V0 T1 V1 t1"),
        (3, 2, True, True, "T0 T1 V1 T2 V2 t2"),
        (2, 5, True, False, "T0 T1 V1"),
        (2, 1, False, True, "T0 T1 t1"),
        (1, 1, False, False, "T0"),
    ],
)
def test_passes_come_in_the_order_of_training(
    epochs: int, eval_every: int, has_valid: bool, has_test: bool, expected: str
) -> None:
    order = PassOrder(epochs=epochs, eval_every=eval_every, has_valid=has_valid, has_test=has_test)
    words = {Purpose.TRAIN: "T", Purpose.VALID: "V", Purpose.TEST: "t"}
    found: list[RunPass] = []
    current: RunPass | None = RunPass(Purpose.TRAIN, 0)
    while current is not None:
        found.append(current)
        current = order.after(current)
    assert " ".join(f"{words[each.purpose]}{each.epoch}" for each in found) == expected
