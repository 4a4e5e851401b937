"""Where rows lie in front of a GPU, against a brute-force oracle; assembly from there, by torch and by Triton."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diskhop.nn.kernels.assembly import assemble, assembly_reference
from diskhop.nn.kernels.leveled_rows import LeveledRows
from diskhop.nn.kernels.triton_assembly import TILE, Tile, assemble_by_triton
from diskhop.policies.device_rows import (
    DEVICE,
    HOST,
    STAGED,
    address_table,
    batch_addresses,
    index_of,
    level_of,
    place_rows,
)
from diskhop.system.resident import Part, SharedMemory
from tests.devices import BY_INTERPRETER
from tests.examples import examples

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)
# What an access costs, by the level of its row: any that grow have the same best placement.
COSTS = (1, 10, 1000)


@examples(30)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    device_rows=st.integers(0, 4),
    host_rows=st.integers(0, 4),
)
def test_no_placement_costs_less(counts: list[int], device_rows: int, host_rows: int) -> None:
    array = np.array(counts)
    levels = place_rows(array, device_rows, host_rows)
    assert len(levels.device) <= device_rows
    assert len(levels.host) <= host_rows
    assert not set(levels.device) & set(levels.host)
    table = address_table(levels, len(counts))
    found = sum(count * COSTS[STAGED if table[row] < 0 else level_of(table)[row]] for row, count in enumerate(counts))
    # Every way to give each row a level that has room for it.
    costs = [
        sum(count * COSTS[level] for count, level in zip(counts, ways, strict=True))
        for ways in itertools.product(range(3), repeat=len(counts))
        if ways.count(DEVICE) <= device_rows and ways.count(HOST) <= host_rows
    ]
    assert found == min(costs)


@examples(30)
@given(
    num_rows=st.integers(1, 9),
    sizes=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    seed=st.integers(0, 99),
    size=st.integers(0, 12),
)
def test_an_address_names_the_place_of_a_row(num_rows: int, sizes: tuple[int, int], seed: int, size: int) -> None:
    generator = np.random.default_rng(seed)
    levels = place_rows(generator.integers(0, 5, num_rows), *sizes)
    node_ids = generator.integers(0, num_rows, size)
    addresses, staged = batch_addresses(address_table(levels, num_rows), node_ids)
    memories = {DEVICE: levels.device, HOST: levels.host, STAGED: node_ids[staged]}
    named = [memories[int(level_of(each))][int(index_of(each))] for each in addresses]
    np.testing.assert_array_equal(np.array(named, np.int64), node_ids)
    assert set(node_ids[staged]).isdisjoint(levels.device)
    assert set(node_ids[staged]).isdisjoint(levels.host)


def leveled(
    dtype: torch.dtype, dim: int, num_rows: tuple[int, int, int], seed: int
) -> tuple[LeveledRows, torch.Tensor]:
    """Return rows in three memories, and the values that each has, in this order."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(num_rows)
    if dtype != torch.int8:
        memory = torch.randn(total, dim, generator=generator).to(dtype)
        return LeveledRows(*torch.split(memory, list(num_rows))), memory
    values = torch.randint(-128, 128, (total, dim), generator=generator, dtype=torch.int8)
    scales = torch.randn(total, 1, generator=generator)
    memory = torch.cat([values, scales.view(torch.int8)], dim=1)
    return LeveledRows(*(part.contiguous() for part in torch.split(memory, list(num_rows)))), values.float() * scales


@pytest.mark.parametrize("by_triton", [False, pytest.param(True, marks=BY_INTERPRETER)], ids=["torch", "triton"])
@examples(12)
@given(
    dtype=st.sampled_from(DTYPES),
    dim=st.sampled_from([1, 3, 16, 37, 100]),
    num_rows=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)),
    size=st.integers(0, 9),
    seed=st.integers(0, 99),
    tile=st.sampled_from([TILE, Tile(4, 1)]),
)
def test_assembled_rows_have_the_bits_of_the_table(
    by_triton: bool, dtype: torch.dtype, dim: int, num_rows: tuple[int, int, int], size: int, seed: int, tile: Tile
) -> None:
    rows, values = leveled(dtype, dim, num_rows, seed)
    places = [(level, index) for level, count in enumerate(num_rows) for index in range(count)]
    picked = np.random.default_rng(seed).integers(0, len(places), size if places else 0)
    addresses = torch.tensor([places[each][0] << 48 | places[each][1] for each in picked], dtype=torch.int64)
    found = assemble_by_triton(rows, addresses, tile) if by_triton else assembly_reference(rows, addresses)
    assert found.dtype == values.dtype
    assert torch.equal(found, values[torch.from_numpy(picked)])
    assert torch.equal(assemble(rows, addresses), found)


@pytest.mark.parametrize("dim", [pytest.param(1500, marks=BY_INTERPRETER)])
def test_rows_wider_than_a_program_are_written_in_parts(dim: int) -> None:
    rows, values = leveled(torch.float32, dim, (1, 1, 1), seed=0)
    assert torch.equal(assemble_by_triton(rows, torch.tensor([2 << 48, 0, 1 << 48])), values[[2, 0, 1]])


class OnePeer:
    """One process that shares memory with no other."""

    index, count = 0, 1

    def first(self, make: Callable[[], Any]) -> Any:
        return make()

    every = first


@pytest.mark.parametrize("for_device", [True, False])
def test_pinned_rows_that_processes_share_are_mapped_shared(for_device: bool) -> None:
    def fill(content: Any, _part: Part) -> None:
        content[:] = 7

    rows = SharedMemory(OnePeer()).make(1 << 16, fill, for_device=for_device)
    assert bool((rows == 7).all())
    of_rows = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:diskhop" in line]
    (flags,) = [line.split()[1] for line in of_rows if int(line.split("-")[0], 16) == rows.ctypes.data]
    assert flags[3] == ("s" if for_device else "p")
