"""The command line's frame: the application, how it starts, and how it ends."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from diskhop import __version__
from diskhop.cli.output import stderr, stdout
from diskhop.errors import DiskhopError

app = typer.Typer(
    name="diskhop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
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
    # Ended politely, what is half done is removed, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors become one line on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except DiskhopError as error:
        return _fail(str(error), error.exit_code)
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:
        return _fail(_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _fail(f"the output cannot be written: {error.strerror or error}", 1)
    if code == _INTERRUPTED:  # also what Typer makes of Ctrl-C
        return _fail("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    if message:  # a command that was asked for nothing has shown its help
        stderr.print(f"diskhop: {' '.join(message.split())}", markup=False, style="red")
    return code


def _usage(error: typer.TyperException) -> str:
    """Add the options that exist to the complaint about one that does not."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and message.startswith("No such option"):
        known = sorted(option for parameter in context.command.params for option in parameter.opts if option[0] == "-")
        message += f" The options of '{context.command_path}' are {', '.join(known)}."
    return message
