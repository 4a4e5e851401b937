"""The architecture as a test: imports point down the layers only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "diskhop"

# A module belongs to the layer of the longest prefix that matches its dotted name below diskhop.
LAYERS = {
    0: ["errors", "config", "embed_config", "counters", "budget", "plan", "run_files"],
    1: ["_native", "io", "tasks", "workers", "channels"],
    2: ["protocols", "policies", "dataset", "sampled_record", "trace"],
    3: ["sampling", "features", "propagation", "device"],
    4: ["embedding", "models", "rows", "batch_stream", "pipeline", "packing"],
    5: ["planning"],
    6: ["loader", "hop_loader", "training"],
    7: ["report", "summary", "stages", "tensorboard", "terminal", "cli", "__init__", "__main__"],
}
# Layer 3's folders meet only higher up: a sampler must not know where features lie.
APART = [*LAYERS[3], "embedding"]
TORCH_FROM_LAYER = 4


def layer_of(module: str) -> int:
    for layer, names in LAYERS.items():
        if module.split(".")[0] in names:
            return layer
    raise AssertionError(f"{module} has no layer: add it to LAYERS, and to docs/architecture.md")


def is_module(name: str) -> bool:
    return any(PACKAGE.glob(f"{name}.py*")) or (PACKAGE / name).is_dir()


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, not relatively"
            found.add(node.module or "")
            if node.module == "diskhop":
                found |= {f"diskhop.{alias.name if is_module(alias.name) else '__init__'}" for alias in node.names}
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    layer = layer_of(name)
    for module in imported(path):
        if layer < TORCH_FROM_LAYER:
            assert module.split(".")[0] not in ("torch", "torch_geometric"), (
                f"{name} (layer {layer}) must not load torch"
            )
        if not module.startswith("diskhop."):
            continue
        target = module.removeprefix("diskhop.")
        assert layer_of(target) <= layer, f"{name} must not import {target}: that is a layer above it"
        if name.split(".")[0] in APART and target.split(".")[0] in APART:
            assert target.split(".")[0] == name.split(".")[0], f"{name} must not import {target}: they meet higher up"


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = {module.removeprefix("diskhop.") for module in imported(path) if module.startswith("diskhop.")}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name in done or name not in graph:
            return
        for target in sorted(graph[name]):
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())
