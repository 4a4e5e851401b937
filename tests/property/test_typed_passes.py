"""Networks over relations in passes equal PyG's layers over the whole graph, and their bytes depend on nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import BudgetError
from diskhop.planning.predict_typed import TypedPassesPlan
from tests.batched import assert_close
from tests.examples import examples
from tests.graphs import memory_folder
from tests.typed_passes import by_pyg, in_passes, make_relation_network, make_relations

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "hetero-sage": ("hetero-sage", {}),
    "rgcn": ("rgcn", {}),
    "rgcn of bases": ("rgcn", {"num_bases": 2}),
    "rgcn of blocks": ("rgcn", {"num_blocks": 4}),
}


@pytest.mark.parametrize("name", MODELS)
@examples(4)
@given(
    counts=st.fixed_dictionaries({"a": st.sampled_from([1, 60]), "b": st.integers(1, 30), "c": st.integers(1, 5)}),
    num_outputs=st.sampled_from([3, 11]),
    layers=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32),
)
def test_networks_equal_pygs_layers_over_the_whole_graph(
    name: str, counts: dict[str, int], num_outputs: int, layers: int, seed: int
) -> None:
    """With outputs narrower and wider than the hidden width, which transform and aggregate first."""
    model, options = MODELS[name]
    with memory_folder(Path(tempfile.gettempdir())) as folder:
        graph = make_relations(folder, counts, num_edges=120, hidden=8, seed=seed)
        network = make_relation_network(graph, model, num_outputs, 8, layers=layers, **options)
        wanted = range(1, layers + 1)
        found = in_passes(graph, network, folder / "work", wanted=wanted, threads=2)
        expected = by_pyg(graph, network)
        for number in wanted:
            assert_close(found[number], expected[number - 1])


@pytest.mark.fast("50")
@pytest.mark.parametrize("num_outputs", [5, 50])
def test_bytes_are_the_same_for_any_memory_and_threads(tmp_path: Path, num_outputs: int) -> None:
    with memory_folder(tmp_path) as folder:
        graph = make_relations(folder, {"a": 9000, "b": 4500, "c": 5}, num_edges=14_000, hidden=40)
        network = make_relation_network(graph, "hetero-sage", num_outputs, 40)
        plans: list[TypedPassesPlan] = []
        with pytest.raises(BudgetError, match="the smallest that works") as refused:
            in_passes(graph, network, folder / "work", memory_bytes=20_000)
        smallest = refused.value.smallest_bytes
        assert smallest is not None
        expected = in_passes(graph, network, folder / "work", wanted=(1, 2), threads=2, plans=plans)
        for memory_bytes, threads in ((smallest, 1), (2 * smallest, 2)):
            found = in_passes(
                graph, network, folder / "work", wanted=(1, 2), memory_bytes=memory_bytes, threads=threads, plans=plans
            )
            for number, rows in expected.items():
                np.testing.assert_array_equal(found[number], rows)
        assert_close(expected[2], by_pyg(graph, network)[-1])
    passes = [sum(map(len, plan.blocks)) for plan in plans]
    assert passes[1] > passes[2] > passes[0] == len(plans[0].blocks)
    assert sum(plans[1].reserved.values()) <= smallest
