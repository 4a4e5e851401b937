"""Folders of every kind that has checksums, small, and how damage of their files is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.api.verify import verify
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.merge import MergeTools, merged_lists
from diskhop.dataset.name_lines import to_lines
from diskhop.errors import DiskhopError
from diskhop.io.array_file import ArrayFile
from diskhop.runs.start import run_config, train
from diskhop.sampling.clusters import ClustersSpec, make_clusters
from diskhop.sampling.edge_split.split import open_split, plan_split
from tests.embedding import embed_config, small_triples
from tests.graphs import make_dataset, random_pairs, threads_engine
from tests.packed import pack_small
from tests.predictions import TINY, node_dataset, rows_of, write
from tests.propagation import propagate_small
from tests.runs import small_graph
from tests.typed import make_typed

TRAINED: dict[str, Any] = {
    "hidden": 8, "fanout": (4, 4), "batch_size": 50, "epochs": 1, "memory_bytes": 200_000_000, "threads": 1,
    "engine": "threads", "evaluate": False,
}  # fmt: skip
# Of a sampled batch.
_ARRAYS = ("node_ids", "indptr", "sources", "edge_positions")


class Flippable(NamedTuple):
    """Files to damage.

    find: returns one line that names the damaged file and block; "" if nothing was found. digest: of what readers get
    from the files; None where every byte counts. Zeros between records do not.
    """

    files: Sequence[Path]
    find: Callable[[], str]
    digest: Callable[[], str] | None = None


def verified(folder: Path, *patterns: str) -> Flippable:
    """Files of a folder that `diskhop verify` reads. patterns: of the files; all by default, but for hidden ones."""

    def find() -> str:
        try:
            damages = verify(folder).damages
        except DiskhopError as error:
            return str(error)
        return " | ".join(f"{folder}/{damage}" for damage in damages)

    files = {path for pattern in patterns or ("**/*",) for path in folder.glob(pattern) if path.is_file()}
    return Flippable(sorted(path for path in files if path.stat().st_size and not path.name.startswith(".")), find)


def dataset_of(*patterns: str) -> Callable[[Path], Flippable]:
    """A dataset with everything that one type can have, and features of several blocks."""

    def make(folder: Path) -> Flippable:
        count = 3000
        order = np.random.default_rng(0).permutation(count)
        path = folder / "graph"
        with DatasetBuilder(path, name="whole", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
            builder.add_nodes("node", count)
            weights = (np.arange(20_000) % 7).astype(np.float32)
            edges = ArrayEdges(random_pairs(count, 20_000))
            builder.add_edge_list("edge", "node", "node", edges, weights=weights, times=np.arange(20_000))
            features = np.random.default_rng(1).normal(size=(count, 250)).astype(np.float32)
            builder.add_features("node", [features], dim=250, dtype="float32")
            builder.add_labels("node", [np.arange(count) % 3], 3)
            for number, part in enumerate(("train", "valid", "test")):
                builder.add_split("node", part, [np.arange(number, count, 3)])
            builder.add_original_ids("node", [order], "hot")
            builder.add_positions("node", [order])
            builder.add_names("nodes", [to_lines(f"node {number}" for number in range(count))], count)
            builder.add_names("classes", [to_lines(["a", "b", "c"])], 3)
            builder.finish()
        return verified(path, *patterns)

    return make


def typed_dataset(folder: Path) -> Flippable:
    return verified(make_typed(folder / "graph").path)


def packed_layout(folder: Path) -> Flippable:
    graph = small_graph(folder / "graph", num_nodes=80, num_edges=400, dim=129)
    options: dict[str, Any] = {"batch_size": 10, "fanout": (2, 2), "cache_bytes": 600, "epochs": 2}
    layout = pack_small(graph, folder / "scratch", disk_bytes=300_000, **options).layout
    assert layout.has_shared_rows
    return verified(layout.path, "*.bin", "layout.json")


def hop_tables(folder: Path) -> Flippable:
    graph = make_dataset(folder / "graph", num_nodes=5000, num_edges=20_000, dim=9)
    return verified(
        propagate_small(graph, folder / "scratch", operators=("sign",), hops=2, rows="labelled").tables.path
    )


def merged(folder: Path) -> Flippable:
    tools = MergeTools(scratch=folder / "scratch", engine=threads_engine(), budget=Budget(1 << 30))
    files = merged_lists(make_typed(folder / "graph"), tools, ["author__writes__paper"])
    return verified(files.indices_path.parent)


def clusters(folder: Path) -> Flippable:
    graph = make_dataset(folder / "graph", num_nodes=500, num_edges=3000)
    spec = ClustersSpec(dataset_hash=graph.hash, num_clusters=8)
    path = spec.folder(folder)
    make_clusters(spec, path, graph.topology, threads_engine(), Budget(1 << 30))
    return verified(path)


def saint_norms(folder: Path) -> Flippable:
    scratch = folder / "scratch"
    options: dict[str, Any] = {name: value for name, value in TRAINED.items() if name != "fanout"}
    graph = small_graph(folder / "graph")
    train(graph, **options, sampler="saint-node", scratch=str(scratch), out=folder / "run")
    (path,) = scratch.glob("saint-*")
    return verified(path)


def edge_split(folder: Path) -> Flippable:
    graph, budget = small_graph(folder / "graph"), Budget(1 << 30)
    return verified(open_split(graph, plan_split(graph, "0.8,0.1,0.1", 0, budget), None, budget).path)


def trained(folder: Path) -> Flippable:
    train(small_graph(folder / "graph"), **TRAINED, out=folder / "run")
    return verified(folder / "run", "*.safetensors")


def embedded(folder: Path) -> Flippable:
    out = folder / "run"
    run_config(small_triples(folder), embed_config(epochs=1, dim=4, evaluate=False), out)
    found = verified(out, "*.safetensors", "commit.json", "partitions/*.bin")
    return found._replace(files=[path for path in found.files if _is_committed(out, path)])


def _is_committed(out: Path, path: Path) -> bool:
    """Whether a commit names a file: the other version of a partition is overwritten next, and has no checksum."""
    if path.parent.name != "partitions":
        return True
    versions = json.loads((out / "commit.json").read_text())["partitions"]
    return path.name in {f"{number:05}-{'ab'[version[0]]}.bin" for number, version in enumerate(versions)}


def predictions(format_name: str) -> Callable[[Path], Flippable]:
    def make(folder: Path) -> Flippable:
        graph = node_dataset(folder / "graph", [f"node {number}" for number in range(40)])
        write(folder / "out", graph, rows_of(graph), format_name=format_name, limits=TINY)
        return verified(folder / "out")

    return make


def temporary_arrays(folder: Path) -> Flippable:
    """Changesets of a superbatch, as the store `belady` keeps them."""
    path = folder / "arrays.bin"
    file = ArrayFile(path, threads_engine(), BufferPool(1 << 20))
    for number in range(5):
        file.append([np.arange(512 + number * 512, dtype=np.uint64)])

    def read() -> str:
        return digest_of(array for number in range(len(file)) for array in file.read(number))

    return Flippable([path], partial(error_of, read), read)


def traces(folder: Path) -> Flippable:
    # Its module has its dataset, which other tests do not need.
    from tests.unit.batches import large_batch, small_batch
    from tests.unit.test_trace import open_trace
    from tests.unit.test_trace import write as write_trace

    path = folder / "trace.bin"
    write_trace(path, [small_batch(), large_batch(0, 600), small_batch()])

    def read() -> str:
        reader = open_trace(path)
        batches = [reader.batch(index) for index in range(len(reader))]
        rows = [reader.node_ids(index) for index in range(len(reader))]
        counts = [
            np.array([batch.number, batch.num_seeds, *batch.num_sampled_nodes, *batch.num_sampled_edges])
            for batch in batches
        ]
        return digest_of([*counts, *rows, *(getattr(batch, name) for batch in batches for name in _ARRAYS)])

    return Flippable([path], partial(error_of, read), read)


def error_of(read: Callable[[], object]) -> str:
    """Return the line that a reader ends with; "" for none."""
    try:
        read()
    except DiskhopError as error:
        return str(error)
    return ""


def digest_of(arrays: Iterable[NDArray[Any]]) -> str:
    digest = xxhash.xxh3_64()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
