"""Claims about choosing an engine: what is asked for, or the best that works here, or one clear line."""

from __future__ import annotations

import resource

import pytest

import diskhop.io.engine as engine_module
from diskhop._native import Engine, FaultInjector, why_no_uring
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine


def test_auto_takes_io_uring_where_it_works() -> None:
    engine, reason = open_engine("auto", 7)
    assert engine.name == ("threads" if why_no_uring() else "uring")
    assert engine.depth == 7
    assert "io_uring" in reason


def test_threads_always_work() -> None:
    assert open_engine("threads").engine.name == "threads"


def test_where_io_uring_is_forbidden_auto_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "why_no_uring", lambda: "the kernel forbids it")
    engine, reason = open_engine("auto")
    assert engine.name == "threads"
    assert "the kernel forbids it" in reason
    with pytest.raises(ConfigError, match=r"the kernel forbids it\); use 'threads' or 'auto'"):
        open_engine("uring")


def test_where_an_engine_over_io_uring_cannot_be_made_auto_falls_back_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make_engine(name: str, depth: int, injector: FaultInjector | None) -> Engine:
        if name == "uring":
            raise ConfigError("io_uring cannot be set up: Cannot allocate memory")
        return Engine(name, depth, injector)

    monkeypatch.setattr(engine_module, "why_no_uring", lambda: "")
    monkeypatch.setattr(engine_module, "Engine", make_engine)
    engine, reason = open_engine("auto", 3)
    assert (engine.name, engine.depth) == ("threads", 3)
    assert "Cannot allocate memory" in reason
    with pytest.raises(ConfigError, match="Cannot allocate memory"):
        open_engine("uring")


def test_what_the_system_lacks_for_an_engine_is_told_with_the_next_step() -> None:
    lowest, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, highest))  # no more descriptors: a ring is one
    try:
        with pytest.raises(ConfigError, match=r"io_uring|liburing") as told:
            Engine("uring", 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, highest))
    assert "'--engine threads'" in str(told.value)
    assert open_engine("threads").engine.name == "threads"


def test_unknown_engines_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="engine 'libaio' is unknown; choose one of auto, uring, threads"):
        open_engine("libaio")


@pytest.mark.parametrize("depth", [0, 5000])
def test_depths_out_of_range_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth must be 1 to 4096, got {depth}"):
        open_engine("threads", depth)
