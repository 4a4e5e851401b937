"""The command line's frame: the application, how it starts, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from diskhop import __version__
from diskhop.cli.commands import PANEL_OF, load_commands
from diskhop.cli.options import COMMON, Command
from diskhop.cli.output import stderr, stdout
from diskhop.errors import ConfigError, DiskhopError
from diskhop.runtime.process import end_with_parent, let_openmp_sleep
from diskhop.system.pressure import watch_pressure

# Exit codes of what a signal has ended: this and its number, as shells have it.
_FIRST_OF_SIGNALS = 128
_INTERRUPTED = _FIRST_OF_SIGNALS + signal.SIGINT
_IN_ONE_PROCESS = ("import", "generate", "update", "compact", "export", "propagate", "pack")
_NAME = "diskhop"


class _InterruptedError(DiskhopError):
    """Ctrl-C, with notes on what was left behind."""

    exit_code = _INTERRUPTED


class _HelpInPanel:
    """A command with --help among its other options."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        option.rich_help_panel, option.metavar = COMMON, ""
        return option


class _Command(_HelpInPanel, TyperCommand):
    """One command."""


class _Commands(_HelpInPanel, TyperGroup):
    """The commands, in the order of the help. Keeps an interruption's notes, which Typer drops."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in PANEL_OF if name in self.commands]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedError(_with_notes("interrupted", error)) from error


app = typer.Typer(
    cls=_Commands,
    name=_NAME,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def command(name: str) -> Callable[[Command], Command]:
    """Add a command to the application, in its panel of the help."""
    return app.command(name, cls=_Command, rich_help_panel=PANEL_OF[name])


def _show_version(wanted: bool) -> None:
    if wanted:
        stdout.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            metavar="",
            help="Print the version.",
            rich_help_panel=COMMON,
        ),
    ] = False,
) -> None:
    """Train graph neural networks and embeddings from disk, within a memory budget you name."""


def main() -> None:
    """Run the command line; the console script's entry."""
    # Before torch brings OpenMP.
    let_openmp_sleep()
    ended = list[int]()

    def end(number: int, frame: object) -> None:
        ended.append(_FIRST_OF_SIGNALS + number)
        sys.exit(ended[-1])

    # As after Ctrl-C, unfinished files are removed. DuckDB turns the exit into an interruption, hence `ended`.
    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # by nohup
        signal.signal(signal.SIGHUP, end)
    if "WORLD_SIZE" in os.environ:
        # A rank ends with the launcher that started it; before anything takes time.
        end_with_parent(signal.SIGTERM)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files may be any bytes
    watch = watch_pressure(lambda line: stderr.print(line, markup=False))
    try:
        with watch if _does_the_work(sys.argv) else nullcontext():
            code = run(sys.argv[1:])
    except SystemExit as error:
        if not ended:
            raise
        # The launcher of ranks says which one ended the others.
        if os.environ.get("WORLD_SIZE", "1") == "1":
            with suppress(OSError, SystemExit):  # the reader may be gone, as after a hangup
                _fail(_with_notes(f"ended by {signal.Signals(ended[0] - _FIRST_OF_SIGNALS).name}", error), ended[0])
        _drop_unread()
    sys.exit(ended[0] if ended else code)


def _drop_unread() -> None:
    """Send what has no reader any more to nowhere: Python would end with a code of its own for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _does_the_work(words: list[str]) -> bool:
    """Whether this process is neither the launcher of others nor one of ranks whose first one speaks for all."""
    is_launcher = any(word.partition("=")[0] == "--processes" for word in words)
    return not is_launcher and os.environ.get("RANK", "0") == "0"


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors become one line on stderr."""
    try:
        _require_one_process(arguments)
        load_commands(arguments)
        code = _build(len(app.registered_commands))(arguments, prog_name=_NAME, standalone_mode=False)
    except DiskhopError as error:
        *first, last = error.lines
        for line in first:
            _fail(line, error.exit_code)
        return _fail(_with_notes(last, error), error.exit_code)
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:
        return _fail(_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        return 1
    except MemoryError as error:
        rule = "this machine has too little memory; use a smaller --memory or fewer --threads"
        return _fail(_with_notes(rule, error), 1)
    except OSError as error:
        rule = "the output cannot be written" if error.filename is None else f"{os.fsdecode(error.filename)}: failed"
        return _fail(_with_notes(f"{rule}: {error.strerror or error}", error), 1)
    if code == _INTERRUPTED:  # also Typer's code for Ctrl-C
        return _fail("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


@cache
def _build(num_commands: int) -> Any:
    """Build the command line of the commands imported so far, once for each number: it takes tens of milliseconds."""
    return get_command(app)


def _require_one_process(arguments: list[str]) -> None:
    """Refuse several ranks of a command that each would run, and write, whole."""
    name = next((each for each in arguments if not each.startswith("-")), "")
    count = os.environ.get("WORLD_SIZE", "1")
    if name in _IN_ONE_PROCESS and count != "1":
        raise ConfigError(
            f"'diskhop {name}' is for one process, and WORLD_SIZE={count} says that torchrun has started several: "
            "start it without torchrun, or run first: unset WORLD_SIZE"
        )


def _fail(message: str, code: int) -> int:
    if message:  # empty for a command without arguments, which has shown its help
        stderr.print(f"{_NAME}: {' '.join(message.split())}", markup=False, style="red")
    return code


def _with_notes(message: str, error: BaseException) -> str:
    """Append to a message the notes that callers added to the error."""
    return "; ".join([message, *getattr(error, "__notes__", ())])


def _usage(error: typer.TyperException) -> str:
    """Add to a usage error where the right usage is shown."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    end = "" if message[-1] in ".?" else "."
    return f"{message}{end} See: {context.command_path} --help"
