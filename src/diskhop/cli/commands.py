"""The commands in the order of the help: the panel that each stands in and the module that has it.

Modules are imported when their command is asked for, since what a command needs takes time to load.
"""

from __future__ import annotations

from importlib import import_module

PANEL_OF = {
    "import": "Data",
    "generate": "Data",
    "update": "Data",
    "compact": "Data",
    "inspect": "Data",
    "verify": "Data",
    "export": "Data",
    "plan": "Train",
    "train": "Train",
    "predict": "Train",
    "evaluate": "Train",
    "propagate": "Train",
    "pack": "Train",
    "report": "Train",
    "embed": "Embeddings",
    "neighbors": "Embeddings",
    "score": "Embeddings",
    "map": "Embeddings",
    "task": "Housekeeping",
    "doctor": "Housekeeping",
    "clean": "Housekeeping",
}
# Where the module is not called as the command is: the first is a word of Python's, the others share theirs.
_MODULE_OF = {"import": "import_graph", "inspect": "dataset", "verify": "dataset", "compact": "update"}
_MODULE_OF |= dict.fromkeys(("neighbors", "score", "map"), "embeddings")


def load_commands(arguments: list[str]) -> None:
    """Import the command that arguments begin with; all of them where they name none."""
    words = [each for each in arguments if not each.startswith("-")]
    if not words and "--version" in arguments:
        return
    for name in words[:1] if words and words[0] in PANEL_OF else PANEL_OF:
        import_module(f"diskhop.cli.{_MODULE_OF.get(name, name)}")
