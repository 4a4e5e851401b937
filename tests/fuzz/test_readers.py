"""Every reader refuses what it cannot read with its own error: seeds, earlier findings, and a second of mutations."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import pytest

from tests.fuzz.mutator import Mutator
from tests.fuzz.run import NAMES, load, try_input
from tests.fuzz.target import Target

_SECONDS = 1.0
# Some runs, however slow the machine: 3 of whole imports.
_LEAST_RUNS = 3


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_raises_nothing_but_its_own_errors(name: str) -> None:
    target = load(name)
    assert name == f"read_{target.name}"
    inputs = target.inputs()
    accepted = [try_input(target, content) for content in inputs]
    assert any(accepted), "a seed is right"
    mutator = Mutator(0, target.words)
    begin, num_runs = time.monotonic(), 0
    while num_runs < _LEAST_RUNS or time.monotonic() - begin < _SECONDS:
        try_input(target, mutator.next(inputs))
        num_runs += 1


@pytest.mark.parametrize("name", NAMES)
def test_earlier_findings_are_refused(name: str) -> None:
    target = load(name)
    for path in target.findings():
        assert not try_input(target, path.read_bytes()), path


def test_an_input_that_takes_gigabytes_is_found_whatever_the_process_has_reserved() -> None:
    def read(content: bytes, folder: Path) -> None:
        bytearray(int(content))

    target = Target(name="size", read=read, errors=(ValueError,), seeds=lambda folder: [])
    with mmap.mmap(-1, 3 << 30):
        assert try_input(target, b"1000000")
        with pytest.raises(MemoryError):
            try_input(target, b"3000000000")


def test_equal_seeds_make_equal_inputs() -> None:
    corpus = [b'{"count": 12}', b"0 1\n"]
    first, second = (Mutator(3), Mutator(3))
    assert [first.next(corpus) for _ in range(200)] == [second.next(corpus) for _ in range(200)]
