"""Claims about waits for memory: said in one line, at most once a minute, and only where processes really waited."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diskhop.system.limits import own_groups
from diskhop.system.pressure import MACHINE, MemoryPressure, describe_wait


class Kernel:
    """Files with waits: of the machine, and of the group `job` of this process."""

    def __init__(self, folder: Path) -> None:
        self.machine, self.own = folder / "machine", folder / "own"
        self.group = folder / "job" / "memory.pressure"
        self.group.parent.mkdir()
        self.own.write_text("0::/job\n")
        self.counts_groups = True
        self.set(machine=0, group=0)
        self.pressure = MemoryPressure(self.machine, folder, self.own)

    def set(self, *, machine: float, group: float) -> None:
        """Set the seconds that processes have waited in all."""
        counted = {self.machine: machine, **({self.group: group} if self.counts_groups else {})}
        self.group.unlink(missing_ok=True)
        for file, seconds in counted.items():
            lines = (f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={seconds * 1e6:.0f}" for kind in ("some", "full"))
            file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_waits_of_the_group_are_said_with_the_figures_of_this_process(kernel: Kernel) -> None:
    assert kernel.pressure.look(100.0) == ""
    kernel.set(machine=4.9, group=2.0)
    line = kernel.pressure.look(105.0)
    assert line.startswith(f"Waiting for memory: 40% of the last 5 s (control group {kernel.group.parent}). ")
    assert f"Process {os.getpid()} has " in line
    assert "\n" not in line


def test_short_waits_and_those_before_the_first_look_are_not_said(kernel: Kernel) -> None:
    kernel.set(machine=500.0, group=500.0)
    assert kernel.pressure.look(100.0) == ""
    kernel.set(machine=500.4, group=500.4)
    assert kernel.pressure.look(105.0) == ""


def test_waits_of_other_groups_are_not_said(kernel: Kernel) -> None:
    assert kernel.pressure.look(100.0) == ""
    kernel.set(machine=5.0, group=0.0)
    assert kernel.pressure.look(105.0) == ""


def test_waits_of_the_machine_are_said_where_no_group_counts(kernel: Kernel) -> None:
    kernel.counts_groups = False
    kernel.set(machine=0.0, group=0.0)
    assert kernel.pressure.look(100.0) == ""
    kernel.set(machine=1.0, group=0.0)
    assert kernel.pressure.look(105.0).startswith("Waiting for memory: 20% of the last 5 s ")
    assert "(this machine)" in describe_wait(0.2, 5.0, MACHINE)


def test_version_2_next_to_version_1_is_found(tmp_path: Path) -> None:
    (tmp_path / "unified" / "job").mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/box\n0::/job\n")
    groups = [group for group, _ in own_groups(tmp_path, tmp_path / "own")]
    assert tmp_path / "memory" / "box" in groups
    assert tmp_path / "unified" / "job" in groups
    assert tmp_path / "job" not in groups


def test_a_line_a_minute(kernel: Kernel) -> None:
    said = []
    for second in range(0, 200, 5):
        kernel.set(machine=0.0, group=second)
        if kernel.pressure.look(float(second)):
            said.append(second)
    assert said == [5, 65, 125, 185]


def test_a_kernel_that_does_not_count_waits_is_no_error(kernel: Kernel) -> None:
    kernel.machine.unlink()
    kernel.group.write_text("damaged\n")
    assert [kernel.pressure.look(second) for second in (0.0, 5.0)] == ["", ""]
