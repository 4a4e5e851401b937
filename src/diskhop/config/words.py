"""The words of the command line as keyword arguments: every function of a command takes the options of its command.

A word is an option's flag without dashes: `--batch-size` is `batch_size=`, `--memory 2GB` is `memory="2GB"`. The name
that the option has in a config.toml is taken, too. A value may be written as in Python, or as on the command line. None
and empty text mean that an argument was not given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from os import PathLike, fspath
from typing import Any, TypeVar

from diskhop.config.options import OptionField, option_fields
from diskhop.errors import ConfigError

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def word_of(option: OptionField) -> str:
    """Return the word of an option: its flag without dashes."""
    return option.main_flag.removeprefix("--").replace("-", "_")


def takes_words(
    *kinds: type[Any], only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[FunctionT], FunctionT]:
    """Give a function the options of configurations as keyword arguments; its `**options` has those given, by name.

    kinds: configurations; the first that has an option declares it. only: names of options; (): all. without: names of
    options that it does not take. An argument of the function's own takes the place of an option of its word.
    """

    def decorate(function: FunctionT) -> FunctionT:
        own = inspect.signature(function).parameters
        taken: dict[str, OptionField] = {}
        for kind in kinds:
            for name, each in option_fields(kind).items():
                wanted = each.is_declared and (not only or name in only) and name not in without
                if wanted and word_of(each) not in own:
                    taken.setdefault(name, each)
        by_word = {word_of(each): each for each in taken.values()} | taken

        @wraps(function)
        def call(*arguments: Any, **words: Any) -> Any:
            return function(*arguments, **_options(_given(words, by_word, own), by_word))

        shown = [_parameter(each) for each in taken.values()]
        kept = [each for each in own.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        call.__signature__ = inspect.signature(function).replace(parameters=[*kept, *shown])  # type: ignore[attr-defined]
        call.__doc__ = _documented(function.__doc__ or "", taken)
        return call  # type: ignore[return-value]

    return decorate


def _given(
    words: Mapping[str, Any], by_word: Mapping[str, OptionField], own: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """Return the arguments that have a value. own: the function's parameters; those without a default need one."""
    may_miss = {name for name, each in own.items() if each.default is not inspect.Parameter.empty} | set(by_word)
    return {
        word: value
        for word, value in words.items()
        if word not in may_miss or (value is not None and not (isinstance(value, str) and not value))
    }


def _options(words: Mapping[str, Any], by_word: Mapping[str, OptionField]) -> dict[str, Any]:
    """Return arguments with options by name; all that is no option stays as it is, for the function to refuse."""
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for word, value in words.items():
        option = by_word.get(word)
        if option is None:
            found[word] = value
            continue
        if option.name in given:
            raise ConfigError(f"{given[option.name]} and {word} are the same option; remove one of them")
        given[option.name] = word
        found[option.name] = _value(option, word, value)
    return found


def _value(option: OptionField, word: str, value: Any) -> Any:
    """Return the value of an option. Text of the command line is parsed, and a path is text."""
    if isinstance(value, PathLike) and option.type is str:
        value = fspath(value)
    if not isinstance(value, str):
        return value
    if option.parse is not None:
        try:
            return option.parse(value)
        except ConfigError as error:
            raise ConfigError(f"{word}: {error}") from None
    return (value,) if option.type == tuple[str, ...] else value


def _parameter(option: OptionField) -> inspect.Parameter:
    return inspect.Parameter(word_of(option), inspect.Parameter.KEYWORD_ONLY, default=None)


def _documented(text: str, taken: Mapping[str, OptionField]) -> str:
    """Return a docstring with a line per option."""
    lines = [f"    {word_of(each)}: {each.help}" for each in taken.values()]
    return "\n".join([text.rstrip(), "", "    Options, as of the command:", *lines, "    "])
