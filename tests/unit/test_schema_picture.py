"""`diskhop inspect` draws the types of a graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diskhop.cli import run
from diskhop.dataset.verify import describe
from diskhop.generating import TypedConfig, generate_typed_graph
from diskhop.ui.schema import draw_schema
from tests.graphs import make_dataset, threads_engine

PICTURE = """\
┌────────────────────┐  ┌─────────────┐  ┌────────────────────┐
│ item               │  │ shop        │  │ user               │
│ 885 nodes          │  │ 15 nodes    │  │ 2,100 nodes        │
│ 8 float32 features │  │ no features │  │ 4 float32 features │
└────────────────────┘  └─────────────┘  │ 8 classes          │
                                         └────────────────────┘
shop ── sells ────▶ item   3,000 edges
user ── buys ─────▶ item  18,000 edges
user ── follows ──▶ user   9,000 edges
"""


def test_types_are_boxes_and_arrows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TypedConfig(num_nodes=3000, dim=4)
    dataset = generate_typed_graph(tmp_path / "g", config, engine=threads_engine())
    assert draw_schema(describe(dataset), 80) == PICTURE.splitlines()
    narrow = draw_schema(describe(dataset), 40)
    assert max(map(len, narrow[:9])) <= 40
    assert len(narrow) == 5 + 6 + 3
    assert run(["inspect", str(tmp_path / "g")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("┌")
    assert "user__buys__item" in shown
    assert run(["inspect", str(tmp_path / "g"), "--json"]) == 0
    schema = json.loads(capsys.readouterr().out)["schema"]
    assert schema["nodes"] == ["item", "shop", "user"]
    assert schema["edges"][1] == {
        "source": "user",
        "relation": "buys",
        "destination": "item",
        "name": "user__buys__item",
        "count": 18_000,
    }


def test_many_edge_types_are_counted() -> None:
    edge = {"source": "a", "relation": "r", "destination": "a", "count": 1}
    lines = draw_schema({"nodes": {"a": {"count": 1}}, "schema": {"edges": [edge] * 50}}, 80)
    assert lines[-2:] == ["a ── r ──▶ a  1 edges", "and 10 more edge types"]


def test_a_graph_of_one_type_is_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path / "g")
    assert run(["inspect", str(tmp_path / "g")]) == 0
    assert "┌" not in capsys.readouterr().out
