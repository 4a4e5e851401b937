"""Bytes that the kernel counts for this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop.system import transfers as module
from diskhop.system.transfers import Transfers, transfers


def test_what_calls_read_and_write_is_counted(tmp_path: Path) -> None:
    before = transfers()
    (tmp_path / "file").write_bytes(bytes(100_000))
    (tmp_path / "file").read_bytes()
    after = transfers()
    assert after.call_bytes_written - before.call_bytes_written >= 100_000
    assert after.call_bytes_read - before.call_bytes_read >= 100_000
    assert after.bytes_read >= before.bytes_read
    assert after.bytes_written >= before.bytes_written


def test_a_kernel_that_does_not_say_counts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_COUNTS", tmp_path / "io")
    assert transfers() == Transfers(0, 0, 0, 0)
