"""Options of a run: fields of frozen dataclasses that say all about themselves, and the one place that checks them.

An *option* is one field, declared by `option()` with its help, rule, flag and panel: the command line makes its
parameters from the fields. *Options by name* come from a preset, a file or a command line; any may be missing.
`check_options` checks those, `validate` a whole configuration. A *saved run* is RUN/config.toml: the dataset and all
options.
"""

from __future__ import annotations

import contextlib
import difflib
import numbers
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from diskhop.config.rules import Rule, one_of
from diskhop.errors import ConfigError

AUTO = "auto"
# Panels of a command's help, in this order.
PANELS = (
    *("Common", "Graph", "Features", "Edge lists", "Tables", "Model", "Sampling"),
    *("Optimisation", "Evaluation", "Storage", "Advanced"),
)
_KEY = "option"
# Options of configurations that were asked for: reading type hints takes as long as a hundred checks.
_FIELDS: dict[type[Any], Mapping[str, OptionField]] = {}
_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    tuple[int, ...]: "a list of whole numbers",
    tuple[float, ...]: "a list of numbers",
    tuple[str, ...]: "a list of strings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionField:
    """An option as its field declares it.

    name: the field, and the option's name in TOML and in Python.
    type: int, float, bool, str or a tuple of one of these, without None.
    default: MISSING where diskhop chooses a value.
    is_declared: made by option(); fields that are not have no flag.
    help: one sentence for the command line.
    rule: what a value must follow; None: any value of the type.
    flag: as the command line spells it; with "--on/--off" for a bool.
    parse: turns the command line's text into a value; None: by type.
    panel: one of PANELS.
    metavar: what the help calls a value; "": by type.
    shown: the default in words; "": the default itself.
    may_change: a resumed run may have another value.
    before: what runs did that were saved before there was the option; MISSING: it has always been there.
    """

    name: str
    type: Any
    default: Any
    is_declared: bool = False
    help: str = ""
    rule: Rule | None = None
    flag: str = ""
    parse: Callable[[str], Any] | None = None
    panel: str = PANELS[0]
    metavar: str = ""
    shown: str = ""
    may_change: bool = False
    before: Any

    @property
    def main_flag(self) -> str:
        """The flag that gives the option, or turns it on."""
        return self.flag.partition("/")[0]

    def check(self, value: Any, label: str, where: str = "") -> Any:
        """Return a value of the option's type that follows its rule, integers as floats where those are expected.

        label: what the message calls the option: its name or its flag. where: how the message starts. Raises
        ConfigError.
        """
        if value is None and self.default is None:
            return None
        converted = _convert(self.type, value)
        if type(converted) is not (get_origin(self.type) or self.type):
            raise ConfigError(f"{where}{label} must be {_TYPE_NAMES[self.type]}, got {reprlib.repr(value)}")
        if self.rule is not None and not self.rule.holds(converted):
            shown = list(converted) if isinstance(converted, tuple) else converted
            example = f"{label} {spell(self.rule.example)}"
            if not label.startswith("--"):
                example = f"{label}={self.rule.example!r}"
            raise ConfigError(
                f"{where}{label} must be {self.rule.text}, got {reprlib.repr(shown)}; for example {example}"
            )
        return converted


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A configuration file.

    dataset: the path that it names, '' for none.
    dataset_hash: of the dataset's manifest, '' for none.
    options: by name.
    """

    dataset: str
    dataset_hash: str
    options: dict[str, Any]


def option(
    default: Any = MISSING,
    *,
    help: str,
    rule: Rule | None = None,
    flag: str = "",
    parse: Callable[[str], Any] | None = None,
    panel: str = PANELS[0],
    metavar: str = "",
    shown: str = "",
    may_change: bool = False,
    before: Any = MISSING,
) -> Any:
    """Declare an option of a run as a dataclass field; OptionField describes the arguments."""
    assert panel in PANELS
    declared: dict[str, Any] = {"help": help, "rule": rule, "flag": flag, "parse": parse, "panel": panel}
    declared |= {"metavar": metavar, "shown": shown, "may_change": may_change, "before": before}
    return field(default=default, metadata={_KEY: declared})


def like(kind: type[Any], name: str, default: Any = MISSING, **changes: Any) -> Any:
    """Declare an option as another configuration does, with its own default and changed arguments of option()."""
    other = option_fields(kind)[name]
    declared = {each: getattr(other, each) for each in ("help", "rule", "flag", "parse", "panel", "metavar", "shown")}
    return option(default, **{**declared, **changes})


def option_fields(kind: type[Any]) -> Mapping[str, OptionField]:
    """Options of a configuration, by name."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind)
        _FIELDS[kind] = {each.name: _option_field(each, hints[each.name]) for each in fields(kind)}
    return _FIELDS[kind]


def _option_field(declared: Any, hint: Any) -> OptionField:
    if NoneType in get_args(hint):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    facts = {"flag": "", "rule": None, "before": MISSING, **declared.metadata.get(_KEY, {})}
    if get_origin(hint) is Literal:
        facts["rule"], hint = one_of(get_args(hint)), str
    words = declared.name.replace("_", "-")
    facts["flag"] = facts["flag"] or (f"--{words}/--no-{words}" if hint is bool else f"--{words}")
    is_declared = _KEY in declared.metadata
    return OptionField(name=declared.name, type=hint, default=declared.default, is_declared=is_declared, **facts)


def validate(config: Any) -> None:
    """Check types and rules of a whole configuration, then what its check() says of options together.

    Called by __post_init__. Lists become tuples and integers floats where those are expected. Raises ConfigError.
    """
    for name, each in option_fields(type(config)).items():
        value = getattr(config, name)
        checked = each.check(value, name)
        if checked is not value:
            object.__setattr__(config, name, checked)
    if hasattr(config, "check"):
        config.check()


def check_options(options: Mapping[str, Any], source: str, kinds: Sequence[type[Any]]) -> dict[str, Any]:
    """Check names, types and rules of options by name; integers become floats and lists tuples where expected.

    source: how the message of the ConfigError starts. kinds: configurations, one of which has each option.
    """
    known = {name: each for kind in reversed(kinds) for name, each in option_fields(kind).items()}
    names = [name for kind in kinds for name in options_of(kind)]
    checked: dict[str, Any] = {}
    for name, value in options.items():
        require_known("option", name, dict.fromkeys(names), f"{source}: ")
        checked[name] = known[name].check(value, name, f"{source}: ")
    return checked


def check_arguments(source: str, kind: type[Any], **arguments: Any) -> None:
    """Check arguments of a function by a configuration's options of the same names; None: not given."""
    check_options({name: value for name, value in arguments.items() if value is not None}, source, (kind,))


def require(holds: bool, name: str, rule: str, value: Any, hint: str) -> None:
    """Raise a ConfigError, unless a rule on several options holds. hint: what to do instead."""
    if not holds:
        raise ConfigError(f"{name} must be {rule}, got {reprlib.repr(value)}; {hint}")


def require_known(thing: str, value: str, known: Iterable[str], where: str = "") -> None:
    """Refuse a name that is not one of the known ones, listing them. where: how the message starts."""
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"{where}unknown {thing} '{value}'{_suggest(value, names)}; the known ones are {', '.join(names)}"
        )


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigError that names the file and the fault."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name an existing TOML file") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}; write options as in epochs = 10") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; write each option on a line, as in epochs = 10") from None


def load_config(path: Path, kinds: Sequence[type[Any]]) -> SavedRun:
    """Read what dump_config() wrote, or a shorter file written by hand. kinds: see check_options()."""
    options = read_toml(path)
    names = {name: options.pop(name, "") for name in ("kind", "dataset", "dataset_hash")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {name} must be a string, got {reprlib.repr(value)}; for example {name}='cora'")
    checked = check_options(options, str(path), kinds)
    return SavedRun(dataset=names["dataset"], dataset_hash=names["dataset_hash"], options=checked)


def dump_config(config: Any, kind: str, dataset: str, dataset_hash: str) -> str:
    """Write a configuration as TOML that repeats a run of this kind exactly."""
    return tomli_w.dumps({"kind": kind, "dataset": dataset, "dataset_hash": dataset_hash, **asdict(config)})


def with_later_options(saved: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return the options of a saved run, with what it did where there was no option yet."""
    later = {name: each.before for name, each in option_fields(kind).items() if each.before is not MISSING}
    return {**later, **saved}


def options_of(kind: type[Any]) -> list[str]:
    """Names of a configuration's options."""
    return [each.name for each in fields(kind)]


def differing_options(options: Mapping[str, Any], config: Any) -> list[str]:
    """Names of a configuration's options that differ from those in `options`, which has all of them, and may not."""
    fields = option_fields(type(config))
    return [name for name, each in fields.items() if options[name] != getattr(config, name) and not each.may_change]


def spell(value: Any) -> str:
    """Write a value as the command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _convert(wanted: Any, value: Any) -> Any:
    """Return the value as the wanted type if it means the same, or as it is."""
    if get_origin(wanted) is tuple:
        item = get_args(wanted)[0]
        if not isinstance(value, list | tuple):
            return value
        items = tuple(_convert(item, each) for each in value)
        return items if all(type(each) is item for each in items) else None
    if isinstance(value, bool) or type(value) is wanted:
        return value
    if wanted is int and isinstance(value, numbers.Integral):
        return int(value)
    if wanted is float and isinstance(value, numbers.Real):
        with contextlib.suppress(OverflowError):
            return float(value)
    return value


def _suggest(value: str, names: list[str]) -> str:
    close = difflib.get_close_matches(value, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
