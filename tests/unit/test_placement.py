"""Claims about where tables are put: memory, then the disk (PP-GNN, section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from diskhop.hops.read.placement import place_tables


@pytest.mark.parametrize(
    ("given", "place", "shuffle"),
    [
        ({"memory_bytes": 100}, "memory", "rows"),
        ({"memory_bytes": 120, "model_bytes": 20}, "memory", "rows"),
        ({"memory_bytes": 119, "model_bytes": 20}, "disk", "chunks"),
        ({"memory_bytes": 100, "shuffle": "chunks"}, "memory", "chunks"),
        ({"memory_bytes": 99, "shuffle": "rows"}, "disk", "rows"),
        ({"memory_bytes": 100, "place": "disk"}, "disk", "chunks"),
        ({"memory_bytes": 99, "place": "memory"}, "memory", "rows"),
    ],
)
def test_tables_go_to_the_fastest_place_they_fit(given: dict[str, Any], place: str, shuffle: str) -> None:
    chosen = place_tables(num_bytes=100, **given)
    assert (chosen.place, chosen.shuffle) == (place, shuffle)
    assert chosen.reason.startswith(f"placement {place} (")
    assert ("requested" in chosen.reason) == bool({"place", "shuffle"} & set(given))
