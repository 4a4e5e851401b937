"""The ranks of a run: read from torchrun's variables, and each with its share of the batches of every pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import TCPStore  # torch.distributed has it without exporting it

from diskhop.cli import run
from diskhop.errors import ConfigError
from diskhop.runs.distributed import _leave_message
from diskhop.runtime.ranks import ONE, Ranks, read_ranks
from tests.ranks import free_port

OF_TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def test_ranks_are_those_of_torchrun() -> None:
    assert read_ranks({**OF_TORCHRUN, "HOME": "/"}) == Ranks(rank=3, count=4, local_rank=1, local_count=2)
    assert read_ranks({"HOME": "/", "LOCAL_RANK": "1"}) == ONE
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert read_ranks(alone) == ONE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"MASTER_ADDR": ""},
            "WORLD_SIZE is '4', which needs MASTER_ADDR too: start with torchrun, .*unset WORLD",
        ),
        ({"LOCAL_WORLD_SIZE": ""}, "needs LOCAL_WORLD_SIZE too"),
        ({"RANK": ""}, "needs RANK too"),
        ({"RANK": "one"}, "RANK must be a whole number from 0, got 'one'"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE must be a whole number from 0, got '-2'"),
        ({"RANK": "4"}, "RANK must be less than WORLD_SIZE, got 4 of 4"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK must be less than LOCAL_WORLD_SIZE, got 2 of 2"),
        ({"LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE must be at most WORLD_SIZE, got 5 of 4"),
        ({"WORLD_SIZE": "0"}, "RANK must be less than WORLD_SIZE, got 3 of 0"),
    ],
)
def test_what_is_missing_or_contradicts_is_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_ranks({**OF_TORCHRUN, **changes})


def test_an_error_has_no_other_when_the_first_rank_has_ended_already() -> None:
    port = free_port()
    first = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    store = TCPStore("127.0.0.1", port, is_master=False)
    del first
    _leave_message(store, ConfigError("the same as that of the first"))


def test_commands_that_every_rank_would_run_whole_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for words in (["generate", "sbm"], ["--json", "propagate"]):
        assert run([*words, str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is for one process, and WORLD_SIZE=2 says that torchrun has started several" in line
    assert not list(tmp_path.iterdir())


def test_processes_that_cannot_be_started_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "graph", "--processes", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "diskhop: --processes must be at least 1, got 0; for example --processes 2"
    monkeypatch.setenv("RANK", "1")
    assert run(["train", "graph", "--processes", "2"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("RANK=1 says that torchrun has: remove --processes, or run first: unset RANK")


@given(count=st.integers(1, 8), num_batches=st.integers(0, 30))
def test_the_shares_of_all_ranks_are_the_whole_in_turns(count: int, num_batches: int) -> None:
    shares = [Ranks(rank, count, rank, count).share(range(num_batches)) for rank in range(count)]
    assert sorted(number for share in shares for number in share) == list(range(num_batches))
    for number in range(num_batches):
        assert shares[number % count][number // count] == number
