"""The estimate of an import before it starts grows with the source, and refuses a disk that is too small."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget, format_bytes
from diskhop.cli import run
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import DestinationError, SourceError
from diskhop.importing.estimate import Estimate, Load, estimate_import, format_seconds
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.graphs import folder_bytes, threads_engine

FIELDS = [field.name for field in fields(Load)]
COUNTS = st.integers(0, 10**12)
LOADS = st.builds(Load, **dict.fromkeys(FIELDS, COUNTS))
OPTIONS = st.sampled_from(
    [
        ImportOptions(),
        ImportOptions(undirected=True),
        ImportOptions(order="hot"),
        ImportOptions(dtype="int8", duplicates="drop"),
        ImportOptions(random_features=7, order="hot", undirected=True),
    ]
)


def estimated(load: Load, options: ImportOptions | None = None, **given: Any) -> Estimate:
    machine: dict[str, Any] = {"memory_bytes": 1 << 30, "threads": 2, "disk_model": assumed_disk_model()}
    return estimate_import(
        load,
        options or ImportOptions(),
        least_memory={"parsing": 1 << 20},
        limits=ImportLimits(),
        **{**machine, **given},
    )


@given(load=LOADS, options=OPTIONS, name=st.sampled_from(FIELDS), more=COUNTS)
def test_more_to_bring_in_never_takes_less(load: Load, options: ImportOptions, name: str, more: int) -> None:
    before, after = estimated(load, options), estimated(load + Load(**{name: more}), options)
    assert after.seconds >= before.seconds
    assert after.result_bytes >= before.result_bytes
    assert after.work_bytes >= before.work_bytes


@given(load=LOADS, options=OPTIONS, memory_bytes=COUNTS, more=COUNTS, threads=st.integers(1, 64))
def test_more_memory_and_more_threads_never_take_longer(
    load: Load, options: ImportOptions, memory_bytes: int, more: int, threads: int
) -> None:
    little = estimated(load, options, memory_bytes=memory_bytes, threads=threads)
    much = estimated(load, options, memory_bytes=memory_bytes + more, threads=threads)
    assert much.seconds <= little.seconds
    assert much.work_bytes <= little.work_bytes
    assert much.result_bytes == little.result_bytes <= much.work_bytes
    assert estimated(load, options, memory_bytes=memory_bytes, threads=threads + 1).seconds <= little.seconds


@given(load=LOADS)
def test_a_slower_disk_takes_longer(load: Load) -> None:
    device = assumed_disk_model()
    slow = replace(device, sequential_read_bytes_per_second=1e6, sequential_write_bytes_per_second=1e6)
    assert estimated(load, disk_model=slow).seconds >= estimated(load).seconds


def test_what_does_not_fit_in_memory_goes_by_way_of_the_disk() -> None:
    load = Load(num_edges=10_000_000, num_nodes=1000, feature_values=10**9, feature_bytes=4 * 10**9)
    hot = ImportOptions(order="hot")
    fits, spills = estimated(load, hot, memory_bytes=8 << 30), estimated(load, hot, memory_bytes=50 << 20)
    assert fits.work_bytes == fits.result_bytes
    spilled_bytes = 16 * load.num_edges  # with the edge's number
    assert spills.work_bytes == spills.result_bytes + spilled_bytes + load.feature_bytes
    assert estimated(load).work_bytes == estimated(load).result_bytes
    only_edges = Load(num_edges=10_000_000)
    for options, list_bytes, key_bytes in ((ImportOptions(), 8, 16), (ImportOptions(edge_ids="drop"), 4, 8)):
        spills = estimated(only_edges, options, memory_bytes=50 << 20)
        assert spills.result_bytes == list_bytes * 10_000_000
        assert spills.work_bytes == (list_bytes + key_bytes) * 10_000_000


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.2, "1 s"), (40.2, "40 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_times_are_told_in_the_unit_that_says_them(seconds: float, told: str) -> None:
    assert format_seconds(seconds) == told


def test_an_estimate_is_one_line_with_its_figures() -> None:
    estimate = Estimate(
        source_bytes=3_200_000_000,
        result_bytes=2_100_000_000,
        work_bytes=3_400_000_000,
        memory_bytes=512_000_000,
        least_memory_bytes=70_000_000,
        seconds=40,
        disk="measured",
    )
    told = "3.2 GB to import: about 2.1 GB on disk (3.4 GB at peak), 512 MB memory, 40 s"
    assert str(estimate) == told
    assert str(replace(estimate, disk="assumed")) == f"{told} (disk speed assumed)"


def numpy_source(folder: Path, save: Any = np.savez) -> Path:
    generator = np.random.default_rng(0)
    folder.mkdir()
    save(
        folder / "data.npz",
        edge_index=generator.integers(0, 1000, (2, 40_000)),
        x=generator.normal(size=(1000, 50)).astype(np.float32),
        y=generator.integers(0, 4, 1000),
        edge_weight=generator.random(40_000, np.float32),
    )
    return folder


def pairs() -> list[list[int]]:
    ids: list[list[int]] = np.random.default_rng(0).integers(0, 5000, (40_000, 2)).tolist()
    return ids


def text_source(folder: Path, name: str = "{}", packed: bool = False) -> Path:
    text = "".join(f"{name.format(source)}\t{name.format(destination)}\n" for source, destination in pairs()).encode()
    path = folder / ("edges.tsv.gz" if packed else "edges.tsv")
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def table_source(folder: Path) -> Path:
    folder.mkdir()
    rows = "".join(f"{7 * source},{7 * destination}\n" for source, destination in pairs())
    (folder / "edges.csv").write_text(f"source,destination\n{rows}")
    values = np.random.default_rng(0).random((5000, 12)).round(4).tolist()
    nodes = "".join(f"{7 * node},{','.join(map(str, row))},{node % 3}\n" for node, row in enumerate(values))
    (folder / "nodes.csv").write_text(f"id,{','.join(f'f{column}' for column in range(12))},label\n{nodes}")
    return folder


def ogb_source(folder: Path) -> Path:
    def write(name: str, lines: Any) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))

    values = np.random.default_rng(0).random((5000, 12)).round(4).tolist()
    write("raw/edge.csv.gz", (f"{source},{destination}" for source, destination in pairs()))
    write("raw/num-node-list.csv.gz", [5000])
    write("raw/num-edge-list.csv.gz", [40_000])
    write("raw/node-feat.csv.gz", (",".join(map(str, row)) for row in values))
    write("raw/node-label.csv.gz", (node % 3 for node in range(5000)))
    write("split/time/train.csv.gz", range(100))
    return folder


def triple_source(folder: Path) -> Path:
    folder.mkdir()
    lines = [f"e{source}\tr{source % 7}\te{destination}\n" for source, destination in pairs()]
    for part, wanted in {"train": lines, "valid": lines[:100], "test": lines[100:200]}.items():
        (folder / f"{part}.txt").write_text("".join(wanted))
    return folder


SOURCES: dict[str, Any] = {
    "numpy": lambda path: numpy_source(path / "numpy"),
    "compressed": lambda path: numpy_source(path / "packed", np.savez_compressed),
    "numbers": text_source,
    "names": lambda path: text_source(path, "name-{}"),
    "gzip": lambda path: text_source(path, packed=True),
    "tables": lambda path: table_source(path / "tables"),
    "ogb": lambda path: ogb_source(path / "ogbn_small"),
    "triples": lambda path: triple_source(path / "kg"),
}


@pytest.mark.fast(6)
@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {}) for kind in SOURCES]
    + [(kind, {"order": "hot", "undirected": True}) for kind in SOURCES if kind != "triples"],
)
def test_the_result_is_about_as_large_as_told(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    source = SOURCES[kind](tmp_path)
    told: list[Estimate] = []
    dataset = import_graph(
        source,
        tmp_path / "graph",
        options=ImportOptions(**options),
        engine=threads_engine(),
        budget=Budget(1 << 29),
        threads=2,
        on_estimate=told.append,
    )
    (estimate,) = told
    written = sum(map(len, folder_bytes(dataset.path).values()))
    assert estimate.result_bytes == pytest.approx(written, rel=0.3)
    on_disk = sum(path.stat().st_size for path in source.rglob("*")) if source.is_dir() else source.stat().st_size
    assert 0.7 * on_disk <= estimate.source_bytes <= on_disk
    assert estimate.memory_bytes == 1 << 29


def test_the_command_line_tells_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = text_source(tmp_path)
    assert run(["import", str(source), str(tmp_path / "graph"), "--memory", "200MB", "--json"]) == 0
    captured = capsys.readouterr()
    estimate = Estimate(**json.loads(captured.out)["import"]["estimate"])
    assert captured.err.endswith(f"\n{source}, {estimate}\n")
    assert (estimate.source_bytes, estimate.memory_bytes) == (source.stat().st_size, 200_000_000)


def test_a_disk_that_is_too_small_is_refused_with_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = text_source(tmp_path)
    told: list[Estimate] = []
    import_graph(source, tmp_path / "graph", engine=threads_engine(), budget=Budget(1 << 29), on_estimate=told.append)
    (estimate,) = told
    free_bytes = estimate.work_bytes - 1
    assert free_bytes > estimate.result_bytes
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free_bytes})())
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(DestinationError) as caught:
        import_graph(
            source, tmp_path / "other", engine=threads_engine(), budget=Budget(1 << 29), on_estimate=told.append
        )
    result, work = format_bytes(estimate.result_bytes), format_bytes(estimate.work_bytes)
    assert f"the import, with a result of {result}, takes {work}, only {work} are free" in str(caught.value)
    assert told == [estimate], "what is refused is not told of as if it began"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_an_earlier_run_left_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = text_source(tmp_path)
    whole = source.read_bytes()
    source.write_bytes(whole + b"1\tx\n")
    told: list[Estimate] = []

    def bring() -> None:
        import_graph(
            source,
            tmp_path / "graph",
            engine=threads_engine(),
            budget=Budget(1 << 29),
            threads=1,
            limits=ImportLimits(pairs_slice_bytes=1 << 16),
            on_estimate=told.append,
        )

    with pytest.raises(SourceError, match="'x'"):
        bring()
    kept_bytes = sum(path.stat().st_size for path in (tmp_path / ".graph.work").rglob("*") if path.is_file())
    assert kept_bytes > 100_000
    free_bytes = told[0].work_bytes - kept_bytes // 2
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free_bytes})())
    with pytest.raises(SourceError, match="'x'"):
        bring()
    assert len(told) == 2


def test_the_disk_refuses_a_text_that_unpacks_to_more_than_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "e.csv.gz"
    source.write_bytes(gzip.compress(b"0,1\n" * 10_000_000))
    assert source.stat().st_size < 100_000
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100_000_000})())
    with pytest.raises(DestinationError, match="are free"):
        import_graph(source, tmp_path / "graph", engine=threads_engine(), budget=Budget(1 << 29))
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv.gz"]
