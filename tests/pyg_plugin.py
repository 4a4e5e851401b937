"""A plugin of pytest that runs PyTorch Geometric's own tests of loaders on diskhop's loaders.

Each loader of torch_geometric.loader that diskhop has too is replaced: the graph is imported by diskhop.from_pyg into a
temporary dataset, and diskhop's loader is made with the same arguments; a ClusterData, which is diskhop's by then, is
passed on. Only repr() and ZipLoader are PyG's. Skips for lack of the packages that PyG samples with are lifted.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# The file to which results are written, one JSON per line.
LOG = "DISKHOP_PYG_LOG"
LOADERS = (
    *("NeighborLoader", "LinkNeighborLoader", "HGTLoader", "ClusterData", "ClusterLoader", "ShaDowKHopSampler"),
    *("GraphSAINTNodeSampler", "GraphSAINTEdgeSampler", "GraphSAINTRandomWalkSampler", "RandomNodeLoader"),
    "NeighborSampler",
)
_REPLACED_PACKAGES = re.compile(r"(pyg[-_]lib|torch[-_]sparse)\b")
_FLAGS = ("WITH_PYG_LIB", "WITH_TORCH_SPARSE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE")

_opened: list[Any] = []
_made: list[str] = []
_flags: dict[str, bool] = {}


def _replacement(name: str, loader_class: type) -> type:
    """Diskhop's class with PyG's first argument and repr()."""

    def make(self: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        import diskhop

        folder = Path(tempfile.mkdtemp(prefix="graph-", dir=Path(os.environ[LOG]).parent))
        if not isinstance(data, diskhop.ClusterData):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = diskhop.from_pyg(data, folder / "dataset")
        _made.append(name)
        loader_class.__init__(self, data, *args, **kwargs)  # type: ignore[misc]
        _opened.append(self)

    return type(name, (loader_class,), {"__init__": make, "__repr__": lambda self: f"{name}()"})


def pytest_configure(config: pytest.Config) -> None:
    """Replace the loaders and lift the skips before a test module is imported."""
    # All of PyG that reads the flags when it is loaded: loaded before they change, it keeps the true ones.
    from torch_geometric import datasets, loader, nn, testing, typing  # noqa: F401

    import diskhop

    config.addinivalue_line("markers", "dataset: test that reads a data set")
    for name in LOADERS:
        if name in dir(diskhop):
            setattr(loader, name, _replacement(name, getattr(diskhop, name)))
    with_package = testing.withPackage
    testing.onlyNeighborSampler = testing.withMETIS = lambda function: function
    testing.withPackage = lambda *names: with_package(*(n for n in names if not _REPLACED_PACKAGES.match(n)))
    for flag in _FLAGS:
        _flags[flag] = getattr(typing, flag)
        setattr(typing, flag, True)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Restore PyG's flags, which the test modules have read by now, and leave out tests of loaders that are missing."""
    from torch_geometric import typing

    import diskhop

    for flag, value in _flags.items():
        setattr(typing, flag, value)
    missing = {name for name in LOADERS if name not in dir(diskhop)}
    items[:] = [item for item in items if not missing & {*_names_in(item.function.__code__)}]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Write the result of each test that made a loader."""
    report = yield
    if call.when == "call" and (_made or report.failed):
        result = {"name": item.name, "file": item.path.name, "passed": report.passed, "skipped": report.skipped}
        reason = "" if call.excinfo is None else " ".join(str(call.excinfo.value).split())[:300]
        with Path(os.environ[LOG]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**result, "reason": reason}) + "\n")
    if call.when == "teardown":
        for loader in _opened:
            with suppress(Exception):
                loader.close()
        _opened.clear()
        _made.clear()
    return report


def _names_in(code: Any) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if hasattr(each, "co_names"):
            yield from _names_in(each)
