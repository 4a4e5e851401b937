"""Options that were given, those of presets, and those chosen besides, with a line of reason each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from diskhop.config.options import read_toml, require_known


class Choices:
    """given: options by name. complete: with those that were chosen, for which there are reasons."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.complete = dict(given)
        self.reasons: list[str] = []

    def choose(self, name: str, value: Any, reason: str) -> Any:
        """What was given or chosen already, or else this value."""
        if name not in self.complete:
            self.complete[name] = value
            self.reasons.append(f"{name} {_show(value)}: {reason}")
        return self.complete[name]


def list_presets(folder: Path) -> list[str]:
    """Names of a folder's presets."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_preset(folder: Path, name: str, model: str | None, models: Iterable[str]) -> tuple[str, dict[str, Any], Any]:
    """A preset's model, by default its own, the options for all models and those that refine them for this one.

    A table by a model's name has those. Raises ConfigError for an unknown preset or model.
    """
    require_known("preset", name, list_presets(folder))
    content = read_toml(folder / f"{name}.toml")
    refinements = {known: content.pop(known, {}) for known in models}
    chosen = content["model"] if model is None else model
    require_known("model", chosen, refinements)
    return chosen, content, refinements[chosen]


def _show(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
