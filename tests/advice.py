"""Typing what messages advise. A refusal must lead on: to success, or to another refusal, and never back to itself.

`follow` takes a command line that is refused, finds in the message what to type next (options with values, options to
leave out, whole commands, commands of the shell), types it, and follows what that ends with. Outputs go to folders of
their own, so that nothing that the refused command was tried on changes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from diskhop.cli import app as frame
from diskhop.cli.commands import PANEL_OF, load_commands

# The position of the output among a command's arguments.
_OUTPUTS = {"import": 1, "generate": 1, "export": 1, "map": 1}
_OUTPUT_OPTIONS = ("--out",)
_MOST_STEPS = 5
_FLAG = r"(?<!\w)--[a-z][a-z0-9-]*"
# An option, and a value: a quoted word, or one that no sentence goes on with.
_OPTION = re.compile(rf"""(?P<flag>{_FLAG})(?:[ =](?P<value>'[^']*'|"[^"]*"|[^\s;'"]+))?""")
_NO_VALUES = """a an and as at belongs but can for gives has have if in is it may means must names needs no of on one or
out over prevents reads requires says sets takes than that the then there to under was were where which with""".split()  # noqa: SIM905
# What stands for a value that the user has to choose.
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_,.]*")
_SHELL = re.compile(r"(?:mkdir -p|rm -r|gunzip|unzip|tar|bunzip2|unxz|unzstd|zstd|xz|bzip2|gzip|7z|mv|cp) [^;]*")
_REMOVES = re.compile(r"\b(?:remove|leave out|without|leave)\b")


class Outcome(NamedTuple):
    """How a command ended. message: its line of error, '' for none."""

    code: int
    message: str


class Move(NamedTuple):
    """Something to type. options: to add, flags without a value have None. left_out: flags. whole: another command."""

    options: tuple[tuple[str, str | None], ...] = ()
    left_out: tuple[str, ...] = ()
    whole: str = ""
    shell: str = ""

    def __str__(self) -> str:
        added = [f"{flag} {value}" if value is not None else flag for flag, value in self.options]
        return " ".join([*added, *(f"without {flag}" for flag in self.left_out), self.whole, self.shell]).strip()


@dataclass(frozen=True)
class CommandLine:
    """A command line in parts. folder: where it is typed."""

    name: str
    arguments: tuple[str, ...]
    options: tuple[tuple[str, str | None], ...]
    folder: Path = field(default_factory=Path.cwd)

    @staticmethod
    def parse(words: list[str], folder: Path | None = None) -> CommandLine | None:
        """Read the words after `diskhop`; None for what is no command."""
        if not words or words[0] not in PANEL_OF:
            return None
        takes_value = {flag: not each.is_flag for each in options_of(words[0]) for flag in flags_of(each)}
        arguments: list[str] = []
        options: list[tuple[str, str | None]] = []
        left = iter(words[1:])
        for word in left:
            flag, equals, value = word.partition("=")
            if word == "--":
                arguments += list(left)
            elif not word.startswith("--"):
                arguments.append(word)
            elif equals:
                options.append((flag, value))
            else:
                options.append((flag, next(left, "") if takes_value.get(flag, False) else None))
        return CommandLine(words[0], tuple(arguments), tuple(options), folder or Path.cwd())

    @property
    def words(self) -> list[str]:
        """The words to type after `diskhop`."""
        options = [word for flag, value in self.options for word in (flag, value) if word is not None]
        return [self.name, *options, *(["--"] if self.arguments else []), *self.arguments]

    def changed(self, move: Move) -> CommandLine:
        """Return the command with a move's options, without those it leaves out."""
        same = {flag: flags_of(each) for each in options_of(self.name) for flag in flags_of(each)}
        gone = {
            each for flag in (*(flag for flag, _ in move.options), *move.left_out) for each in same.get(flag, [flag])
        }
        kept = tuple(each for each in self.options if each[0] not in gone)
        return replace(self, options=(*kept, *move.options))

    def relocated(self, folder: Path) -> CommandLine:
        """Return the command with its outputs in a folder; what is there already is copied."""

        def moved(text: str) -> str:
            target = folder / (Path(text).name or "out")
            source = self.folder / text
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target)
            return str(target) if source.parent.is_dir() else text

        at = _OUTPUTS.get(self.name)
        arguments = [moved(each) if number == at else each for number, each in enumerate(self.arguments)]
        options = tuple(
            (flag, moved(value) if flag in _OUTPUT_OPTIONS and value is not None else value)
            for flag, value in self.options
        )
        return replace(self, arguments=tuple(arguments), options=options)

    def __str__(self) -> str:
        return shlex.join(["diskhop", *self.words])


@cache
def options_of(name: str) -> list[Any]:
    """Return the options of a command, as the command line's library has them."""
    load_commands([])
    commands: Any = get_command(frame.app)
    return [each for each in commands.commands[name].params if each.param_type_name == "option"]


def flags_of(option: Any) -> list[str]:
    """Return all ways to spell an option, also those that turn it off."""
    return [*option.opts, *option.secondary_opts]


def typed(command: CommandLine) -> Outcome:
    """Type a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(command.folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = frame.run(command.words)
    except Exception as error:  # a user would see a traceback
        return Outcome(-1, f"{type(error).__name__}: {error}")
    finally:
        os.chdir(before)
    lines = [line for line in err.getvalue().splitlines() if line.startswith("diskhop: ")]
    return Outcome(code, lines[-1] if code and lines else "")


def moves_of(message: str, command: CommandLine) -> list[Move]:
    """Return what a message advises to type, each alone."""
    text = re.sub(r"; finished work is kept in .*", "", message)
    fact, _, advice = text.partition("; ")
    if not advice:
        fact, _, advice = text.rpartition(": ") if re.search(_FLAG, text.rpartition(": ")[2]) else ("", "", text)
    moves = [Move(whole=each) for each in _whole_commands(advice)]
    moves += [Move(shell=each[0].strip(" '.")) for each in _SHELL.finditer(advice)]
    rest = re.sub(r"(?:'diskhop [^']*'|diskhop [a-z]+ [^;]*)", "", _SHELL.sub("", advice))
    takes_value = {flag: not each.is_flag for each in options_of(command.name) for flag in flags_of(each)}
    groups: list[list[tuple[str, str | None]]] = []
    removed: list[tuple[str, int]] = []
    end = -1
    for found in _OPTION.finditer(rest):
        flag, value = found["flag"], found["value"]
        if (
            not takes_value.get(flag, True)
            or value is None
            or (value.rstrip(",.:)") in _NO_VALUES and not advice.startswith("for example "))
        ):
            value = None
        before = rest[: found.start()]
        if removed and before[removed[-1][1] :] in (", ", " and "):
            removed.append((flag, found.end("flag")))
            continue
        if _REMOVES.search(before[-12:]):
            removed = [*removed, (flag, found.end("flag"))]
            continue
        value = None if value is None else "".join(shlex.split(value.rstrip(",.:)")))
        if takes_value.get(flag, False) and (value is None or _PLACEHOLDER.fullmatch(value)):
            continue  # the value is for the user to choose
        if groups and not rest[end : found.start()].strip(" "):
            groups[-1].append((flag, value))
        else:
            groups.append([(flag, value)])
        end = found.start("value") + len(found["value"]) if value is not None else found.end("flag")
    moves += [Move(left_out=tuple(flag for flag, _ in removed))] if removed else []
    moves += [Move(options=tuple(group)) for group in groups]
    given = [flag for flag, _ in command.options]
    named = [flag for flag in re.findall(_FLAG, fact) if flag in given]
    if named and re.search(r"\b(?:remove (?:it|them)|leave (?:it|them) out)\b", advice):
        moves.append(Move(left_out=tuple(named if "them" in advice else named[:1])))
    return moves


def _whole_commands(advice: str) -> Iterator[str]:
    """Yield commands that can be typed as they are: no words in capitals that stand for something."""
    for found in re.finditer(r"diskhop ([a-z]+) ([^;]*)", advice):
        words = re.split(r"(?<=\S)'(?:\s|$)|,? (?:or|to|with the|and then) ", found[0])[0].rstrip("'.:, ")
        words = re.sub(r"\b(DEST|OUT)\b", "new", words)
        is_whole = found[1] in PANEL_OF and not re.search(r"\b[A-Z]{2,}\b(?![./])", words)
        if is_whole and advice[max(0, found.start() - 1) : found.start()] != "'":
            yield words


@dataclass
class Report:
    """Outcome of following advice. steps: moves that were typed. faults: chains that lead nowhere, for people."""

    steps: int = 0
    faults: list[str] = field(default_factory=list)


def follow(words: list[str], message: str, report: Report, folder: Path | None = None) -> None:
    """Follow the advice of a command's refusal; a report gets the faults."""
    command = CommandLine.parse(words, folder)
    if command is not None:
        _follow(command, message, [], report)


def _follow(command: CommandLine, message: str, before: list[tuple[CommandLine, str]], report: Report) -> None:
    path = [*before, (command, message)]
    known = "" if "No such option" in message else message
    for flag in re.findall(_FLAG, known):
        if flag != "--help" and not any(flag in flags_of(each) for name in PANEL_OF for each in options_of(name)):
            _fault(path, report, f"{flag} is no option")
    moves = moves_of(message, command)
    if len(path) > _MOST_STEPS:
        return
    for move in moves:
        report.steps += 1
        with tempfile.TemporaryDirectory(prefix="advice-") as fresh:
            tried, outcome = _make(move, command, Path(fresh))
            if outcome.code == 0:
                continue
            steps = [*path, (tried, outcome.message)]
            if outcome.code != 2:
                _fault(steps, report, f"ends with exit code {outcome.code}")
            elif masked(outcome.message) in {masked(each) for _, each in path}:
                _fault(steps, report, f"leads back to a message, by: {move}")
            else:
                _follow(replace(command, arguments=tried.arguments, options=tried.options, name=tried.name),
                        outcome.message, path, report)  # fmt: skip


def _make(move: Move, command: CommandLine, fresh: Path) -> tuple[CommandLine, Outcome]:
    """Type a move; returns the command that ended, and how."""
    if move.shell:
        done = subprocess.run(shlex.split(move.shell), check=False, capture_output=True, text=True, cwd=command.folder)
        if done.returncode:
            return command, Outcome(-1, f"{move.shell}: {done.stderr}")
        tried = command
    elif move.whole:
        parsed = CommandLine.parse(shlex.split(move.whole)[1:], command.folder)
        assert parsed is not None, move.whole
        tried = parsed
    else:
        tried = command.changed(move)
    tried = tried.relocated(fresh)
    return tried, typed(tried)


def masked(message: str) -> str:
    """Return a message without what differs from one try to the next: paths, numbers and quoted words."""
    text = re.sub(r"(?:/[^\s:;,']+)+", "PATH", message)
    return re.sub(r"\d[\d,.]*", "N", re.sub(r"'[^']*'", "'WORD'", text))


def _fault(path: list[tuple[CommandLine, str]], report: Report, why: str) -> None:
    lines = [f"{why}"]
    for command, message in path:
        lines += [f"    {command}", f"      -> {message}"]
    report.faults.append("\n".join(lines))
