"""NeighborLoader beside PyTorch Geometric's, and its state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE, SAGEConv

from diskhop import NeighborLoader, open_dataset
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.nn.models import Network, SageLayer
from tests.runs import small_graph

GRAPH: dict[str, Any] = {
    "num_nodes": 2000,
    "num_edges": 10_000,
    "dim": 16,
    "num_classes": 4,
    "homophily": 0.8,
    "signal": 1.0,
    "train_fraction": 0.4,
    "seed": 1,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("graphs") / "sbm"
    small_graph(path, **GRAPH)
    return open_dataset(path)


def loader_for(dataset: Dataset, **changes: object) -> NeighborLoader:
    arguments = {"num_neighbors": [4, 3], "batch_size": 64, "input_nodes": "train", "memory": "100MB", **changes}
    return NeighborLoader(dataset, **arguments)  # type: ignore[arg-type]


def test_a_batch_is_a_consistent_subgraph(dataset: Dataset) -> None:
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    table, labels, train = dataset.feature_table(), dataset.labels, dataset.split("train")
    assert table is not None
    assert labels is not None
    assert train is not None
    features = np.fromfile(table.path, np.float32).reshape(2000, 16)
    with loader_for(dataset, shuffle=True) as loader:
        seen = []
        for batch in loader:
            n_id = batch.n_id.numpy()
            seeds = n_id[: batch.batch_size]
            np.testing.assert_array_equal(train[batch.input_id.numpy()], seeds)
            seen.append(seeds)
            np.testing.assert_array_equal(batch.x.numpy(), features[n_id])
            np.testing.assert_array_equal(batch.y.numpy(), labels[n_id])
            sources, targets = n_id[batch.edge_index.numpy()]
            for source, target in zip(sources, targets, strict=True):
                assert source in indices[indptr[target] : indptr[target + 1]]
            assert "e_id" not in batch  # a generated graph has no source that numbers its edges
            assert sum(batch.num_sampled_nodes) == len(n_id)
            assert sum(batch.num_sampled_edges) == batch.edge_index.shape[1]
        assert len(seen) == len(loader)
        np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.sort(train))


def test_a_pyg_model_runs_unchanged(dataset: Dataset) -> None:
    first, second = SAGEConv(16, 8), SAGEConv(8, 4)
    with loader_for(dataset) as loader:
        batch = next(iter(loader))
    out = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)[: batch.batch_size]
    loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
    (gradient,) = torch.autograd.grad(loss, [first.lin_l.weight])
    assert torch.isfinite(gradient).all()


def test_our_layers_on_a_block_give_what_pygs_give_on_all_edges(dataset: Dataset) -> None:
    ours = Network(lambda inputs, outputs, _: SageLayer(inputs, outputs), 16, 8, 4, num_layers=2)
    theirs = GraphSAGE(16, 8, num_layers=2, out_channels=4)
    theirs.load_state_dict(ours.state_dict())
    with loader_for(dataset) as loader:
        for batch in loader:
            torch.testing.assert_close(
                ours(batch.x, batch.block),
                theirs(batch.x, batch.edge_index)[: batch.batch_size],
                rtol=1e-5,
                atol=1e-5,
            )


def test_a_printed_batch_fits_a_few_lines(dataset: Dataset) -> None:
    with NeighborLoader(dataset, [3, 2], "train", batch_size=8, memory="50MB") as loader:
        shown = repr(next(iter(loader)))
    assert "block=Block(hops=2, edges=" in shown
    assert "tensor(" not in shown
    assert len(shown) < 300


def test_batches_may_be_kept(dataset: Dataset) -> None:
    with loader_for(dataset) as loader:
        kept = list(loader)
        again = list(loader_for(dataset))
    for one, other in zip(kept, again, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.edge_index, other.edge_index)


def test_epochs_differ_and_state_goes_on_with_the_next_batch(dataset: Dataset) -> None:
    with loader_for(dataset, shuffle=True) as loader:
        epochs = [list(loader) for _ in range(2)]
        assert not torch.equal(epochs[0][0].n_id, epochs[1][0].n_id)
    with loader_for(dataset, shuffle=True) as stopped:
        list(stopped)
        batches = iter(stopped)
        for _ in range(3):
            next(batches)
        state = stopped.state_dict()
    with loader_for(dataset, shuffle=True) as resumed:
        resumed.load_state_dict(state)
        rest = list(resumed)
    assert len(rest) == len(epochs[1]) - 3
    for one, other in zip(rest, epochs[1][3:], strict=True):
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(one.x, other.x)


@pytest.mark.parametrize("ordered", [True, False])
def test_batches_as_they_are_finished_are_all_there_and_a_state_goes_on_with_the_others(
    dataset: Dataset, ordered: bool
) -> None:
    with loader_for(dataset, shuffle=True) as loader:
        expected = {tuple(batch.input_id.tolist()): batch for batch in loader}
    with loader_for(dataset, shuffle=True, store="shared", ordered=ordered) as stopped:
        batches = iter(stopped)
        found = [next(batches) for _ in range(5)]
        state = stopped.state_dict()
    with loader_for(dataset, shuffle=True, store="shared", ordered=ordered) as resumed:
        resumed.load_state_dict(state)
        found += list(resumed)
        assert resumed.state_dict()["epoch"] == 1
        assert len(list(resumed)) == len(resumed)
    assert len(found) == len(expected)
    assert not ordered or [tuple(batch.input_id.tolist()) for batch in found] == list(expected)
    for batch in found:
        other = expected[tuple(batch.input_id.tolist())]
        assert torch.equal(batch.x, other.x)
        assert torch.equal(batch.n_id, other.n_id)


def test_drop_last_and_len(dataset: Dataset) -> None:
    train = dataset.split("train")
    assert train is not None
    whole, rest = divmod(len(train), 64)
    assert rest > 0
    with loader_for(dataset) as loader, loader_for(dataset, drop_last=True) as dropping:
        assert len(loader) == whole + 1
        assert len(dropping) == whole == len(list(dropping))


def test_nodes_may_be_ids_masks_or_all(dataset: Dataset) -> None:
    mask = torch.zeros(2000, dtype=torch.bool)
    mask[10:20] = True
    with loader_for(dataset, input_nodes=mask) as loader:
        assert next(iter(loader)).n_id[:10].tolist() == list(range(10, 20))
    with loader_for(dataset, input_nodes=torch.tensor([5, 3])) as loader:
        assert next(iter(loader)).n_id[:2].tolist() == [5, 3]
    with loader_for(dataset, input_nodes=None) as loader:
        assert len(loader) == -(-2000 // 64)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"worker_init_fn": print}, "no worker processes"),
        ({"batch_sampler": [[0]]}, "the order as sampler"),
        ({"timeout": 5}, "errors of a stage are raised at once"),
        ({"transform_sampler_output": print}, "use transform"),
        ({"neighbor_sampler": object()}, "pass a SamplerSpec"),
        ({"num_workers": -1}, "num_workers must be a whole number"),
        ({"persistent_workers": 3}, "persistent_workers must be True or False"),
        ({"sampler": 5}, "sampler must be positions in input_nodes with a length"),
        ({"sampler": [0, 1], "shuffle": True}, "remove shuffle=True"),
        ({"sampler": [0, 900]}, "sampler must be positions in input_nodes"),
        ({"generator": 5}, "generator must be a torch.Generator"),
        ({"generator": torch.Generator(), "seed": 5}, "seed must be left out where there is a generator"),
        ({"input_id": [1, 2]}, "input_id must be 800 whole numbers"),
        ({"nonsense": 1}, "no argument 'nonsense'"),
        ({"input_nodes": "trian"}, "train, valid, test"),
        ({"num_neighbors": [0]}, "fan-out"),
        ({"batch_size": 0}, "batch_size"),
        ({"memory": "10 potatoes"}, "size"),
        ({"store": "magic"}, "direct"),
        ({"input_nodes": torch.tensor([2000])}, "2000"),
        ({"input_nodes": ("node", torch.tensor([1]))}, "typed"),
        ({"num_neighbors": {("a", "b", "c"): [2]}}, "one count per hop"),
        ({"num_neighbors": 5}, "one count per hop"),
        ({"threads": 0}, "threads"),
    ],
)
def test_what_is_not_supported_is_refused_in_words(dataset: Dataset, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        next(iter(loader_for(dataset, **arguments)))


def test_out_dtype_converts(dataset: Dataset) -> None:
    with loader_for(dataset, out_dtype=torch.bfloat16) as loader:
        assert next(iter(loader)).x.dtype == torch.bfloat16


def test_a_path_is_enough(dataset: Dataset) -> None:
    with loader_for(str(dataset.path)) as by_path, loader_for(dataset) as by_dataset:  # type: ignore[arg-type]
        assert torch.equal(next(iter(by_path)).x, next(iter(by_dataset)).x)


def test_a_pass_after_one_that_was_left_is_a_whole_epoch(dataset: Dataset) -> None:
    with loader_for(dataset, shuffle=True) as loader:
        next(iter(loader))
        assert len(list(loader)) == len(loader)


@pytest.mark.slow
def test_an_iterator_still_held_does_not_keep_the_process_alive(dataset: Dataset) -> None:
    program = (
        "import diskhop\n"
        f"loader = diskhop.NeighborLoader({str(dataset.path)!r}, [4, 3], 'train', batch_size=8, memory='100MB')\n"
        "batches = iter(loader); next(batches)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_closed_loader_says_so(dataset: Dataset) -> None:
    loader = loader_for(dataset, store="memory")
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(ConfigError, match="closed"):
        next(iter(loader))


def test_a_state_of_another_loader_is_refused(dataset: Dataset) -> None:
    with loader_for(dataset) as one:
        state = one.state_dict()
    with loader_for(dataset, batch_size=32) as other, pytest.raises(ConfigError, match="batch_size 64, not 32"):
        other.load_state_dict(state)


def test_the_smallest_memory_that_is_named_works(dataset: Dataset) -> None:
    with pytest.raises(BudgetError) as caught:
        loader_for(dataset, memory="30KB")
    smallest = str(caught.value).rsplit(" ", 1)[1]
    with loader_for(dataset, memory=smallest) as loader:
        assert len(list(loader)) == len(loader)


def test_a_renumbered_graph_is_spoken_of_by_its_original_ids(dataset: Dataset, tmp_path: Path) -> None:
    """Neighbourhoods and rows of a graph in hot order are those of the graph as it was."""
    hot = small_graph(tmp_path / "hot", order="hot", **GRAPH)
    mask = np.zeros(dataset.num_nodes, np.bool_)
    mask[5:80] = True
    asked: list[Any] = [None, "train", np.array([7, 3, 1999, 3 + 40]), np.flatnonzero(mask), mask]
    for nodes in asked:
        seen = []
        for each in (dataset, hot):
            rows: dict[int, tuple[bytes, int, list[int]]] = {}
            seeds: list[int] = []
            options: dict[str, Any] = {"input_nodes": nodes, "batch_size": 64, "memory": "100MB", "store": "pread"}
            with NeighborLoader(each, [-1], **options) as loader:
                for batch in loader:
                    ids = batch.n_id.tolist()
                    seeds += ids[: batch.batch_size]
                    for place in range(batch.batch_size):
                        sources = batch.edge_index[0][batch.edge_index[1] == place]
                        neighbours = sorted(batch.n_id[sources].tolist())
                        rows[ids[place]] = (batch.x[place].numpy().tobytes(), int(batch.y[place]), neighbours)
            seen.append((sorted(seeds) if isinstance(nodes, str) else seeds, rows))
        assert seen[0] == seen[1]
    for bad in ([0, 2000], [-1]):
        with pytest.raises(ConfigError, match="input_nodes has id"):
            NeighborLoader(hot, [-1], input_nodes=np.array(bad), memory="100MB")
