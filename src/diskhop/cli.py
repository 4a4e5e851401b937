"""The command line. Each command parses, calls one function of the package, prints what it returned.

Exit code 0, or one line on stderr and 2 (bad input), 1 (failed), 130 (interrupted). What a command finds goes to
stdout, as one JSON document with --json; progress goes to stderr. PyTorch is loaded by the commands that train only.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from diskhop import __version__
from diskhop.budget import format_bytes, parse_bytes
from diskhop.dataset.convert import import_graph
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.verify import describe, verify
from diskhop.errors import ConfigError, DiskhopError, FormatError
from diskhop.io.engine import open_engine
from diskhop.io.probe import report_device
from diskhop.stages import stage_progress
from diskhop.summary import summarize, summarize_dataset

app = typer.Typer(
    name="diskhop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_INTERRUPTED = 130
_stdout = Console(soft_wrap=True, highlight=False)
_stderr = Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DatasetPath = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset's folder.", show_default=False)]


def _show_version(wanted: bool) -> None:
    if wanted:
        _stdout.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Train graph neural networks from disk, within a memory budget you name."""


@app.command("import")
def import_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder with data.npz or .npy files.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The dataset to make.")],
    format_name: Annotated[str | None, typer.Option("--format", help="Of the source; default: detected.")] = None,
    name: Annotated[str | None, typer.Option(help="The dataset's name; default: the source's.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Store features as float32, float16, bfloat16 or int8; default: as they are.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a graph in: DEST appears when it is complete, or not at all."""
    with stage_progress(_stderr) as progress:
        dataset = import_graph(
            source,
            destination,
            format_name=format_name,
            name=name,
            feature_dtype=dtype,
            engine=open_engine("auto").engine,
            progress=progress,
        )
    if as_json:
        _print_json(describe(dataset))
    else:
        _print_pairs(summarize_dataset(dataset))


@app.command()
def inspect(dataset: DatasetPath, as_json: Json = False) -> None:
    """Show what is in a dataset."""
    _print_description(describe(open_dataset(dataset)), as_json)


@app.command("verify")
def verify_command(dataset: DatasetPath, as_json: Json = False) -> None:
    """Read every byte and compare it with its checksum."""
    with stage_progress(_stderr) as progress:
        damages = verify(dataset, progress)
    if as_json:
        _print_json({"dataset": str(dataset), "damaged": [str(damage) for damage in damages]})
    for damage in damages:
        _stderr.print(str(damage), markup=False)
    if damages:
        raise FormatError(f"{dataset}: {len(damages)} damaged; import the graph again or copy the dataset anew")
    if not as_json:
        _stdout.print(f"{dataset}: every byte is as it was written", markup=False)


@app.command()
def doctor(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="A folder on the disk to look at.")] = Path(),
    as_json: Json = False,
) -> None:
    """Say what to expect of this machine and of the disk below PATH."""
    with _stderr.status("measuring the disk"):
        report = report_device(path)
    if as_json:
        _print_json(report.to_dict())
        return
    _print_pairs(report.to_rows())


@app.command()
def train(
    dataset: Annotated[
        Path | None, typer.Argument(metavar="DATASET", help="A dataset's folder.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="sage, gcn or gat.")] = None,
    memory: Annotated[str | None, typer.Option(help="For graph data, as 2GB or 512MiB.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="A new folder for all that the run leaves.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch in --out.")] = False,
    preset: Annotated[str | None, typer.Option(help="Options that reach published figures, by name.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options as RUN/config.toml has them.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most.")] = None,
    fanout: Annotated[str | None, typer.Option(help="Neighbours drawn per hop, as 10,10; -1 for all.")] = None,
    eval_fanout: Annotated[str | None, typer.Option(help="The same for validation and test.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Seeds a batch.")] = None,
    eval_batch_size: Annotated[int | None, typer.Option(help="The same for validation and test.")] = None,
    max_batches: Annotated[int | None, typer.Option(help="Of an epoch; 0 for all.")] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Neither validate nor test.")] = False,
    eval_every: Annotated[int | None, typer.Option(help="Epochs from one validation to the next.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without a better validation.")] = None,
    metric: Annotated[str | None, typer.Option(help="accuracy or auc.")] = None,
    split: Annotated[int | None, typer.Option(help="Which of several splits.")] = None,
    layers: Annotated[int | None, typer.Option(help="One for each hop.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the hidden layers.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads (gat).")] = None,
    norm: Annotated[str | None, typer.Option(help="none, batch or layer.")] = None,
    residual: Annotated[bool | None, typer.Option(help="Add each layer's input to its output.")] = None,
    normalize_input: Annotated[bool | None, typer.Option(help="Scale each row of features to sum 1.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Of hidden values.")] = None,
    input_dropout: Annotated[float | None, typer.Option(help="Of features.")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Adam's.")] = None,
    store: Annotated[
        str | None, typer.Option(help="How rows come to the model: memory, mapped, pread, direct.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="How the disk is read: auto, uring, threads.")] = None,
    threads: Annotated[int | None, typer.Option(help="For sampling and computing together.")] = None,
    as_json: Json = False,
) -> None:
    """Train a model for node classification from disk; what was chosen is printed, with the reason."""
    # Here, not above: these bring PyTorch, which the other commands do without.
    from diskhop.terminal import TerminalWatcher
    from diskhop.training import train as train_model

    options: dict[str, Any] = {
        "model": model,
        "memory_bytes": None if memory is None else parse_bytes(memory),
        "seed": seed,
        "epochs": epochs,
        "fanout": None if fanout is None else _parse_counts("--fanout", fanout),
        "eval_fanout": None if eval_fanout is None else _parse_counts("--eval-fanout", eval_fanout),
        "batch_size": batch_size,
        "eval_batch_size": eval_batch_size,
        "max_batches": max_batches,
        "evaluate": False if no_eval else None,
        "eval_every": eval_every,
        "patience": patience,
        "metric": metric,
        "split": split,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "norm": norm,
        "residual": residual,
        "normalize_input": normalize_input,
        "dropout": dropout,
        "input_dropout": input_dropout,
        "lr": lr,
        "weight_decay": weight_decay,
        "store": store,
        "engine": engine,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with TerminalWatcher(_stderr) as watcher:
        trained = train_model(dataset, out=out, resume=resume, preset=preset, config=config, watcher=watcher, **given)
    if as_json:
        _print_json(trained.result)
        return
    _print_pairs(summarize(trained.result, out))


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


def _parse_counts(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} '{text}' must be whole numbers with commas between them, as 10,10") from None


def _fail(message: str, code: int) -> int:
    if message:  # a command that was asked for nothing has shown its help
        _stderr.print(f"diskhop: {' '.join(message.split())}", markup=False, style="red")
    return code


def _usage(error: typer.TyperException) -> str:
    """Add the options that exist to the complaint about one that does not."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and message.startswith("No such option"):
        known = sorted(option for parameter in context.command.params for option in parameter.opts if option[0] == "-")
        message += f" The options of '{context.command_path}' are {', '.join(known)}."
    return message


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _print_pairs(rows: list[tuple[str, str]]) -> None:
    table = TextTable(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    _stdout.print(table)


def _print_description(description: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(description)
    else:
        _print_pairs(list(_lines_of(description)))


def _lines_of(value: dict[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    """One line a fact, what is inside another thing indented below it."""
    for name, fact in value.items():
        title = indent + name.replace("_", " ")
        if isinstance(fact, dict):
            yield title, ""
            yield from _lines_of(fact, indent + "  ")
        elif isinstance(fact, list) and fact and isinstance(fact[0], dict):
            for number, part in enumerate(fact):
                facts = ", ".join(f"{key} {_show(item)}" for key, item in part.items())
                yield (title if len(fact) == 1 else f"{title} {number}"), facts
        else:
            is_bytes = name == "bytes" or name.endswith("_bytes")
            yield title, format_bytes(fact) if is_bytes else _show(fact)


def _show(fact: Any) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return f"{fact:,}"
    if isinstance(fact, float):
        return f"{fact:.3g}"
    return ", ".join(map(_show, fact)) if isinstance(fact, list) else str(fact)
