"""What a training run is told: one frozen value, validated once, that TOML can hold.

*Options* are values by name, from a preset, a file or a command line; any may be missing. A `TrainConfig` has all of
its *kind*, of which there are two, by the model: runs/nodes/defaults.py fills in what nobody said. A *saved run* is
RUN/config.toml: the dataset and all options.
"""

from __future__ import annotations

import contextlib
import difflib
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tomli_w

from diskhop.errors import ConfigError

MOST_COUNT, MOST_BYTES = 2**31 - 1, 2**63 - 1
MOST_THREADS = 1024
AUTO = "auto"


# A rule on a value by itself: whether it holds, and how it is told.
Rule = tuple[Callable[[Any], bool], str]


def between(lowest: int, highest: int) -> Rule:
    """Of numbers, both ends included."""
    return lambda value: lowest <= value <= highest, f"from {lowest} to {highest}"


FRACTION: Rule = (lambda value: 0 <= value < 1, "at least 0 and less than 1")


def one_of(names: Sequence[str]) -> Rule:
    """Of names; '' may be one, which nobody needs to know."""
    return lambda value: value in names, f"one of {', '.join(filter(None, names))}"


_TYPE_NAMES = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "a string",
    tuple[int, ...]: "a list of integers",
    tuple[str, ...]: "a list of strings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A configuration file: the dataset it is for ('' if it does not say), and options."""

    dataset: str
    dataset_hash: str
    options: dict[str, Any]


def require_known(thing: str, value: str, known: Iterable[str], where: str = "") -> None:
    """Refuse a name that is not one of the known ones, listing them. where: how the message starts."""
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"{where}unknown {thing} '{value}'{_suggest(value, names)}; the known ones are {', '.join(names)}"
        )


def check_options(options: Mapping[str, Any], source: str, kinds: Sequence[type[Any]]) -> dict[str, Any]:
    """Check names, types and ranges of options; integers become floats and lists tuples where those are expected.

    source: how the message of the ConfigError starts. kinds: of configurations, one of which has each option; what
    options mean together is checked by it.
    """
    hints = {name: wanted for kind in kinds for name, wanted in get_type_hints(kind).items()}
    types = {name: hints[name] for kind in kinds for name in options_of(kind)}
    checked: dict[str, Any] = {}
    for name, value in options.items():
        require_known("option", name, types, f"{source}: ")
        wanted = types[name]
        if wanted is float and type(value) is int:
            with contextlib.suppress(OverflowError):
                value = float(value)
        items = get_args(wanted)[:1]
        if items and isinstance(value, list | tuple) and all(type(item) is items[0] for item in value):
            value = tuple(value)
        elif type(value) is not wanted:
            raise ConfigError(f"{source}: option '{name}' must be {_TYPE_NAMES[wanted]}, got {reprlib.repr(value)}")
        checked[name] = value
    for kind in kinds:
        require_rules(kind, checked, f"{source}: ")
    return checked


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigError naming the file and what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name an existing TOML file") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; options are a name and a value a line") from None


def load_config(path: Path, kinds: Sequence[type[Any]]) -> SavedRun:
    """Read what `dump_config` wrote, or a part of it written by hand. kinds: see check_options()."""
    options = read_toml(path)
    names = {"dataset": options.pop("dataset", ""), "dataset_hash": options.pop("dataset_hash", "")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: option '{name}' must be a string, got {reprlib.repr(value)}")
    return SavedRun(**names, options=check_options(options, str(path), kinds))


def dump_config(config: Any, dataset: str, dataset_hash: str) -> str:
    """TOML that repeats a run exactly."""
    return tomli_w.dumps({"dataset": dataset, "dataset_hash": dataset_hash, **asdict(config)})


def options_of(kind: type[Any]) -> list[str]:
    """Names of the options that a kind of configuration has."""
    return [field.name for field in fields(kind)]


def differing_options(options: Mapping[str, Any], config: Any) -> list[str]:
    """Names of the configuration's options that are others in `options`, where all of them are."""
    return [name for name in options_of(type(config)) if options[name] != getattr(config, name)]


def require_rules(kind: type[Any], options: Mapping[str, Any], where: str = "") -> None:
    """Check the ranges of a kind's options; where: how the message of the ConfigError starts."""
    for name, (holds, rule) in kind.RULES.items():
        if name in options:
            value = options[name]
            _require(f"{where}{name}", list(value) if isinstance(value, tuple) else value, holds(value), rule)


def _require(what: str, value: Any, is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise ConfigError(f"{what} must be {rule}, got {reprlib.repr(value)}")


def _suggest(value: str, names: list[str]) -> str:
    close = difflib.get_close_matches(value, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
