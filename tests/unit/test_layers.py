"""The architecture as a test: imports point down the layers only, and never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "diskhop"

# A module belongs to the layer of the longest prefix of its dotted name below diskhop that stands here.
LAYERS = {
    0: ["errors", "counters", "budget", "display", "plans", "run_files", "config"],
    1: ["_native", "io", "disk", "system", "runtime", "derived"],
    2: ["protocols", "policies", "batches", "dataset", "importing", "exporting", "generating", "updating"],
    3: ["sampling", "stores", "hops"],
    4: ["nn", "embedding", "pipeline"],
    5: ["planning"],
    6: ["loaders", "predicting", "runs"],
    7: ["ui", "reporting", "api", "lightning", "cli", "__init__", "__main__"],
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
# These rooms meet only higher up: a sampler must not know where features lie.
APART = [*LAYERS[3], "embedding"]
TORCH_FROM_LAYER = 4


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def prefixes(module: str) -> list[str]:
    """The dotted name and every package around it, longest first."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def layer_of(module: str) -> int:
    for prefix in prefixes(module):
        if prefix in LAYER_OF:
            return LAYER_OF[prefix]
    raise AssertionError(f"{module} has no layer: add it to LAYERS, and to docs/architecture.md")


@cache
def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return any(path.parent.glob(f"{path.name}.py*")) or path.is_dir()


@cache
def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, not relatively"
            module = node.module or ""
            if module != "diskhop":
                found.add(module)
            if module.split(".")[0] == "diskhop":
                below = module.removeprefix("diskhop").removeprefix(".")
                for alias in node.names:
                    if is_module(f"{below}.{alias.name}".removeprefix(".")):
                        found.add(f"{module}.{alias.name}")
                    elif module == "diskhop":
                        found.add("diskhop.__init__")
    return found


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports() -> dict[str, set[str]]:
    """Return what each module imports of the package; not at import, which every worker of pytest does."""
    return {
        name: {module.removeprefix("diskhop.") for module in imported(path) if module.startswith("diskhop.")}
        for name, path in MODULES.items()
    }


def test_every_name_in_the_layers_is_a_module() -> None:
    unknown = [name for name in LAYER_OF if not is_module(name)]
    assert not unknown, f"LAYERS names modules that do not exist: {', '.join(unknown)}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_imports_point_down(folder: Path) -> None:
    for name in (name for name, path in MODULES.items() if path.parent == folder):
        check_imports(name)


def check_imports(name: str) -> None:
    layer, room = layer_of(name), name.split(".")[0]
    if layer < TORCH_FROM_LAYER:
        loaded = {module.split(".")[0] for module in imported(MODULES[name])}
        assert not loaded & {"torch", "torch_geometric"}, f"{name} (layer {layer}) must not load torch"
    for target in imports()[name]:
        assert layer_of(target) <= layer, f"{name} must not import {target}: that is a layer above it"
        other = target.split(".")[0]
        assert room == other or room not in APART or other not in APART, (
            f"{name} must not import {target}: they meet higher up"
        )


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """A path from a node back to itself, or nothing."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if cycle := visit(target, [*trail, name]):
                return cycle
        done.add(name)
        return []

    for name in graph:
        if cycle := visit(name, []):
            return cycle
    return []


def rooms_below(folder: str, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the siblings that each file and subfolder of a folder imports."""
    start = f"{folder}." if folder else ""
    siblings: dict[str, set[str]] = {}
    for name in names:
        if not name.startswith(start):
            continue
        child = name.removeprefix(start).split(".")[0]
        found = siblings.setdefault(child, set())
        for target in imports()[name]:
            if target.startswith(start) and (other := target.removeprefix(start).split(".")[0]) != child:
                found.add(other)
    return siblings


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert not find_cycle(imports()), " -> ".join(find_cycle(imports()))


FOLDERS = {package for name in MODULES for package in prefixes(name)[1:]} | {""}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_files_and_folders_of_a_folder_do_not_import_each_other_in_a_circle(folder: str) -> None:
    # The package's own face, __init__, may import anything: what it offers is made below.
    graph = rooms_below(folder, [name for name in MODULES if name != "__init__"])
    graph.pop("__init__", None)
    cycle = find_cycle(graph)
    assert not cycle, f"in diskhop/{folder.replace('.', '/')}: {' -> '.join(cycle)}"
