"""The state of NeighborLoader, as checkpoints keep it."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diskhop.errors import ConfigError
from diskhop.loaders.passes import Position

_COUNTS = ("epoch", "delivered", "next_epoch", "calls")


@dataclass(frozen=True, slots=True)
class LoaderState:
    """The content of a state_dict().

    position: what the pass that delivered the last batch has delivered.
    next_epoch: epoch of the next pass that begins.
    num_calls: batches that were made by calling the loader.
    """

    position: Position
    next_epoch: int
    num_calls: int

    def to_dict(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Plain data. arguments: everything that determines the batches, by the name of the argument."""
        return {
            "epoch": self.position.epoch,
            "delivered": self.position.delivered,
            "ahead": sorted(self.position.ahead),
            "next_epoch": self.next_epoch,
            "calls": self.num_calls,
            "arguments": dict(arguments),
        }


def read_state(state: Any, arguments: Mapping[str, Any], num_batches: int) -> LoaderState:
    """Read what to_dict() returned for the same arguments. Raises ConfigError for anything else."""
    if not _has_form(state):
        raise _no_state(state)
    theirs = state["arguments"]
    for name, value in arguments.items():
        if theirs.get(name) != value:
            raise ConfigError(
                f"cannot resume: the state is of a loader with {name} {theirs.get(name)}, not {value}; "
                "make this loader with the same arguments"
            )
    position = Position(state["epoch"], state["delivered"], set(state["ahead"]))
    if position.delivered > num_batches or any(number >= num_batches for number in position.ahead):
        raise _no_state(state)
    return LoaderState(position, state["next_epoch"], state["calls"])


def _has_form(state: Any) -> bool:
    if not isinstance(state, Mapping) or not isinstance(state.get("arguments"), Mapping):
        return False
    ahead = state.get("ahead")
    if not isinstance(ahead, list | tuple):
        return False
    return all(type(count) is int and count >= 0 for count in (*map(state.get, _COUNTS), *ahead))


def _no_state(state: Any) -> ConfigError:
    return ConfigError(
        f"state must be what NeighborLoader.state_dict() returned, got {reprlib.repr(state)}; "
        "pass the part of the checkpoint that was saved from it"
    )
