"""Exporting what is damaged or has no place in a format: one line, and nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.errors import ConfigError, DestinationError, FormatError
from diskhop.exporting.formats import EXPORTS
from tests.exports import exported, imported
from tests.graphs import make_dataset


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    with pytest.raises(ConfigError, match="--format 'csv' is unknown; use one of numpy, parquet, tables, graphbolt"):
        exported(dataset, tmp_path / "out", "csv")
    with pytest.raises(DestinationError, match="does not exist; create it first"):
        exported(dataset, tmp_path / "none" / "out", "numpy")
    for format_name in EXPORTS:
        with pytest.raises(ConfigError, match=r"--memory"):
            exported(dataset, tmp_path / "out", format_name, budget=Budget(1_000_000))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("format_name", EXPORTS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edges/edge/indices.bin", np.full(300, 50, np.uint32)),
        ("edges/edge/indptr.bin", np.arange(51)[::-1].copy()),
        ("edges/edge/indptr.bin", np.zeros(51, np.int64)),
        ("edges/edge/indptr.bin", np.full(51, 7)),
        ("edges/edge/indptr.bin", np.array([0] * 50 + [301])),
    ],
)
def test_damage_is_one_line_and_leaves_nothing(tmp_path: Path, format_name: str, name: str, value: Any) -> None:
    dataset = make_dataset(tmp_path / "graph")
    dataset = open_dataset(dataset.path)
    value.tofile(dataset.path / name)
    with pytest.raises(FormatError, match=rf"{name}: is damaged; run 'diskhop verify' to list"):
        exported(dataset, tmp_path / "out", format_name)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("content", [b"ana\nben\n", b"ana\n\xff\ncem\n"])
def test_damaged_names_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "names.csv").write_text("ana,ben\nben,cem\nana,cem\n")
    dataset = imported(tmp_path / "names.csv", tmp_path / "graph")
    (dataset.path / "names" / "nodes.txt").write_bytes(content)
    with pytest.raises(FormatError, match=r"nodes.txt: is damaged"):
        exported(dataset, tmp_path / "out", "parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "names.csv"]
