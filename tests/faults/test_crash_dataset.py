"""A crash before any write, fsync or rename of an import leaves the old state or the new one, whatever the disk forgot.

Two worlds are tried after each crash: one that lost every name whose directory was not synced, and one that kept all
names and lengths but of the content only what was synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import CrashError, Engine, FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.dataset.sort.plan import SortLimits
from diskhop.dataset.verify import verify
from diskhop.errors import DestinationError, DiskhopError, FormatError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.io.atomic import sync_directory, write_file
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import EVERY, Crashes
from tests.graphs import folder_bytes, make_dataset, memory_folder, threads_engine

LOST: list[Lost] = ["names", "data"]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where fsync is quick: the tests simulate what a disk forgets."""
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    nodes = np.arange(9)
    arrays = {"edge_index": np.stack([nodes, nodes[::-1]]), "x": np.eye(9, 4), "y": nodes % 2, "train_idx": nodes[:3]}
    arrays |= {"node.time": nodes}
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return folder


def crash_at(root: Path, source: Path, nth: int, survivors: dict[Lost, Path]) -> int:
    """Import source to root/graph and crash before change nth (0: never); returns the number of changes."""
    root.mkdir()
    with CrashInjector(root, nth) as injector:
        engine = Engine("threads", 1, injector.native)
        if nth == 0:
            import_graph(source, root / "graph", engine=engine, injector=injector)
        else:
            with pytest.raises(CrashError):
                import_graph(source, root / "graph", engine=engine, injector=injector)
        for lost, target in survivors.items():
            target.mkdir()
            injector.write_survivors(target, lost)
        return injector.num_changes


def test_every_crash_leaves_nothing_or_all_and_the_next_import_succeeds(tmp_path: Path, source: Path) -> None:
    survivors = {lost: tmp_path / f"after-{lost}" for lost in LOST}
    num_changes = crash_at(tmp_path / "whole", source, 0, survivors)
    expected = folder_bytes(tmp_path / "whole" / "graph")
    for folder in survivors.values():
        assert folder_bytes(folder / "graph") == expected, "a finished import survives whole"
    # Six files of content with a write and a fsync each, the manifest's three, directories, and two renames.
    assert num_changes > 20

    num_finished = 0
    for nth in range(1, num_changes + 1):
        survivors = {lost: tmp_path / f"{nth}-{lost}" for lost in LOST}
        crash_at(tmp_path / f"{nth}", source, nth, survivors)
        for folder in survivors.values():
            graph = folder / "graph"
            if graph.exists():
                open_dataset(graph)
                num_finished += 1
            else:
                with pytest.raises(FormatError, match="does not exist"):
                    open_dataset(graph)
                import_graph(source, graph, engine=threads_engine())
            assert verify(graph) == []
            assert folder_bytes(graph) == expected
            assert [path.name for path in folder.iterdir()] == ["graph"]
    # Only the last change, the fsync of the parent, comes after the rename: names may survive without it.
    assert num_finished == 1


@pytest.mark.fast(1)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lost", LOST)
def test_after_any_crash_an_import_in_hot_order_ends_the_same(
    tmp_path: Path, source: Path, lost: Lost, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows take the way over the disk; after the repetition nothing but the dataset is left."""
    monkeypatch.setattr(RowMover, "_fits", lambda _mover, _table_bytes: False)
    hot = ImportOptions(order="hot", undirected=True)

    def run(graph: Path, injector: CrashInjector | None = None) -> None:
        engine = threads_engine() if injector is None else Engine("threads", 1, injector.native)
        import_graph(source, graph, engine=engine, injector=injector, options=hot)

    kept = 0
    for graph in Crashes(tmp_path, run).each(every, lost):
        kept += (graph.parent / ".graph.work" / "features" / "rows").exists()
        if not graph.exists():
            run(graph)
    assert kept * every > 5


@pytest.mark.fast(1)
@EVERY
@pytest.mark.parametrize("lost", LOST)
def test_after_any_crash_an_import_by_way_of_the_disk_ends_the_same(tmp_path: Path, lost: Lost, every: int) -> None:
    """Nodes that only edges tell are counted while edges go to the disk: what has come there counts again."""
    sort = SortLimits(in_memory_bytes=0, spill_bytes=1 << 13, bucket_keys=1 << 9, least_block_bytes=4096)
    limits = ImportLimits(sort=sort)
    source = tmp_path / "source"
    source.mkdir()
    generator = np.random.default_rng(0)
    np.save(source / "edge_index.npy", generator.integers(0, 200, (2, 1500)))
    np.save(source / "edge_weight.npy", generator.random(1500, np.float32))

    def run(graph: Path, injector: CrashInjector | None) -> None:
        engine = Engine("threads", 1, None if injector is None else injector.native)
        options = ImportOptions(undirected=True, duplicates="drop")
        import_graph(source, graph, engine=engine, threads=1, injector=injector, options=options, limits=limits)

    num_resumed = 0
    for graph in Crashes(tmp_path, run).each(every, lost):
        work = graph.with_name(".graph.work") / "sort-edge"
        num_resumed += any(work.glob("spill-*"))
        if not graph.exists():
            run(graph, None)
    assert num_resumed > 0, "some went on from spills"


@pytest.mark.fast(2)
@EVERY
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("memory_bytes", [22_000_000, 1 << 30], ids=["disk", "memory"])
def test_after_any_crash_edges_have_their_attributes(tmp_path: Path, lost: Lost, every: int, memory_bytes: int) -> None:
    """Values of edges are gathered through a copy on disk where they do not fit in memory."""
    source = tmp_path / "source"
    source.mkdir()
    generator = np.random.default_rng(0)
    np.save(source / "edge_index.npy", generator.integers(0, 200, (2, 1500)))
    np.save(source / "edge_attr.npy", generator.random((1500, 650)))
    np.save(source / "edge.kind.npy", np.arange(1500))

    def run(graph: Path, injector: CrashInjector | None) -> None:
        engine = Engine("threads", 1, None if injector is None else injector.native)
        import_graph(source, graph, engine=engine, threads=1, injector=injector, budget=Budget(memory_bytes))

    for graph in Crashes(tmp_path, run).each(every, lost):
        if not graph.exists():
            run(graph, None)
        edges = open_dataset(graph).edges["edge"]
        np.testing.assert_array_equal(edges.attribute("kind"), edges.edge_ids())


@pytest.mark.parametrize("lost", LOST)
def test_every_crash_of_a_replaced_file_leaves_the_old_or_the_new(tmp_path: Path, lost: Lost) -> None:
    seen = set()
    for nth in range(1, 5):
        root = tmp_path / f"{nth}"
        root.mkdir()
        write_file(root / "state", b"old")
        with CrashInjector(root, nth) as injector:
            with pytest.raises(CrashError):
                write_file(root / "state", b"the new", injector)
            (tmp_path / f"after-{nth}").mkdir()
            injector.write_survivors(tmp_path / f"after-{nth}", lost)
        seen.add((tmp_path / f"after-{nth}" / "state").read_bytes())
    assert seen == ({b"old"} if lost == "names" else {b"old", b"the new"})


def test_the_injector_notices_a_missing_fsync(tmp_path: Path) -> None:
    """The simulation itself can fail: content, or a name, that was never synced does not survive."""
    root = tmp_path / "root"
    root.mkdir()
    with CrashInjector(root, 0) as injector:
        (root / "never-synced").write_bytes(b"content")
        sync_directory(root, injector)
        (root / "late").write_bytes(b"content")
        for lost in LOST:
            (tmp_path / lost).mkdir()
            injector.write_survivors(tmp_path / lost, lost)
    assert folder_bytes(tmp_path / "names") == {"never-synced": b""}
    assert folder_bytes(tmp_path / "data") == {"never-synced": bytes(7), "late": bytes(7)}


@pytest.mark.parametrize("kind", ["no_space", "io_error"])
@pytest.mark.parametrize("counted", ["writes", "fsyncs", "renames"])
def test_every_change_that_fails_is_one_line_and_leaves_nothing(
    tmp_path: Path, source: Path, kind: str, counted: str
) -> None:
    counting = FaultInjector([])
    import_graph(source, tmp_path / "whole", engine=threads_engine(counting), injector=counting)
    expected = folder_bytes(tmp_path / "whole")
    (tmp_path / "root").mkdir()
    graph = tmp_path / "root" / "graph"
    for nth in range(1, counting.count(counted) + 1):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        with pytest.raises(DiskhopError) as caught:
            import_graph(source, graph, engine=threads_engine(injector), injector=injector)
        assert "\n" not in str(caught.value)
        assert str(tmp_path / "root") in str(caught.value)
        if kind == "no_space":
            assert isinstance(caught.value, DestinationError)
            assert caught.value.exit_code == 2
        assert list((tmp_path / "root").iterdir()) == []
    import_graph(source, graph, engine=threads_engine())
    assert folder_bytes(graph) == expected


def test_curable_faults_change_nothing(tmp_path: Path, source: Path) -> None:
    import_graph(source, tmp_path / "whole", engine=threads_engine())
    rules = [
        FaultRule("short_transfer", "writes", 2, once=False),
        FaultRule("interrupted", "writes", 1),
        FaultRule("again", "writes", 5),
    ]
    import_graph(source, tmp_path / "faulty", engine=threads_engine(FaultInjector(rules, seed=3)))
    assert folder_bytes(tmp_path / "faulty") == folder_bytes(tmp_path / "whole")


def test_a_failed_write_of_many_in_flight_leaves_nothing(tmp_path: Path) -> None:
    """Files of several transfers: the one that fails is not the last that was queued."""
    for nth in (1, 2, 3, 5):
        injector = FaultInjector([FaultRule("no_space", "writes", nth, once=False)])
        with pytest.raises(DestinationError, match="space"):
            make_dataset(
                tmp_path / "graph", num_nodes=40_000, dim=100, engine=threads_engine(injector), injector=injector
            )
        assert list(tmp_path.iterdir()) == []
