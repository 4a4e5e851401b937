"""Rows of tables as Parquet: text is unpacked and converted in the work folder, Parquet is read in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from diskhop.importing.balance import LineCounts, sum_counts
from diskhop.importing.estimate import Load
from diskhop.importing.numbering.ids import count_listed
from diskhop.importing.options import IdKind
from diskhop.importing.tables.files import Table, TableColumn
from diskhop.importing.tables.rows import TableRows, open_duck
from diskhop.importing.tables.tasks import KeepText
from diskhop.importing.text.packing import packing_of
from diskhop.importing.text.rows import read_counts
from diskhop.importing.text.streams import row_bytes, texts_bytes
from diskhop.importing.text.tasks import ByteCounter, Unpack
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck
from diskhop.runtime.tasks import Task, run_tasks

# Finished work of another format is discarded.
_WORK_FORMAT = 2


def load_of_table(table: Table) -> Load:
    """Estimate the load of reading a table; CSV is converted to Parquet in the work folder."""
    load = Load(source_bytes=sum(file.num_bytes for file in table.files))
    if table.layout is None:
        return load
    text, unpacked = texts_bytes(table.files)
    return load + Load(inflated_bytes=unpacked, table_text_bytes=text, kept_bytes=unpacked + text)


def count_rows(table: Table) -> int:
    """Estimate the number of rows."""
    if table.layout is None:
        return sum(table.counts)
    text, _ = texts_bytes(table.files)
    return int(text / row_bytes(table.files[0].path, table.texts[0].rows_begin))


def work_key(table: Table, ids: IdKind) -> str:
    """Return text that changes when finished work on a table does."""
    return "\n".join([f"format {_WORK_FORMAT}, tables, ids {ids}", *(file.identity for file in table.files)])


def read_rows(table: Table, columns: Sequence[TableColumn], ids: IdKind, work: ImportTools) -> TableRows:
    """Return the rows of a table, after converting CSV to Parquet."""
    if table.layout is None:
        lines = LineCounts(lines=sum(table.counts))
        return TableRows(table, tuple(file.path for file in table.files), table.counts, lines)
    layout = replace(table.layout, ids=ids)
    texts = _unpack(table, ids, work)
    with open_all(work) as duck:
        tasks = [
            KeepText(f"{number:05d}.parquet", text, file, tuple(table.columns), columns, layout, duck)
            for number, (file, text) in enumerate(zip(table.texts, texts, strict=True))
        ]
        key = f"{work_key(table, ids)}\n{columns}\n{layout}\n{[file.head for file in table.texts]}"
        shares = duck.shares(work.tools.processes)
        paths = run_stage(work, f"{table.what}-rows", key, tasks, f"parsing {table.what}", shares)
        counts = tuple(count_listed(path, duck) for path in paths)
        lines = read_counts(paths, duck)
    if lines.rows != sum(counts):  # lines of rows with quotes, of which some are within fields
        lines = replace(lines, lines=sum(counts) + lines.comments + lines.empty)
    return TableRows(table, tuple(paths), counts, sum_counts([lines, *(file.head for file in table.texts)]))


def open_all(work: ImportTools, other_bytes: int = 0) -> AbstractContextManager[Duck]:
    """Open DuckDB with all of the budget that is left, but for other_bytes."""
    return open_duck(work, work.budget.available_bytes - other_bytes, work.threads)


def run_stage(
    work: ImportTools,
    stage: str,
    key: str,
    tasks: Sequence[Task],
    shown: str,
    threads: int = 1,
    count: Callable[[int], None] | None = None,
) -> list[Path]:
    """Run the unfinished tasks and return all outputs in order. shown: name of the stage for users; "": none."""
    folder = work.stage(stage, key)
    name = f"{shown} ({work.part})" if work.part else shown

    def report(done: int, total: int) -> None:
        if shown:
            work.progress(name, done, total)

    run_tasks(tasks, folder, work.tools, threads=threads, progress=report, count=count)
    return [folder / task.name for task in tasks]


def _unpack(table: Table, ids: IdKind, work: ImportTools) -> list[Path]:
    packings = [packing_of(file.path) for file in table.files]
    packed = {number: table.files[number] for number, packing in enumerate(packings) if packing is not None}
    texts = [file.path for file in table.files]
    if packed:
        counter = ByteCounter(work.progress, "unpacking", sum(file.num_bytes for file in packed.values()))
        tasks = [Unpack(f"{number:05d}.csv", file, str(packings[number])) for number, file in packed.items()]
        key = work_key(table, ids)
        outputs = run_stage(work, f"{table.what}-text", key, tasks, "", work.threads, counter.add)
        for number, text in zip(packed, outputs, strict=True):
            texts[number] = text
    return texts
