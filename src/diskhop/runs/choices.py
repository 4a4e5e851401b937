"""Options of a run: those the caller gave, those of a preset, and those chosen here, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from diskhop.config.options import read_toml, require_known
from diskhop.config.sampler import NEIGHBOR, recounted_options
from diskhop.system.memory import default_memory_bytes

ConfigT = TypeVar("ConfigT")
TaskT = TypeVar("TaskT")


class Choice(NamedTuple):
    """An option that was chosen for the user.

    option: its name.
    value: as shown to people.
    why: the reason, in plain words.
    """

    option: str
    value: str
    why: str


class Default(NamedTuple):
    """A value that suits a graph, and why. option: its name in the configuration."""

    option: str
    value: Any
    why: str


class Resolved(NamedTuple, Generic[ConfigT, TaskT]):
    """A complete configuration.

    config: all options of a run.
    choices: those chosen for the user, with reasons.
    task: what was read to choose them, such as labels and seed nodes.
    """

    config: ConfigT
    choices: list[Choice]
    task: TaskT


class Choices:
    """Collects options until a configuration is complete.

    given: options of the caller and the preset, by name.
    complete: these and the chosen ones.
    made: the chosen ones, with reasons.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.complete = dict(given)
        self.made: list[Choice] = []

    def choose(self, name: str, value: Any, why: str, shown: str | None = None) -> Any:
        """Return the option's value, after setting it to `value` if it has none yet. shown: the value for people."""
        if name not in self.complete:
            self.complete[name] = value
            self.made.append(Choice(name, _show(value) if shown is None else shown, why))
        return self.complete[name]


def presumed_memory(given: Mapping[str, Any]) -> int:
    """Return the memory budget of options before the overhead of their run is predicted; see runs/total_memory.py."""
    return int(given.get("memory_bytes") or given.get("total_memory_bytes") or default_memory_bytes())


def list_presets(folder: Path) -> list[str]:
    """Return the names of a folder's presets."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_preset(folder: Path, name: str, model: str | None, models: Iterable[str]) -> tuple[str, dict[str, Any], Any]:
    """Return a preset's model, its options for all models, and its options for this model (default: its own model).

    The latter are in a table named like the model. Raises ConfigError for an unknown preset or model.
    """
    require_known("preset", name, list_presets(folder))
    content = read_toml(folder / f"{name}.toml")
    refinements = {known: content.pop(known, {}) for known in models}
    chosen = content["model"] if model is None else model
    require_known("model", chosen, refinements)
    return chosen, content, refinements[chosen]


def with_preset(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the caller, then those of the preset.

    Presets are for neighbour sampling: what another sampler counts by the same option is chosen for the graph instead.
    """
    recounted = recounted_options(given.get("sampler", NEIGHBOR))
    return {**{name: value for name, value in preset.items() if name not in recounted}, **given}


def _show(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
