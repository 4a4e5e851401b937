"""Pages of the reference as Markdown, made from what Python and the command line themselves use.

A *page* is its path below docs/reference/generated, without suffix, and its text.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.text import Text
from typer.main import get_command

import diskhop
from diskhop.cli.app import app
from diskhop.cli.commands import PANEL_OF, load_commands
from diskhop.config.options import PANELS
from diskhop.errors import DiskhopError

DOCS = Path(__file__).parents[1]
SOURCE = Path(diskhop.__file__).parent
EVERY_COMMAND = DOCS / "reference" / "every-command.md"

# Title of each page, and its names. A test compares them with diskhop.__all__.
PYTHON_PAGES = {
    "data": (
        "Datasets",
        (
            *("Dataset", "open_dataset", "import_graph", "generate", "from_arrow", "from_pyg", "from_scipy"),
            *("from_networkx", "from_embeddings", "inspect", "verify", "export", "update", "compact", "clean"),
        ),
    ),
    "loaders": (
        "Loaders",
        (
            *("NeighborLoader", "LinkNeighborLoader", "HGTLoader", "ShaDowKHopSampler", "GraphSAINTNodeSampler"),
            *("GraphSAINTEdgeSampler", "GraphSAINTRandomWalkSampler", "ClusterData", "ClusterLoader"),
            *("PackedLoader", "HopLoader", "PygStores"),
        ),
    ),
    "runs": (
        "Runs",
        (
            *("train", "plan", "search", "predict", "evaluate", "report", "pack", "propagate", "PropagationSpec"),
            *("PathSpec", "task", "doctor"),
        ),
    ),
    "embeddings": ("Embeddings", ("embed", "neighbors", "score", "map")),
    "callbacks": (
        "Callbacks",
        ("Callback", "StopWhen", "TerminalCallback", "TensorBoardCallback", "MLflowCallback", "WandbCallback"),
    ),
    "package": ("Package and errors", ("DiskhopError", "__version__")),
}


def make_pages() -> dict[str, str]:
    """All pages of the reference, by path."""
    pages = {f"python/{name}": _python_page(title, names) for name, (title, names) in PYTHON_PAGES.items()}
    pages |= {f"commands/{name}": _command_page(name, each) for name, each in commands().items()}
    return pages | {"errors": _errors_page()}


def write_pages(folder: Path) -> None:
    """Write the pages to a folder. Pages that are as they were keep their time, so that they are not built again."""
    pages = {folder / f"{path}.md": text for path, text in make_pages().items()}
    for old in set(folder.rglob("*.md")) - set(pages):
        old.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def commands() -> dict[str, Any]:
    """Commands by name, in the order of the help."""
    load_commands([])
    return dict(sorted(get_command(app).commands.items(), key=lambda each: list(PANEL_OF).index(each[0])))  # type: ignore[attr-defined]


def examples_of_commands() -> dict[str, str]:
    """One line of shell for each command, from the page that shows every command once."""
    blocks = re.findall(r"^```bash\n(.*?)^```", EVERY_COMMAND.read_text(), re.M | re.S)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return {line.split()[1]: line for line in reversed(lines) if line.startswith("diskhop ")}


def error_kinds() -> dict[str, type[DiskhopError]]:
    """Every kind of error that is raised on purpose, by its full name: those of diskhop.errors first."""
    found: dict[str, type[DiskhopError]] = {}
    errors = SOURCE / "errors.py"
    for path in [errors, *sorted(set(SOURCE.rglob("*.py")) - {errors})]:
        names = re.findall(r"^class ([A-Z]\w*Error)\(", path.read_text(), re.M)
        if names:
            module = ".".join(["diskhop", *path.relative_to(SOURCE).with_suffix("").parts])
            kinds = {f"{module}.{name}": getattr(import_module(module), name) for name in names}
            found |= {name: kind for name, kind in kinds.items() if issubclass(kind, DiskhopError)}
    return found


def _python_page(title: str, names: tuple[str, ...]) -> str:
    parts = [f"# {title}"]
    for name in names:
        if name.startswith("__"):
            parts.append(f"## {name}\n\n`diskhop.{name}` is the version as text: `{getattr(diskhop, name)}`.")
            continue
        kind = "class" if inspect.isclass(getattr(diskhop, name)) else "function"
        members = "\n   :members:" if kind == "class" else ""
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. auto{kind}:: diskhop.{name}{members}\n```")
    return "\n\n".join(parts) + "\n"


def _command_page(name: str, command: Any) -> str:
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    options = [each for each in command.params if each not in arguments]
    words = " ".join(each.metavar if each.required else f"[{each.metavar}]" for each in arguments)
    example = examples_of_commands().get(name, "")
    parts = [f"# diskhop {name}", _plain(command.help)]
    parts.append(f"```bash\ndiskhop {name} {words} [OPTIONS]\n```")
    if example:
        parts.append(f"For example, as in [every command once](../../every-command.md):\n\n```bash\n{example}\n```")
    parts += [f"`{each.metavar}`\\\n{_plain(each.help)}" for each in arguments if each.help]
    parts.append(f"```{{program}} diskhop {name}\n```")
    for panel in PANELS:
        shown = [each for each in options if getattr(each, "rich_help_panel", None) == panel]
        if shown:
            parts += [f"## {panel}", *map(_option, shown)]
    return "\n\n".join(parts) + "\n"


def _option(option: Any) -> str:
    """An option with its flag, what it takes, its help, and its name in Python and TOML where that differs."""
    flags = ", ".join([*option.opts, *option.secondary_opts])
    metavar = option.metavar or ""
    text = _plain(option.help or "")
    if option.name not in (option.opts[0].removeprefix("--").replace("-", "_"), "as_json"):
        text += f" In TOML: `{option.name}`."
    return f"````{{option}} {flags} {metavar}".rstrip() + f"\n{text}\n````"


def _errors_page() -> str:
    intro = """\
# Errors

Every error that diskhop raises on purpose is a `diskhop.DiskhopError`. Its message names the thing, the rule, the
value and what to do. The command line prints it in one line and ends with the kind's exit code: 2 for bad input, 1 for
work that failed. Ctrl-C ends with 130.

```python
import diskhop

try:
    diskhop.open_dataset("nowhere")
except diskhop.DiskhopError as error:
    print(type(error).__name__, error.exit_code, error)
```

[Troubleshooting](../../guides/troubleshooting.md) explains single messages."""
    parts = [intro]
    for name, kind in error_kinds().items():
        ancestors = [
            each.__name__ for each in kind.__mro__[1:] if issubclass(each, Exception) and each is not Exception
        ]
        also = f" Also a {', '.join(f'`{each}`' for each in ancestors)}." if ancestors else ""
        parts.append(
            f"## {kind.__name__}\n\n`{name}`, exit code {kind.exit_code}.{also}\n\n{_plain(inspect.getdoc(kind) or '')}"
        )
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Markdown of a text with the markup of a terminal. What is in backticks stays code."""
    plain = Text.from_markup(text).plain if "[" in text else text
    quoted = plain.split("`")
    quoted[::2] = [re.sub(r"([\\*_<>\[\]$|#])", r"\\\1", each) for each in quoted[::2]]
    return "`".join(quoted)
