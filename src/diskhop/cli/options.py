"""Parameters of commands, made from the options of configurations.

A configuration's field says once what an option is called, takes and does; `takes_options` makes command-line
parameters of the fields, and `spell_options` writes options back as a command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from diskhop.config.options import PANELS, OptionField, option_fields, spell
from diskhop.errors import ConfigError

COMMON = PANELS[0]
_CHOSEN = "chosen"
_LONGEST_CHOICES = 24
_METAVARS = {bool: "", int: "N", float: "X", str: "NAME"}

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document.", rich_help_panel=COMMON)]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Tuned options by name: a dataset's, such as cora.", rich_help_panel=COMMON),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Read options from a TOML file (RUN/config.toml repeats a run).",
        rich_help_panel=COMMON,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="New folder for model, checkpoints and results. Without it `train` keeps nothing; `embed` needs it.",
        rich_help_panel=COMMON,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", metavar="", help="Resume the run in --out after its last checkpoint.", rich_help_panel=COMMON
    ),
]
TensorBoard = Annotated[
    bool,
    typer.Option("--tensorboard", metavar="", help="Also write TensorBoard events to RUN.", rich_help_panel="Advanced"),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Train in N processes on this machine, which share every step's batches; torchrun does so on several.",
        rich_help_panel="Advanced",
    ),
]
TaskProcesses = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Share the work among N processes on this machine; torchrun does so on several.",
        rich_help_panel="Advanced",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        metavar="",
        help="Replace what an earlier call of this command wrote there.",
        rich_help_panel=COMMON,
    ),
]
Executor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where tasks run: threads, processes, ray, ray:HOST:PORT, or array:DIR for 'diskhop task'.",
        show_default=False,
        rich_help_panel="Advanced",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Processes that share --memory and --threads; by default 1, with --executor one per thread.",
        rich_help_panel="Advanced",
    ),
]
DatasetPath = Annotated[Path, typer.Argument(metavar="DATASET", help="Folder of a dataset.", show_default=False)]
DatasetOfRun = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATASET", help="Folder of a dataset; by default the one that --config names.", show_default=False
    ),
]

Command = Callable[..., None]


def takes_options(*kinds: type[Any], only: Collection[str] = (), shown: str = "") -> Callable[[Command], Command]:
    """Give a command the options of configurations; its argument `given` has those the user gave, by name, checked.

    kinds: configurations; the first that has an option declares it. The SUBJECT of another introduces what it means
    there, and marks an option that only one of them has. only: names of options; (): all. shown: the defaults in words,
    if they are not the configuration's. A parameter of the command's own takes the place of an option of its name.
    """

    def decorate(function: Command) -> Command:
        taken: dict[str, OptionField] = {}
        own_names = inspect.signature(function).parameters
        for kind in kinds:
            for name, each in option_fields(kind).items():
                if each.is_declared and (not only or name in only) and name not in own_names:
                    taken.setdefault(name, each)

        def call(*, given: Mapping[str, Any] | None = None, **arguments: Any) -> None:
            texts = {each.name: arguments.pop(each.name) for each in taken.values()}
            values = {name: _value(taken[name], text) for name, text in texts.items() if text is not None}
            function(**arguments, given={**values, **(given or {})})

        made = [_parameter(each, _help(each, kinds, shown)) for each in taken.values()]
        hints = get_type_hints(function, include_extras=True)
        own = [each for each in inspect.signature(function).parameters.values() if each.name != "given"]
        own = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        parameters = sorted([*made, *own], key=_rank)
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate


def spell_options(given: Mapping[str, Any], *kinds: type[Any]) -> list[str]:
    """Write options by name as the words of a command line."""
    fields = {name: each for kind in reversed(kinds) for name, each in option_fields(kind).items()}
    return [word for name, value in given.items() for word in _spell_option(fields[name], value)]


def _spell_option(option: OptionField, value: Any) -> list[str]:
    if option.type is bool:
        return [option.flag.split("/")[0 if value else 1]]
    if option.name.endswith("_bytes"):
        return [option.main_flag, _spell_bytes(value)]
    if option.type == tuple[str, ...] and option.parse is None:
        return [word for each in value for word in (option.main_flag, each)]
    return [option.main_flag, spell(value)]


def _spell_bytes(num_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 1000)):
        if num_bytes and num_bytes % size == 0:
            return f"{num_bytes // size}{unit}"
    return str(num_bytes)


def _value(option: OptionField, text: Any) -> Any:
    """Turn what the user gave into the option's value. Raises ConfigError that names the flag."""
    flag = option.main_flag
    if option.parse is not None:
        try:
            text = option.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{flag}: {error}") from None
    return option.check(text, flag)


def _rank(parameter: inspect.Parameter) -> int:
    """Arguments first, then options by panel."""
    (info,) = parameter.annotation.__metadata__
    return PANELS.index(info.rich_help_panel) if isinstance(info, typer.models.OptionInfo) else -1


def _parameter(option: OptionField, help_text: str) -> inspect.Parameter:
    wanted: Any = option.type
    if option.parse is not None:
        wanted = str
    elif wanted == tuple[str, ...]:
        wanted = list[str]
    metavar = option.metavar or _METAVARS.get(wanted, _METAVARS[str])
    if option.rule is not None and option.rule.choices:
        choices = "|".join(option.rule.choices)
        metavar = f"[{choices}]" if len(choices) <= _LONGEST_CHOICES else metavar
    info = typer.Option(option.flag, help=help_text, metavar=metavar, rich_help_panel=option.panel, show_default=False)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[wanted | None, info]
    )


def _help(option: OptionField, kinds: Collection[type[Any]], shown: str) -> str:
    """The help of an option, with what other configurations mean by it and what holds if it is not given."""
    text = option.help
    for kind in kinds:
        other = option_fields(kind).get(option.name, option)
        if other.help != option.help:
            text = f"{text.removesuffix('.')}; {kind.SUBJECT}: {other.help[0].lower()}{other.help[1:]}"
    having = [kind for kind in kinds if option.name in option_fields(kind)]
    # A configuration that extends another one is no other use of its options.
    having = [kind for kind in having if not any(issubclass(kind, other) for other in having if other is not kind)]
    if len(having) == 1 < len(kinds) and all(hasattr(kind, "SUBJECT") for kind in kinds):
        text = f"{text.removesuffix('.')} ({having[0].SUBJECT})."
    choices = () if option.rule is None else option.rule.choices
    if len("|".join(choices)) > _LONGEST_CHOICES:
        text += f" One of {', '.join(choices)}."
    default = shown or _default(option)
    return escape(text) + (f" [dim]{escape(f'[{default}]')}[/dim]" if default else "")


def _default(option: OptionField) -> str:
    if option.shown:
        return option.shown if option.shown.startswith(_CHOSEN) else f"default: {option.shown}"
    if option.default is MISSING:
        return _CHOSEN
    if option.default is None:
        return ""
    if option.type is bool:
        on, off = option.flag.split("/")
        words = ("on", "off") if off == f"--no-{on.removeprefix('--')}" else (on, off)
        return f"default: {words[0] if option.default else words[1]}"
    return f"default: {spell(option.default)}"
