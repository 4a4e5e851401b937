"""Claims about what this process may use: the least of nested control groups, the shell's limit and free memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from diskhop.system.limits import MemoryLimit, memory_limit, memory_limits
from diskhop.system.memory import free_memory_bytes, resident_bytes

GB = 10**9


def group(path: Path, **files: object) -> Path:
    """Make a control group with these files; '_' stands for '.' where a name begins with memory_."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name.replace("memory_", "memory.", 1)).write_text(f"{content}\n")
    return path


def limits_of(root: Path, own: str) -> dict[str, int]:
    """Return the limits that groups set, by what sets them, relative to the root."""
    file = root / "own"
    file.write_text(own)
    found = memory_limits(root, file)
    return {limit.source.replace(str(root) + "/", ""): limit.num_bytes for limit in found if str(root) in limit.source}


def test_every_group_of_a_chain_limits_what_is_below_it(tmp_path: Path) -> None:
    group(tmp_path / "a", memory_max=8 * GB, memory_current=3 * GB, memory_high="max", memory_stat="")
    group(tmp_path / "a" / "b", memory_max="max", memory_current=1 * GB, memory_stat="")
    group(tmp_path / "a" / "b" / "c", memory_max=4 * GB, memory_high=2 * GB, memory_current=1 * GB, memory_stat="")
    group(tmp_path / "a" / "other", memory_max=1, memory_current=0, memory_stat="")
    own_bytes = resident_bytes("RssAnon")
    found = limits_of(tmp_path, "0::/a/b/c\n")
    assert set(found) == {"memory.max of a", "memory.max of a/b/c", "memory.high of a/b/c"}
    # Of what a group uses, this process's own is not other processes'.
    assert found["memory.max of a"] == pytest.approx(5 * GB + own_bytes, abs=50_000_000)
    assert found["memory.high of a/b/c"] == pytest.approx(1 * GB + own_bytes, abs=50_000_000)


def test_pages_of_files_that_are_cached_give_way(tmp_path: Path) -> None:
    stat = f"anon 5\nactive_file {1 * GB}\ninactive_file {2 * GB}\nslab 7"
    group(tmp_path / "a", memory_max=4 * GB, memory_current=4 * GB, memory_stat=stat)
    found = limits_of(tmp_path, "0::/a\n")
    assert found["memory.max of a"] == pytest.approx(3 * GB + resident_bytes("RssAnon"), abs=50_000_000)


def test_groups_of_version_1_count_too_and_none_is_no_limit(tmp_path: Path) -> None:
    stat = f"cache 9\ntotal_inactive_file {GB}\ntotal_active_file 0\ninactive_file {3 * GB}"
    files = {"memory_usage_in_bytes": 2 * GB, "memory_stat": stat}
    group(tmp_path / "memory" / "a", memory_limit_in_bytes=3 * GB, **files)
    group(tmp_path / "memory", memory_limit_in_bytes=9223372036854771712, **files)
    found = limits_of(tmp_path, "5:cpu,cpuacct:/z\n4:cpu,memory:/a\n0::/\n")
    assert set(found) == {"memory.limit_in_bytes of memory/a"}
    assert found["memory.limit_in_bytes of memory/a"] == pytest.approx(2 * GB + resident_bytes("RssAnon"), abs=5e7)


def test_a_group_that_others_have_filled_leaves_what_this_process_has(tmp_path: Path) -> None:
    group(tmp_path / "a", memory_max=GB, memory_current=5 * GB, memory_stat="")
    assert 0 <= limits_of(tmp_path, "0::/a\n")["memory.max of a"] <= resident_bytes("RssAnon")


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    group(tmp_path, memory_max=2 * GB, memory_current=GB, memory_stat="")
    # The name outside has no folder inside.
    assert len(limits_of(tmp_path, "0::/docker/0123\n")) == 1


def test_files_without_sense_are_no_limit(tmp_path: Path) -> None:
    group(tmp_path / "a", memory_max="many", memory_current="few")
    assert limits_of(tmp_path, "0::/a\n") == {}
    assert memory_limits(tmp_path, tmp_path / "missing")[0].source == "free memory"


def test_free_memory_is_what_the_least_limit_leaves() -> None:
    own_bytes = resident_bytes("RssAnon")
    assert memory_limit().num_bytes == pytest.approx(min(memory_limits()).num_bytes, abs=1e8)
    assert free_memory_bytes() == pytest.approx(memory_limit().num_bytes - own_bytes, abs=100_000_000)


def test_the_limit_of_the_shell_counts() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
        "from diskhop.system.limits import memory_limit; print(*memory_limit())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    num_bytes, _, source = done.stdout.strip().partition(" ")
    if memory_limit().num_bytes > 3 << 30:
        assert source == "ulimit -v"
    assert int(num_bytes) <= 3 << 30


def test_the_least_of_limits_is_named() -> None:
    assert min([MemoryLimit(5, "free memory"), MemoryLimit(3, "ulimit -v")]).source == "ulimit -v"
