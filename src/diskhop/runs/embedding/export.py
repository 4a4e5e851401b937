"""Exporting a run's embeddings to one file, by the ids and names of the source.

Nodes come in the ascending order of the source's ids, as exported graphs have them. `.npy`: float32 (nodes, dim).
`.parquet`: columns id, name (where nodes have names) and embedding, a list of dim floats. `.tsv`: a line per node with
its name, or its id, and its values; names with tabs, line breaks or quotes are quoted, as Python's csv module reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from diskhop.dataset.names import Names, as_field
from diskhop.errors import ConfigError
from diskhop.io.atomic import require_free_space, require_parent
from diskhop.io.destinations import new_file, require_new_file
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places

# Memory per byte of rows: the request, the rows, their copy and their text.
_ROOM = 4
# Maximum bytes of a value as text, with the separator.
_TEXT_BYTES = 16


class Block(NamedTuple):
    """Embeddings of nodes by their ranks (see Places), from rank `start` on, float32 (nodes, dim)."""

    start: int
    values: NDArray[np.float32]


def export_embeddings(
    run: Path | str | OpenRun,
    path: Path | str,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write the last commit's embeddings to a file, in the format of its suffix; the file appears whole.

    Partitions are read once per block of nodes; a block fills a quarter of the run's budget. progress: called with
    nodes done and in total. overwrite: whether a file that is there is replaced. Raises ConfigError for an unknown
    suffix, DestinationError, ReadError; TrainingError for a run without a commit.
    """
    path = Path(path)
    if path.suffix not in EXPORTS:
        raise ConfigError(f"{path}: embeddings are exported to {', '.join(EXPORTS)}; use {path.stem}.npy")
    require_new_file(path, overwrite=overwrite)
    opened = run if isinstance(run, OpenRun) else open_run(run)
    layout, places = opened.reader.layout, Places(opened.dataset, opened.permutation)
    value_bytes = _TEXT_BYTES if path.suffix == ".tsv" else 4
    require_free_space(require_parent(path), value_bytes * layout.num_nodes * layout.dim, "the embeddings")

    def blocks() -> Iterator[Block]:
        for block in _blocks(opened, places):
            yield block
            progress(block.start + len(block.values), layout.num_nodes)

    with new_file(path, overwrite=overwrite) as partial:
        EXPORTS[path.suffix](partial, places.names(), layout.dim, blocks())
    return path


def _blocks(run: OpenRun, places: Places) -> Iterator[Block]:
    layout = run.reader.layout
    step = max(1024, run.config.memory_bytes // (_ROOM * 4 * layout.dim))
    for start in range(0, layout.num_nodes, step):
        ranks = np.arange(start, min(start + step, layout.num_nodes))
        yield Block(start, run.reader.gather(places.of(ranks)).numpy())


def _write_npy(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    out = np.lib.format.open_memmap(path, "w+", np.float32, (len(names), dim))
    for start, values in blocks:
        out[start : start + len(values)] = values
    out.flush()


def _write_parquet(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    schema = pa.schema(
        [("id", pa.int64())] + [("name", pa.string())] * names.are_given + [("embedding", pa.list_(pa.float32(), dim))]
    )
    with ExitStack() as stack:
        writer = stack.enter_context(pq.ParquetWriter(path, schema))
        ids, named = names.ids(), iter(names)
        for start, values in blocks:
            columns = [pa.array(ids[start : start + len(values)])]
            if names.are_given:
                columns.append(pa.array(list(islice(named, len(values)))))
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dim))
            writer.write_table(pa.table(columns, schema=schema))


def _write_tsv(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    fields = map(as_field, names)
    with path.open("w", encoding="utf-8", newline="") as out:
        for _, values in blocks:
            for field, row in zip(islice(fields, len(values)), values.tolist(), strict=True):
                out.write("\t".join([field, *(f"{value:.9g}" for value in row)]) + "\n")


EXPORTS: dict[str, Callable[[Path, Names, int, Iterator[Block]], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".tsv": _write_tsv,
}
