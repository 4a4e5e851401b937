"""Updates: what is refused, what readers keep, what is shared, and what the dataset says of itself afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import diskhop
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DestinationError, DiskhopError, SourceError
from diskhop.generating import ExpandConfig, expand_graph
from diskhop.importing.options import ImportOptions
from diskhop.updating import run
from tests.graphs import folder_bytes, make_dataset, threads_engine
from tests.updates import Change, Tables, apply, compact, draw_edges, draw_nodes, draw_tables, import_tables, update

OPTIONS = ImportOptions(weight="amount")
IDS = np.array([7, 3, 90, 12, 55, 41, 6, 28])


@pytest.fixture(scope="module")
def tables() -> Tables:
    return draw_tables(np.random.default_rng(0), IDS, 40)


@pytest.fixture
def graph(tmp_path: Path, tables: Tables) -> Path:
    return import_tables(tables.write(tmp_path / "source"), tmp_path / "graph", OPTIONS).path


def ends_of(dataset: Dataset) -> set[tuple[int, int]]:
    """Ids at the ends of all edges."""
    return {(int(source), int(target)) for target in IDS for source in dataset.neighbors(int(target))}


@pytest.fixture
def change(tables: Tables) -> Change:
    generator = np.random.default_rng(1)
    pair = (int(tables.edges["source"][0]), int(tables.edges["target"][0]))
    new = np.array([4, 100])
    return Change(draw_edges(generator, np.append(IDS, new), 5), [pair], draw_nodes(generator, new))


def with_column(change: Change, part: str, name: str, values: Any) -> None:
    getattr(change, part)[name] = values


# What breaks a rule, and words of the error.
FAULTS: dict[str, tuple[Callable[[Change], object], str]] = {
    "unknown source": (lambda c: with_column(c, "added", "source", np.array([7, 7, 999, 7, 7])), "row 3.*999"),
    "unknown removed": (lambda c: c.removed.append((999, 7)), "removed-edges.parquet, row 2: the source.*999"),
    "no such edge": (lambda c: c.removed.append((100, 100)), "row 2: the destination|row 2: the source"),
    "removed twice": (lambda c: c.removed.append((3, 3)), "row 2: the graph has no edge from '3' to '3'"),
    "wrong width": (lambda c: c.nodes.pop("f1"), "has 2 feature columns, and .* have 3"),
    "no features": (lambda c: [c.nodes.pop(f"f{i}") for i in range(3)], "new nodes need features, 3 columns"),
    "text features": (lambda c: with_column(c, "nodes", "f1", np.array(["a", "b"])), "has 2 feature columns"),
    "features NaN": (lambda c: with_column(c, "nodes", "f1", np.array([1, np.nan])), "row 2.*f1.*node '100'.*finite"),
    "label fraction": (lambda c: with_column(c, "nodes", "label", np.array([1, 1.5])), "label.*whole number.*1.5"),
    "label far": (lambda c: with_column(c, "nodes", "label", np.array([1, 99])), "label 99 is out of range"),
    "same id": (lambda c: with_column(c, "nodes", "id", np.array([4, 4])), "same id '4'"),
    "split word": (lambda c: with_column(c, "nodes", "split", np.array(["train", "later"])), "must be train.*later"),
    "weight NaN": (lambda c: with_column(c, "added", "amount", np.array([1, 2, np.nan, 4, 5])), "row 3.*finite"),
    "text ids": (
        lambda c: with_column(c, "added", "source", np.array(list("abcde"))),
        "has names, and .* have numbers",
    ),
}


OFTEN = ("unknown source", "removed twice")


@pytest.mark.parametrize(
    "fault", [each if each in OFTEN else pytest.param(each, marks=pytest.mark.slow) for each in FAULTS]
)
def test_a_bad_delta_is_one_line_and_changes_nothing(
    tmp_path: Path, graph: Path, change: Change, tables: Tables, fault: str
) -> None:
    spoil, words = FAULTS[fault]
    if fault == "removed twice":
        pairs = zip(tables.edges["source"].tolist(), tables.edges["target"].tolist(), strict=True)
        assert (3, 3) not in set(pairs), "the graph of the test must not have this edge"
    spoil(change)
    before = folder_bytes(graph)
    with pytest.raises(SourceError, match=words) as caught:
        update(graph, change.write(tmp_path / "delta"), OPTIONS)
    assert "\n" not in str(caught.value)
    assert folder_bytes(graph) == before


def test_what_cannot_be_updated_is_refused(tmp_path: Path, graph: Path, change: Change) -> None:
    delta = change.write(tmp_path / "delta")
    typed = diskhop.generate("typed", tmp_path / "typed").path
    with pytest.raises(ConfigError, match=r"several types.*import the whole graph again"):
        update(typed, delta)
    with pytest.raises(SourceError, match="does not exist"):
        update(graph, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"edges\.parquet, removed-edges\.parquet or nodes\.parquet"):
        update(graph, tmp_path / "empty")
    (delta / "nodes.parquet").rename(delta / "removed-nodes.parquet")
    with pytest.raises(SourceError, match="nodes cannot be removed"):
        update(graph, delta)
    with pytest.raises(DiskhopError, match="import"):
        update(tmp_path / "nowhere", delta)


def test_edges_are_stored_as_the_import_stored_them(tmp_path: Path, tables: Tables) -> None:
    options = ImportOptions(undirected=True, self_loops="drop", duplicates="drop", weight="amount")
    graph = import_tables(tables.write(tmp_path / "source"), tmp_path / "graph", options).path
    pairs = zip(tables.edges["source"].tolist(), tables.edges["target"].tolist(), strict=True)
    one, other = next((source, target) for source, target in pairs if source != target)
    edges = {"source": [one, one, other], "target": [one, other, one], "amount": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    for given, flag in (({"undirected": False}, "--directed"), ({"duplicates": "keep"}, "--duplicates keep")):
        with pytest.raises(ConfigError, match=f"and updates keep to it; leave out {flag},"):
            diskhop.update(graph, tmp_path / "edges.parquet", weight="amount", **given)
    pq.write_table(pa.table({"source": [one], "target": [other]}), tmp_path / "removed-edges.parquet")
    (tmp_path / "edges.parquet").rename(tmp_path / "more.parquet")
    removed = diskhop.update(graph, tmp_path / "removed-edges.parquet")
    assert ends_of(removed) & {(one, other), (other, one)} == set()
    added = diskhop.update(graph, tmp_path / "more.parquet", weight="amount")
    assert ends_of(added) - ends_of(removed) == {(one, other), (other, one)}
    assert added.num_edges == removed.num_edges + 2


@pytest.mark.slow
def test_a_source_with_both_directions_asks_how_edges_are_added(tmp_path: Path, tables: Tables, change: Change) -> None:
    """An answer has an effect on edges alone, and a delta without rows changes nothing."""
    both = {key: np.concatenate([values, values]) for key, values in tables.edges.items()}
    both["source"], both["target"] = (
        np.concatenate([tables.edges[one], tables.edges[other]])
        for one, other in (("source", "target"), ("target", "source"))
    )
    options = ImportOptions(weight="amount")
    source = replace(tables, edges=both).write(tmp_path / "source")
    graph = import_tables(source, tmp_path / "graph", options).path
    delta = change.write(tmp_path / "delta")
    with pytest.raises(ConfigError, match="--undirected"):
        diskhop.update(graph, delta, weight="amount")
    pq.write_table(pa.table({key: values[:0] for key, values in both.items()}), tmp_path / "no-rows.parquet")
    before = folder_bytes(graph)
    assert diskhop.update(graph, tmp_path / "no-rows.parquet", weight="amount").manifest.generation == 1
    assert folder_bytes(graph) == before
    assert update(graph, delta, replace(options, undirected=True)).num_edges > 0


def test_tables_of_nothing_but_a_header_change_nothing(tmp_path: Path, graph: Path) -> None:
    """Tables as a job writes them in a night without changes."""
    (tmp_path / "delta").mkdir()
    for name in ("edges", "removed-edges"):
        (tmp_path / "delta" / f"{name}.csv").write_text("source,target,amount\n")
    (tmp_path / "delta" / "nodes.csv").write_text("id,x0,x1\n")
    before = folder_bytes(graph)
    assert diskhop.update(graph, tmp_path / "delta", weight="amount").manifest.generation == 1
    assert folder_bytes(graph) == before
    # A row without values is none that was left out.
    (tmp_path / "delta" / "edges.csv").write_text("source,target,amount\n,,\n")
    with pytest.raises(SourceError, match=r"edges\.csv: .*'amount' is empty"):
        diskhop.update(graph, tmp_path / "delta", weight="amount")


def test_a_disk_or_a_memory_that_is_too_small_is_refused_before(
    tmp_path: Path, graph: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta, before = change.write(tmp_path / "delta"), folder_bytes(graph)

    def full(path: Path, num_bytes: int, what: str) -> None:
        raise DestinationError(f"{path}: {what} takes {num_bytes}")

    with pytest.raises(BudgetError, match="memory"):
        update(graph, delta, OPTIONS, budget=diskhop.budget.Budget(1_000_000))
    monkeypatch.setattr(run, "require_free_space", full)
    with pytest.raises(DestinationError, match="the update"):
        update(graph, delta, OPTIONS)
    assert folder_bytes(graph) == before


def test_readers_keep_their_generation(tmp_path: Path, graph: Path, change: Change, tables: Tables) -> None:
    """Whatever a reader opens later, it is of the generation that it opened: until the update after the next."""
    old = open_dataset(graph)
    loader = diskhop.NeighborLoader(old, [2, 2], input_nodes="train", batch_size=2, threads=1)
    expected = [(batch.n_id.tolist(), batch.x.tolist(), batch.y.tolist()) for batch in loader]
    first = answers(old)
    loader_before = diskhop.NeighborLoader(old, [2, 2], input_nodes="train", batch_size=2, threads=1)
    batches = iter(loader_before)
    begun = [next(batches)]
    update(graph, change.write(tmp_path / "delta"), OPTIONS)
    begun += batches
    assert [(batch.n_id.tolist(), batch.x.tolist(), batch.y.tolist()) for batch in begun] == expected
    again = diskhop.NeighborLoader(old, [2, 2], input_nodes="train", batch_size=2, threads=1)
    assert [(batch.n_id.tolist(), batch.x.tolist(), batch.y.tolist()) for batch in again] == expected
    assert answers(old) == first
    assert answers(open_dataset(graph)) != first
    assert open_dataset(graph).num_nodes == len(IDS) + 2


def answers(dataset: Dataset) -> list[Any]:
    features = dataset.features
    assert features is not None
    ids = dataset.node_ids()
    return [ids.tolist(), features[ids].tolist(), dataset.neighbors(int(ids[0])).tolist(), dataset.degrees.tolist()]


def test_new_rows_are_appended_and_old_ones_shared(tmp_path: Path, graph: Path, change: Change) -> None:
    old = open_dataset(graph)
    updated = update(graph, change.write(tmp_path / "delta"), OPTIONS)
    tables = [dataset.content / "nodes/node/features.bin" for dataset in (old, updated)]
    assert tables[0].samefile(tables[1]), "the rows are not copied"
    with pytest.raises(AssertionError):  # the claim above can fail
        assert (old.content / "checksums.bin").samefile(updated.content / "checksums.bin")


def test_a_table_that_another_dataset_has_is_copied(tmp_path: Path, graph: Path, change: Change) -> None:
    """Hard links of other datasets would otherwise see two updates that append to one file."""
    table = graph / "nodes/node/features.bin"
    other = tmp_path / "other.bin"
    other.hardlink_to(table)
    before = other.read_bytes()
    updated = update(graph, change.write(tmp_path / "delta"), OPTIONS)
    assert other.read_bytes() == before
    assert not other.samefile(updated.content / "nodes/node/features.bin")


def test_generations_come_and_go(tmp_path: Path, graph: Path, change: Change, tables: Tables) -> None:
    source = folder_bytes(tmp_path / "source")
    delta = change.write(tmp_path / "delta")
    only_edges = Change(change.added, [], {"id": IDS[:0]}).write(tmp_path / "more")
    hashes = {open_dataset(graph).hash}
    for number, each in ((2, delta), (3, only_edges), (4, only_edges)):
        updated = update(graph, each, OPTIONS)
        assert diskhop.inspect(graph).facts["generation"] == updated.manifest.generation == number
        assert verify(graph) == []
        hashes.add(updated.hash)
    assert len(hashes) == 4, "derived files of one generation are not used for another"
    assert sorted(path.name for path in graph.iterdir()) == ["generation-3", "generation-4", "manifest.json"]
    compacted = compact(graph)
    assert "generation" not in diskhop.inspect(compacted).facts
    assert {path.name for path in graph.iterdir()} == {"checksums.bin", "edges", "manifest.json", "nodes"}
    assert folder_bytes(tmp_path / "source") == source
    assert compact(graph).hash == compacted.hash, "a dataset that is compact already stays"
    no_nodes = {key: values[:0] for key, values in tables.nodes.items()}
    more = Change(change.added, [], no_nodes)
    whole = apply(apply(apply(tables, change), more), more)
    assert import_tables(whole.write(tmp_path / "whole"), tmp_path / "expected", OPTIONS).hash == compacted.hash


@pytest.mark.slow
def test_derived_files_of_an_old_generation_are_not_used(tmp_path: Path, graph: Path, change: Change) -> None:
    diskhop.propagate(graph, hops=1, progress=lambda *_: None)
    old = {path.name for path in (graph / "derived").iterdir()}
    update(graph, change.write(tmp_path / "delta"), OPTIONS)
    diskhop.propagate(graph, hops=1, progress=lambda *_: None)
    assert len({path.name for path in (graph / "derived").iterdir()} - old) == 1
    compact(graph)
    assert not (graph / "derived").exists()


def test_damage_of_the_old_files_is_found(tmp_path: Path, change: Change) -> None:
    """A block that is merged into new lists is not summed up as if it were right."""
    graph = make_dataset(tmp_path / "graph", num_nodes=20, num_edges=200).path
    path = graph / "edges/edge/indices.bin"
    opened = open_dataset(graph)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    from diskhop.updating.splice import stored_values

    with pytest.raises(DiskhopError, match="does not match its checksum"):
        list(stored_values(path, opened.manifest.files["edges/edge/indices.bin"], "<u4"))


def test_the_command_says_what_changed(
    tmp_path: Path, graph: Path, change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    from diskhop.cli import run as run_command

    delta = change.write(tmp_path / "delta")
    assert run_command(["update", str(graph), str(delta), "--weight", "amount", "--directed", "--memory", "300MB"]) == 0
    shown = capsys.readouterr()
    assert "nodes added" in shown.out
    assert "generation" in shown.out
    assert "to apply" in shown.err
    assert run_command(["update", str(graph), str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run_command(["compact", str(graph), "--json"]) == 0


def test_a_table_given_alone_has_what_its_name_says(tmp_path: Path, graph: Path, tables: Tables) -> None:
    pair = (int(tables.edges["source"][0]), int(tables.edges["target"][0]))
    generator = np.random.default_rng(2)
    change = Change(draw_edges(generator, IDS, 0), [pair], draw_nodes(generator, np.array([4])))
    delta = change.write(tmp_path / "delta")
    before = open_dataset(graph).num_edges
    assert update(graph, delta / "removed-edges.parquet", OPTIONS).num_edges < before
    assert update(graph, delta / "nodes.parquet", ImportOptions()).num_nodes == len(IDS) + 1


def test_labels_follow_the_names_of_classes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    (source / "nodes.csv").write_text("id,label\n0,cat\n1,dog\n2,cat\n")
    graph = import_tables(source, tmp_path / "graph", ImportOptions(label=("label",))).path
    delta = tmp_path / "nodes.csv"
    delta.write_text("id,label\n0,dog\n")
    labels = update(graph, delta, ImportOptions()).labels
    assert labels is not None
    assert labels.tolist() == [1, 1, 0]
    delta.write_text("id,label\n0,3\n")
    with pytest.raises(SourceError, match="label 3 has no name, and the 2 classes of the graph have"):
        update(graph, delta, ImportOptions())


def test_options_of_nodes_need_a_table_of_nodes(tmp_path: Path, graph: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target,amount\n7,3,1\n")
    with pytest.raises(SourceError, match="has no table of nodes, which --features is for; remove it"):
        diskhop.update(graph, edges, features=("f0",), undirected=False)


def test_an_updated_graph_is_expanded_as_it_is_now(tmp_path: Path, graph: Path, change: Change) -> None:
    updated = update(graph, change.write(tmp_path / "delta"), OPTIONS)
    assert updated.manifest.generation == 2
    expanded = expand_graph(updated, tmp_path / "expanded", ExpandConfig(factor=2), engine=threads_engine())
    ids, copies = updated.split_rows("train"), expanded.split_rows("train")
    assert ids is not None
    assert copies is not None
    np.testing.assert_array_equal(copies, np.concatenate([ids, ids + updated.num_nodes]))
