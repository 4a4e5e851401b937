"""Positions of the passes over a loader, and its state as checkpoints keep it."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diskhop.errors import ConfigError

_COUNTS = ("epoch", "delivered", "next_epoch", "calls")


@dataclass(slots=True, eq=False)
class Position:
    """A place in a pass.

    epoch: number of the pass.
    delivered: batches delivered without a gap.
    ahead: numbers of batches delivered before an earlier one.
    """

    epoch: int
    delivered: int = 0
    ahead: set[int] = field(default_factory=set)

    def add(self, number: int) -> None:
        """Count a delivered batch."""
        self.ahead.add(number)
        while self.delivered in self.ahead:
            self.ahead.remove(self.delivered)
            self.delivered += 1

    def numbers_left(self, num_batches: int) -> Sequence[int]:
        """Return the numbers of the batches of the pass that were not delivered."""
        numbers = range(self.delivered, num_batches)
        return [number for number in numbers if number not in self.ahead] if self.ahead else numbers


class Progress:
    """Positions of the passes over a loader. Its state is that of the pass under way that delivered the last batch.

    loader: the loader's class, for messages.
    num_calls: single batches that were made.
    """

    def __init__(self, loader: str) -> None:
        self.num_calls = 0
        self._loader = loader
        self._current = Position(0)
        self._under_way: list[Position] = []  # the one that delivered the last batch stands last
        self._resumes_at: Position | None = None
        self._next_epoch = 0

    def begin(self) -> Position:
        """Return the position of a pass that begins: the loaded one, or the next epoch's."""
        position, self._resumes_at = self._resumes_at, None
        if position is None:
            position = Position(self._next_epoch)
        self._next_epoch = max(self._next_epoch, position.epoch + 1)
        return position

    def advance(self, position: Position) -> None:
        """Make the pass at this position the current one; it has delivered a batch or its last one."""
        self._under_way = [*self._others(position), position]
        self._current = position

    def end(self, position: Position) -> None:
        """Forget a pass that will not continue; another one that is under way is then the current one."""
        self._under_way = self._others(position)
        if self._under_way:
            self._current = self._under_way[-1]

    def state(self, arguments: Mapping[str, Any], num_batches: int) -> dict[str, Any]:
        """Return plain data. arguments: everything that determines the batches, by the name of the argument."""
        position = self._resumes_at or self._current
        if position.delivered == num_batches:
            position = Position(max(self._next_epoch, position.epoch + 1))
        return {
            "epoch": position.epoch,
            "delivered": position.delivered,
            "ahead": sorted(position.ahead),
            "next_epoch": self._next_epoch,
            "calls": self.num_calls,
            "arguments": dict(arguments),
        }

    def load(self, state: Any, arguments: Mapping[str, Any], num_batches: int) -> None:
        """Continue with the next pass from what state() returned for the same arguments. Raises ConfigError."""
        if not _has_form(state):
            raise self._no_state(state)
        theirs = state["arguments"]
        for name, value in arguments.items():
            if theirs.get(name) != value:
                raise ConfigError(
                    f"cannot resume: the state is of a loader with {name} {theirs.get(name)}, not {value}; "
                    "make this loader with the same arguments"
                )
        position = Position(state["epoch"], state["delivered"], set(state["ahead"]))
        if position.delivered > num_batches or any(number >= num_batches for number in position.ahead):
            raise self._no_state(state)
        self._resumes_at, self._next_epoch, self.num_calls = position, state["next_epoch"], state["calls"]

    def _others(self, position: Position) -> list[Position]:
        return [each for each in self._under_way if each is not position]

    def _no_state(self, state: Any) -> ConfigError:
        return ConfigError(
            f"state must be what {self._loader}.state_dict() returned, got {reprlib.repr(state)}; "
            "pass the part of the checkpoint that was saved from it"
        )


def after_pass(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a loader whose pass ended where `state` is, whatever batches were left of it."""
    return {**state, "epoch": max(state["next_epoch"], state["epoch"] + 1), "delivered": 0, "ahead": []}


def _has_form(state: Any) -> bool:
    if not isinstance(state, Mapping) or not isinstance(state.get("arguments"), Mapping):
        return False
    ahead = state.get("ahead")
    if not isinstance(ahead, list | tuple):
        return False
    return all(type(count) is int and count >= 0 for count in (*map(state.get, _COUNTS), *ahead))
