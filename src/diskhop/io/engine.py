"""The I/O engine, chosen at run time: io_uring where the kernel allows it, threads elsewhere."""

from __future__ import annotations

import platform
from typing import Literal, NamedTuple

from diskhop._native import Engine, FaultInjector, why_no_uring
from diskhop.errors import ConfigError

EngineName = Literal["auto", "uring", "threads"]
ENGINE_NAMES: tuple[EngineName, ...] = ("auto", "uring", "threads")

# Small random reads get faster up to this depth (rows of 512 bytes), large reads do not get slower.
DEFAULT_DEPTH = 256

# What to do, by what why_no_uring() says.
_NEXT_STEPS = {
    "the kernel does not know it": "io_uring needs Linux 5.6 or newer, this is {release}: install a newer kernel",
    "the kernel forbids it": (
        "allow io_uring: 'sysctl -w kernel.io_uring_disabled=0' as root; in a container, a seccomp profile with its "
        "three system calls ('docker run --security-opt seccomp=PROFILE.json')"
    ),
    "built without liburing": (
        "install liburing's headers (Debian: 'apt-get install liburing-dev') and build diskhop again "
        "('pip install --force-reinstall --no-deps .')"
    ),
    "": "raise the limits on memory and open files ('ulimit -l' and 'ulimit -n')",
}


class OpenedEngine(NamedTuple):
    """An engine and the reason for choosing it, in one line."""

    engine: Engine
    reason: str


def choose_engine(name: str = "auto") -> tuple[Literal["uring", "threads"], str]:
    """Choose the engine for a name; 'auto' prefers io_uring. Returns the engine's name and the reason, in one line.

    Raises ConfigError for an unknown name, and for 'uring' where io_uring is not available.
    """
    if name not in ENGINE_NAMES:
        raise ConfigError(f"engine '{name}' is unknown; choose one of {', '.join(ENGINE_NAMES)}")
    if name == "threads":
        return "threads", "requested"
    obstacle = why_no_uring()
    if not obstacle:
        return "uring", "requested" if name == "uring" else "io_uring is available"
    if name == "uring":
        raise ConfigError(f"engine 'uring': io_uring is not available ({obstacle}); use 'threads' or 'auto'")
    return "threads", f"io_uring is not available: {obstacle}"


def uring_next_step(obstacle: str) -> str:
    """Return what to do about an obstacle of why_no_uring(), in one line; '' for none."""
    if not obstacle:
        return ""
    step = next(step for words, step in _NEXT_STEPS.items() if obstacle.startswith(words))
    return step.format(release=platform.release())


def kind_of_engine(engine: Engine) -> tuple[str, int]:
    """Return what open_engine() takes for an engine of the same kind elsewhere, where io_uring may not be available."""
    return "auto" if engine.name == "uring" else engine.name, engine.depth


def open_engine(name: str = "auto", depth: int = DEFAULT_DEPTH, injector: FaultInjector | None = None) -> OpenedEngine:
    """Open the engine of a name (see choose_engine), with up to `depth` requests in flight."""
    chosen, reason = choose_engine(name)
    try:
        return OpenedEngine(Engine(chosen, depth, injector), reason)
    except ConfigError as error:
        # One request may work where the kernel lacks the memory for `depth` of them.
        if name != "auto" or chosen == "threads":
            raise
        return OpenedEngine(Engine("threads", depth, injector), f"io_uring is not available: {error}")
