"""Whatever the ids and the order, every row of predictions joins the source's table, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import read_names
from diskhop.predicting.sizes import FORMATS
from diskhop.protocols import NodeRows
from tests.examples import examples
from tests.graphs import memory_folder
from tests.predictions import ALL, TINY, check_manifest, node_dataset, rows_of, values_of, write

Id = int | str


@st.composite
def sources(draw: st.DrawFn) -> tuple[list[Any], NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Ids in the source's order, the node at each row (None: the same order), and wanted rows (None: all)."""
    count = draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["plain", "any", "names"]))
    ids: list[Any] = list(range(count))
    if kind == "names":
        # Names are lines of a file, so that line feeds are escaped there, and 'n' may follow a backslash.
        names = st.text(st.sampled_from("an1\t\n\r\"' ,\\é\u2028\x85\x00"), min_size=1, max_size=5)
        ids = draw(st.lists(names, min_size=count, max_size=count, unique=True))
    elif kind == "any":
        most = draw(st.sampled_from([20, 2**33, 2**63 - 1]))
        ids = draw(st.lists(st.integers(0, most), min_size=count, max_size=count, unique=True))
    is_hot = draw(st.booleans())
    if kind == "any" and not is_hot:
        ids.sort()
    rows = np.array(draw(st.permutations(range(count)))) if is_hot else None
    wanted = draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1, max_size=2 * count))
    return ids, rows, None if wanted is None else np.array(wanted)


def read_back(folder: Path, format_name: str, dataset: Dataset) -> dict[str, Any]:
    """The columns of predictions, read by DuckDB or NumPy; ids as the source has them."""
    if format_name == "npy":
        columns: dict[str, Any] = {path.stem: np.load(path) for path in folder.glob("*.npy")}
        ids = columns.pop("ids", None)
        names = list(read_names(folder / "ids.txt")) if ids is None else ids.tolist()
        return {"id": names, **columns}
    with duckdb.connect() as connection:
        if format_name == "parquet":
            found = connection.sql(f"SELECT * FROM '{folder}/*.parquet'").fetchall()
            return dict(zip(["id", *ALL.words], zip(*found, strict=True), strict=True))
        id_type = "VARCHAR" if dataset.names("nodes") is not None else "BIGINT"
        read = f"read_csv('{folder}/*.tsv', delim='\t', quote='\"', escape='\"', header=true, new_line='\\n', "
        found = connection.sql(f"SELECT * FROM {read} types={{'id': '{id_type}'}})").fetchall()
    widths = {"class": 0, "probability": 0, "probabilities": 3, "logits": 3, "embedding": 5}
    by_row = [list(row) for row in found]
    columns = {"id": [row.pop(0) for row in by_row]}
    for word, width in widths.items():
        columns[word] = [[row.pop(0) for _ in range(width)] if width else row.pop(0) for row in by_row]
    return columns


@pytest.mark.fast("parquet")
@pytest.mark.parametrize("format_name", FORMATS)
@given(source=sources())
@examples(40, [HealthCheck.too_slow])
def test_every_row_joins_the_source(
    tmp_path_factory: pytest.TempPathFactory, format_name: str, source: tuple[list[Any], Any, Any]
) -> None:
    ids, rows, wanted = source
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        dataset = node_dataset(folder / "graph", ids, rows=rows)
        tables = rows_of(dataset)
        nodes = None if wanted is None else NodeRows(wanted)
        write(folder / "out", dataset, tables, format_name=format_name, nodes=nodes, limits=TINY)
        found = read_back(folder / "out", format_name, dataset)
        manifest = check_manifest(folder / "out")
    chosen = np.arange(len(ids)) if wanted is None else np.unique(wanted)
    assert manifest["rows"] == len(chosen)
    # The node at each row, by its position in the source.
    positions = chosen if rows is None else rows[chosen]
    if format_name == "npy":
        order = np.argsort(positions)
        chosen, positions = chosen[order], positions[order]
    assert list(found["id"]) == [ids[position] for position in positions]
    for word, values in values_of(tables).items():
        np.testing.assert_allclose(np.array(found[word], np.float64), values[chosen], rtol=2e-6, atol=1e-30)
