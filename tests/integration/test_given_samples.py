"""Batches that were sampled elsewhere: packed, delivered with the same nodes, edges and features; refused if wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as PygNeighborLoader
from torch_geometric.loader import RandomNodeLoader

import diskhop
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, FormatError, SourceError
from diskhop.loaders.packed import PackedLoader
from diskhop.loaders.pyg_stores import PygStores
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.pack_samples import pack_samples

NUM_NODES, NUM_EDGES, DIM = 300, 2000, 7
Arrays = dict[str, NDArray[Any]]
LIMITS: dict[str, Any] = {"memory": "200MB", "engine": "threads", "threads": 1}


@pytest.fixture(scope="module")
def graph() -> Data:
    draws = torch.Generator().manual_seed(3)
    edges = torch.randint(0, NUM_NODES, (2, NUM_EDGES), generator=draws)
    x = torch.randn(NUM_NODES, DIM, generator=draws)
    mask = torch.arange(NUM_NODES) % 2 == 0
    return Data(x=x, edge_index=edges, y=torch.arange(NUM_NODES) % 4, train_mask=mask)


@pytest.fixture(scope="module", params=["input", "hot"])
def dataset(request: pytest.FixtureRequest, graph: Data, module_folder: Path) -> Dataset:
    return diskhop.from_pyg(graph, module_folder / f"graph-{request.param}", order=request.param)


@pytest.fixture(scope="module")
def plain(graph: Data, module_folder: Path) -> Dataset:
    return diskhop.from_pyg(graph, module_folder / "plain")


def save(folder: Path, number: int, arrays: Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"batch-{number}.npz", **arrays)  # type: ignore[arg-type]


def saved_batch(batch: Data) -> Arrays:
    arrays = {
        "seeds": batch.n_id[: batch.batch_size].numpy(),
        "nodes": batch.n_id.numpy(),
        "edge_index": batch.edge_index.numpy(),
    }
    counts = {name: batch[name] for name in ("num_sampled_nodes", "num_sampled_edges") if name in batch}
    return arrays | {name: np.array(values) for name, values in counts.items()}


def assert_delivered(loader: PackedLoader, wanted: list[Data], graph: Data) -> None:
    found = list(loader)
    assert len(found) == len(loader) == len(wanted)
    for batch, expected in zip(found, wanted, strict=True):
        assert batch.batch_size == expected.batch_size
        torch.testing.assert_close(batch.n_id, expected.n_id, rtol=0, atol=0)
        torch.testing.assert_close(batch.edge_index, expected.edge_index, rtol=0, atol=0)
        torch.testing.assert_close(batch.x, graph.x[expected.n_id], rtol=0, atol=0)
        torch.testing.assert_close(batch.y, graph.y[expected.n_id], rtol=0, atol=0)
        # Edges are those of the graph, by their numbers there.
        torch.testing.assert_close(graph.edge_index[:, batch.e_id], batch.n_id[batch.edge_index], rtol=0, atol=0)


@pytest.mark.fast("hot")
def test_batches_of_pyg_are_delivered_as_they_were_drawn(dataset: Dataset, graph: Data, tmp_path: Path) -> None:
    with PygStores(dataset, [4, 3], **LIMITS) as stores:
        drawn: list[Data] = []
        for epoch in range(2):
            loader = PygNeighborLoader(
                stores.data, [4, 3], torch.arange(0, 150), neighbor_sampler=stores.sampler, batch_size=13
            )
            # More than ten batches: names are ordered by their numbers.
            for number, batch in enumerate(loader):
                drawn.append(batch)
                save(tmp_path / "samples" / f"epoch-{epoch}", number, saved_batch(batch))
    packed = pack_samples(dataset, tmp_path / "samples", scratch=tmp_path, disk="100MB", cache="2KB", **LIMITS)
    assert [epoch.num_batches for epoch in packed.layout.epochs] == [12, 12]
    assert packed.layout.num_held > 0
    with PackedLoader(dataset, packed.layout.path, scratch=tmp_path, **LIMITS) as loader:
        assert loader.plan.reserved.get("topology", 0) == 0
        # The second pass has the second epoch, and the third one the first epoch again.
        for first in (0, 12, 0):
            assert_delivered(loader, drawn[first : first + 12], graph)
        batch = next(iter(loader))
        assert list(batch.num_sampled_nodes) == list(drawn[12].num_sampled_nodes)
        assert list(batch.num_sampled_edges) == list(drawn[12].num_sampled_edges)
    # What was packed of the same files is taken; other files are packed again.
    again = pack_samples(dataset, tmp_path / "samples", scratch=tmp_path, disk="100MB", cache="2KB", **LIMITS)
    assert (again.layout.path, again.steps) == (packed.layout.path, [])


def test_subgraphs_without_hops_have_all_their_edges_by_destination(
    plain: Dataset, graph: Data, tmp_path: Path
) -> None:
    whole = Data(edge_index=graph.edge_index, n_id=torch.arange(NUM_NODES), num_nodes=NUM_NODES)
    drawn = []
    for number, part in enumerate(RandomNodeLoader(whole, num_parts=3)):
        order = torch.argsort(part.edge_index[1], stable=True)
        save(tmp_path / "samples", number, saved_batch(part.update({"batch_size": 20})))
        drawn.append(Data(n_id=part.n_id, edge_index=part.edge_index[:, order], batch_size=20))
    packed = pack_samples(plain, tmp_path / "samples", scratch=tmp_path, **LIMITS)
    with PackedLoader(plain, packed.layout.path, scratch=tmp_path, **LIMITS) as loader:
        assert_delivered(loader, drawn, graph)
        assert "num_sampled_nodes" not in next(iter(loader))


def a_batch(graph: Data) -> Arrays:
    """Node 5 with its in-neighbours, one hop."""
    (places,) = np.nonzero(graph.edge_index[1].numpy() == 5)
    sources = graph.edge_index[0].numpy()[places]
    nodes = np.array([5, *np.setdiff1d(sources, [5])])
    found = np.array([int(np.flatnonzero(nodes == source)[0]) for source in sources])
    edges = np.stack([found, np.zeros_like(found)])
    return {"seeds": nodes[:1], "nodes": nodes, "edge_index": edges}


def changed(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {**arrays, name: change(arrays[name])}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda arrays: {name: arrays[name] for name in ("seeds", "nodes")}, "has no array 'edge_index'"),
        (changed("nodes", lambda ids: ids + NUM_NODES), f"nodes has id {5 + NUM_NODES}, which no node"),
        (changed("nodes", lambda ids: np.r_[ids, ids[-1]]), "nodes must have each id once, got"),
        (changed("seeds", lambda ids: ids + 1), "nodes must begin with the seeds"),
        (changed("seeds", lambda ids: ids.astype(float)), "seeds must be whole numbers, got float64"),
        (changed("seeds", lambda ids: ids[:0]), "seeds must be a list of ids, got shape (0,)"),
        (changed("edge_index", lambda edges: edges.T), "edge_index must have 2 rows, got shape"),
        (changed("edge_index", lambda edges: edges - 1), "edge_index must have places in nodes"),
        (changed("edge_index", lambda edges: edges[::-1]), "is not in the graph, or not as often"),
        (changed("edge_index", lambda edges: np.c_[edges, edges]), "is not in the graph, or not as often"),
        (changed("nodes", lambda ids: ids.astype(object)), "is no file of plain arrays (nodes has Python objects); "),
        (lambda arrays: {**arrays, "num_sampled_nodes": np.array([1, 1])}, "has no array 'num_sampled_edges'"),
        (
            lambda arrays: {**arrays, "num_sampled_nodes": np.array([1, 1]), "num_sampled_edges": np.array([1])},
            "num_sampled_nodes must add up to the",
        ),
        (
            lambda arrays: {
                **arrays,
                "num_sampled_nodes": np.array([1, len(arrays["nodes"]) - 1, 0]),
                "num_sampled_edges": np.array([0, arrays["edge_index"].shape[1]]),
            },
            "edge 0 is of hop 1 by num_sampled_edges, but its destination is a node of hop 0",
        ),
        (
            lambda arrays: {
                **arrays,
                "num_sampled_nodes": np.array([1, 0, len(arrays["nodes"]) - 1]),
                "num_sampled_edges": np.array([arrays["edge_index"].shape[1], 0]),
            },
            "its source is a node of a later hop than 1",
        ),
        (
            lambda arrays: {
                **arrays,
                "num_sampled_nodes": np.array([1, len(arrays["nodes"]) - 1, 0, 0]),
                "num_sampled_edges": np.array([2**63 - 1, 2**63 - 1, 2 + arrays["edge_index"].shape[1]]),
            },
            "num_sampled_edges must add up to the",
        ),
        (changed("nodes", lambda ids: ids[:0]), "nodes must begin with the 1 seeds, got 0 nodes"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_before_anything_is_written(
    plain: Dataset, graph: Data, tmp_path: Path, spoil: Callable[[Arrays], Arrays], message: str
) -> None:
    save(tmp_path / "samples", 0, a_batch(graph))
    save(tmp_path / "samples", 1, spoil(a_batch(graph)))
    with pytest.raises(SourceError, match=f"batch-1.npz: .*{re.escape(message)}") as refused:
        pack_samples(plain, tmp_path / "samples", scratch=tmp_path / "scratch", **LIMITS)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "scratch").exists()


def test_a_file_that_memory_has_no_room_for_is_not_read(plain: Dataset, tmp_path: Path) -> None:
    """The sizes of its arrays are in their headers: a small file may have large ones."""
    (tmp_path / "samples").mkdir()
    edges = np.zeros((2, 200_000), np.int64)
    for number, seeds in enumerate((np.arange(1), np.arange(2))):
        arrays: dict[str, Any] = {"seeds": seeds, "nodes": seeds, "edge_index": edges[:, : number * 200_000]}
        np.savez_compressed(tmp_path / "samples" / f"{number}.npz", **arrays)
    message = r"1.npz: takes 38 MB of memory to read, --memory 30 MB leaves 30 MB; use --memory 39MB or more, or save"
    with pytest.raises(BudgetError, match=message):
        pack_samples(plain, tmp_path / "samples", **{**LIMITS, "memory": "30MB"})
    with pytest.raises(SourceError, match=r"1.npz: edge 0 -> 0 is not in the graph, or not as often"):
        pack_samples(plain, tmp_path / "samples", **{**LIMITS, "memory": "39MB"})


def test_a_file_that_changes_while_others_are_packed_is_refused(plain: Dataset, graph: Data, tmp_path: Path) -> None:
    """The batches that are packed are those that the layout is found by."""
    save(tmp_path / "samples", 0, a_batch(graph))

    class Changing(Callback):
        """Saves another batch once all are checked."""

        def planned(self, plan: Any) -> None:
            batch = a_batch(graph)
            save(tmp_path / "samples", 0, {**batch, "edge_index": batch["edge_index"][:, :-1]})

    with pytest.raises(SourceError, match=r"batch-0.npz: has changed since it was checked; run the same command again"):
        pack_samples(plain, tmp_path / "samples", scratch=tmp_path / "scratch", callbacks=[Changing()], **LIMITS)


def test_files_that_are_no_archives_and_folders_without_them_are_refused(plain: Dataset, tmp_path: Path) -> None:
    for content in (b"", b"PK not an archive"):
        (tmp_path / "batch-0.npz").write_bytes(content)
        with pytest.raises(
            SourceError, match=r"batch-0.npz: is no file of plain arrays \(it is no .npz archive\); save "
        ):
            pack_samples(plain, tmp_path, **LIMITS)
    np.savez(tmp_path / "batch-0.npz", seeds=np.arange(9), nodes=np.arange(9))
    saved = bytearray((tmp_path / "batch-0.npz").read_bytes())
    saved[saved.index(bytes(np.arange(9))) + 8] ^= 1
    (tmp_path / "batch-0.npz").write_bytes(saved)
    with pytest.raises(SourceError, match=r"batch-0.npz: is no file of plain arrays \(it is damaged\); save "):
        pack_samples(plain, tmp_path, **LIMITS)
    (tmp_path / "batch-0.npz").unlink()
    (tmp_path / "batch-0.npz").mkdir()
    with pytest.raises(SourceError, match=r"batch-0.npz: cannot be read: Is a directory"):
        pack_samples(plain, tmp_path, **LIMITS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"empty: has no .npz files"):
        pack_samples(plain, tmp_path / "empty", **LIMITS)
    with pytest.raises(SourceError, match=r"gone: is not a folder"):
        pack_samples(plain, tmp_path / "gone", **LIMITS)
    for name, count in (("epoch-0", 1), ("epoch-1", 2)):
        for number in range(count):
            save(tmp_path / "uneven" / name, number, {})
    with pytest.raises(SourceError, match=r"epoch-1: has 2 batches, .*epoch-0 has 1"):
        pack_samples(plain, tmp_path / "uneven", **LIMITS)


def test_a_layout_of_other_batches_or_of_another_dataset_is_refused(
    plain: Dataset, graph: Data, tmp_path: Path
) -> None:
    save(tmp_path / "samples", 0, a_batch(graph))
    packed = pack_samples(plain, tmp_path / "samples", scratch=tmp_path, **LIMITS)
    # Also where rows have another size: the layout is whole, and removing it would help nobody.
    for name, x in (("other", graph.x + 1), ("narrow", graph.x[:, :3])):
        other = diskhop.from_pyg(Data(x=x, edge_index=graph.edge_index), tmp_path / name)
        with pytest.raises(ConfigError, match=rf"was packed for another dataset than \S*{name}, .*: diskhop pack "):
            PackedLoader(other, packed.layout.path, **LIMITS)
    trained = diskhop.pack(plain, fanout=(2, 2), epochs=1, scratch=str(tmp_path / "run"), memory="200MB", threads=1)
    with pytest.raises(FormatError, match="has batches that diskhop sampled"):
        PackedLoader(plain, trained.layout.path, **LIMITS)


def test_the_command_packs_samples_and_refuses_options_without_effect(
    plain: Dataset, graph: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "samples", 0, a_batch(graph))
    words = ["pack", str(plain.path), "--samples", str(tmp_path / "samples")]
    assert run([*words, "--fanout", "3"]) == 2
    assert "--fanout has no effect with --samples" in capsys.readouterr().err
    limits = ["--memory", "200MB", "--disk", "100MB", "--scratch", str(tmp_path), "--threads", "1"]
    assert run([*words, *limits, "--json"]) == 0
    folder = json.loads(capsys.readouterr().out)["path"]
    with PackedLoader(plain, folder, **LIMITS) as loader:
        (batch,) = loader
    np.testing.assert_array_equal(batch.n_id, a_batch(graph)["nodes"])
