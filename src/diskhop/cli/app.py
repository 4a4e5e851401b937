"""The command line's frame: the application, how it starts, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from diskhop import __version__
from diskhop.cli.output import stderr, stdout
from diskhop.errors import DiskhopError

_INTERRUPTED = 130


class _InterruptedError(DiskhopError):
    """Ctrl-C, with what was left behind."""

    exit_code = _INTERRUPTED


class _Commands(TyperGroup):
    """The commands; Typer would forget what an interruption had to say."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedError(_told("interrupted", error)) from error


app = typer.Typer(
    cls=_Commands,
    name="diskhop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Memory = Annotated[str | None, typer.Option(help="For graph data, as 2GB or 512MiB; default: half of what is free.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Default: the cores that this process may use.")]
Patience = Annotated[
    int | None,
    typer.Option(help="Stop after n validations in a row that are not better than the best before them; 0 for never."),
]
DatasetPath = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset's folder.", show_default=False)]


def _show_version(wanted: bool) -> None:
    if wanted:
        stdout.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Train graph neural networks from disk, within a memory budget you name."""


def main() -> None:
    """Run the command line; the console script's entry."""
    # Before torch brings OpenMP: its threads wait for each other in a busy loop, which takes the cores from those that
    # sample and read, and, where anything else runs, makes a step take ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    ended = []

    def end(number: int, frame: object) -> None:
        ended.append(128 + number)
        sys.exit(128 + number)

    # Ended politely, what is half done is removed, as after Ctrl-C; which is what DuckDB makes of it.
    signal.signal(signal.SIGTERM, end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files may be any bytes
    code = run(sys.argv[1:])
    sys.exit(ended[0] if ended else code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors become one line on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except DiskhopError as error:
        return _fail(_told(str(error), error), error.exit_code)
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:
        return _fail(_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        return 1
    except MemoryError as error:
        return _fail(_told("this machine has too little memory; give a smaller --memory or fewer --threads", error), 1)
    except OSError as error:
        rule = "the output cannot be written" if error.filename is None else f"{os.fsdecode(error.filename)}: failed"
        return _fail(_told(f"{rule}: {error.strerror or error}", error), 1)
    if code == _INTERRUPTED:  # also what Typer makes of Ctrl-C
        return _fail("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    if message:  # a command that was asked for nothing has shown its help
        stderr.print(f"diskhop: {' '.join(message.split())}", markup=False, style="red")
    return code


def _told(message: str, error: BaseException) -> str:
    """A message with what callers further up had to add."""
    return "; ".join([message, *getattr(error, "__notes__", ())])


def _usage(error: typer.TyperException) -> str:
    """Add the options that exist to the complaint about one that does not."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and message.startswith("No such option"):
        known = sorted(option for parameter in context.command.params for option in parameter.opts if option[0] == "-")
        message += f" The options of '{context.command_path}' are {', '.join(known)}."
    return message
