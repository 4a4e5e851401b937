"""Parsers from the command line's text to an option's value. Each raises ConfigError with the rule and an example."""

from __future__ import annotations

from pathlib import Path

from diskhop.errors import ConfigError


def parse_counts(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"'{text}' must be whole numbers separated by commas, as 10,10") from None


def parse_numbers(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"'{text}' must be numbers separated by commas, as .45,.22,.22,.11") from None


def parse_names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(text.split(","))


def parse_words(text: str) -> tuple[str, ...]:
    """Words separated by commas, with or without blanks."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def absolute_path(text: str) -> str:
    """Make a path absolute: a run that is repeated may start in another folder. An empty text is not given."""
    return str(Path(text).absolute()) if text else ""


def resolved_path(text: str) -> str:
    """Make a path absolute, links followed. An empty text is not given."""
    return str(Path(text).resolve()) if text else ""
