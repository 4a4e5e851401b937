"""Lists that a neighbour cache holds, against picking them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diskhop.policies import neighbor_cache
from diskhop.policies.neighbor_cache import is_picked, pick_lists


def pick_one_by_one(lengths: list[int], out_degrees: list[int], capacity: int) -> list[int]:
    def ratio_class(node: int) -> int:
        return int(np.float32(out_degrees[node] / lengths[node]).view(np.uint32)) >> 16

    order = sorted((node for node, length in enumerate(lengths) if length), key=lambda node: (-ratio_class(node), node))
    picked = []
    for node in order:
        if lengths[node] <= capacity:
            capacity -= lengths[node]
            picked.append(node)
    return sorted(picked)


@given(
    nodes=st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 50]), st.integers(0, 5)), max_size=60),
    capacity=st.integers(0, 255),
)
def test_lists_go_in_by_ratio_while_they_fit(nodes: list[tuple[int, int]], capacity: int) -> None:
    lengths, out_degrees = [length for length, _ in nodes], [out_degree for _, out_degree in nodes]
    indptr = np.cumsum([0, *lengths], dtype=np.int64)
    picked = pick_lists(indptr, np.array(out_degrees, np.uint32), capacity)
    found = np.flatnonzero(is_picked(picked, 0, len(nodes))).tolist()
    assert found == pick_one_by_one(lengths, out_degrees, capacity)


def test_blocks_of_nodes_change_nothing() -> None:
    rng = np.random.default_rng(0)
    num_nodes = 3 * neighbor_cache._NODES_AT_ONCE + 77
    lengths = rng.integers(0, 30, num_nodes)
    lengths[1000] = 300_000
    out_degrees = rng.integers(0, 40, num_nodes).astype(np.uint32)
    indptr = np.cumsum([0, *lengths], dtype=np.int64)
    for capacity in (0, 1000, 400_000, int(lengths.sum()) - 1, int(lengths.sum())):
        found = is_picked(pick_lists(indptr, out_degrees, capacity), 0, num_nodes)
        num_held = int(lengths[found].sum())
        assert capacity * 255 // 256 <= num_held <= capacity
        one_by_one = pick_one_by_one(lengths.tolist(), out_degrees.tolist(), capacity)
        # The last part of the room may be left.
        assert set(np.flatnonzero(found)) <= set(one_by_one)
        assert int(lengths[one_by_one].sum()) - num_held <= capacity // 256
