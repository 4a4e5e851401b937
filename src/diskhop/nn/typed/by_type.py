"""Modules by the name of a node type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


class ByType(nn.ModuleDict):
    """A ModuleDict whose keys may be any names: parameters are named as in PyG's ModuleDict, which PyG's own need."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__({parameter_name(name): module for name, module in modules.items()})
        self._names = tuple(modules)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(parameter_name(key))

    def __contains__(self, key: str) -> bool:
        return super().__contains__(parameter_name(key))

    def keys(self) -> tuple[str, ...]:  # type: ignore[override]  # a view there
        """Return the names of types."""
        return self._names

    def values(self) -> list[Any]:  # type: ignore[override]  # a view there
        """Return the modules."""
        return [self[name] for name in self._names]

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]  # a view there
        """Return the modules with the names of their types."""
        return list(zip(self._names, self.values(), strict=True))


def parameter_name(node_type: str) -> str:
    """Return a type's name as names of parameters have it: no dot, and no attribute of the class."""
    name = f"<{node_type}>" if hasattr(nn.ModuleDict, node_type) else node_type
    return name.replace(".", "#")
