"""The scripts of examples/from_pyg in both forms: as they are, with PyG's loaders in memory, and from disk.

    python -m tests.from_pyg NAME FORM SEEDS [FOLDER]

prints the results and seconds as JSON, a pair per seed. FORM is `memory`, or `disk` with the folder of the imported
graphs. Where neither pyg-lib nor torch-sparse is installed, tests/in_ram must be in PYTHONPATH for `memory`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch

SCRIPTS = Path(__file__).parents[1] / "examples" / "from_pyg"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "example_graphs")
IN_RAM = Path(__file__).parent / "in_ram"


def source(name: str) -> str:
    """Return a script as it is for PyG."""
    return (SCRIPTS / f"{name}.py").read_text()


def graph_of(name: str) -> str:
    """Return the name of a script's graph."""
    (found,) = re.findall(r'^data = example_graphs\.read\("([\w-]+)"\)', source(name), re.M)
    return str(found)


def changes(name: str, folder: str = "graphs") -> list[tuple[str, str]]:
    """Return the lines that change, before and after: the import, and the loader's first argument."""
    lines = source(name).splitlines()
    (imported,) = (line for line in lines if line.startswith("from torch_geometric.loader import"))
    (data,) = (line for line in lines if line.startswith("data ="))
    return [
        (imported, imported.replace("torch_geometric.loader", "diskhop")),
        (data, f'data = "{folder}/{graph_of(name)}"'),
    ]


def script(name: str, folder: str | None) -> str:
    """Return a script for PyG, or with a folder of graphs, from disk."""
    lines = source(name).splitlines()
    for before, after in changes(name, folder) if folder is not None else []:
        lines[lines.index(before)] = after
    return "\n".join(lines)


def run_script(name: str, folder: str | None, seed: int) -> tuple[dict[str, Any], float]:
    """Run a script. Returns its names, `result` among them, and its seconds."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    torch.manual_seed(seed)
    names: dict[str, Any] = {"__name__": "__main__"}
    started = time.perf_counter()
    exec(compile(script(name, folder), f"{name}.py", "exec"), names)
    return names, time.perf_counter() - started


def main() -> None:
    name, form, seeds = sys.argv[1:4]
    folder = sys.argv[4] if form == "disk" else None
    measured = []
    for seed in range(int(seeds)):
        names, seconds = run_script(name, folder, seed)
        measured.append((names["result"], seconds))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
