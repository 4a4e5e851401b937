"""The I/O engine, chosen at run time: io_uring where the kernel lets us, threads elsewhere."""

from __future__ import annotations

from typing import Literal, NamedTuple

from diskhop._native import Engine, FaultInjector, why_no_uring
from diskhop.errors import ConfigError

EngineName = Literal["auto", "uring", "threads"]
ENGINE_NAMES: tuple[EngineName, ...] = ("auto", "uring", "threads")

# Small random reads gain up to this depth (rows of 512 bytes want 256), large ones lose nothing.
DEFAULT_DEPTH = 256


class OpenedEngine(NamedTuple):
    """An engine, and in one line why it is this one."""

    engine: Engine
    reason: str


def choose_engine(name: str = "auto") -> tuple[Literal["uring", "threads"], str]:
    """The engine that this name stands for here, and in one line why; 'auto' prefers io_uring.

    Raises ConfigError for an unknown name, and for 'uring' where io_uring cannot be used.
    """
    if name not in ENGINE_NAMES:
        raise ConfigError(f"unknown engine '{name}'; the known ones are {', '.join(ENGINE_NAMES)}")
    if name == "threads":
        return "threads", "as asked"
    obstacle = why_no_uring()
    if not obstacle:
        return "uring", "as asked" if name == "uring" else "io_uring works here"
    if name == "uring":
        raise ConfigError(f"engine 'uring' cannot be used: no io_uring here: {obstacle}; take 'threads' or 'auto'")
    return "threads", f"no io_uring here: {obstacle}"


def open_engine(name: str = "auto", depth: int = DEFAULT_DEPTH, injector: FaultInjector | None = None) -> OpenedEngine:
    """Open the engine of that name (see choose_engine), with up to `depth` requests at the device."""
    chosen, reason = choose_engine(name)
    try:
        return OpenedEngine(Engine(chosen, depth, injector), reason)
    except ConfigError as error:
        # What worked for one request may be short of memory for `depth` of them.
        if name != "auto" or chosen == "threads":
            raise
        return OpenedEngine(Engine("threads", depth, injector), f"no io_uring here: {error}")
