"""Types of tables that no schema.toml describes, from the names of files and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from diskhop.dataset.fields import TYPE_NAME
from diskhop.errors import SourceError
from diskhop.importing.evidence.names import end_of, joined_name
from diskhop.importing.source_file import source_errors
from diskhop.importing.tables.files import has_table_suffix
from diskhop.importing.tables.typed.schema import SCHEMA_NAME, Schema, TypeTable, split_ends
from diskhop.importing.text.suffixes import text_stem

# Names of parts of one table, not of types.
_PART = re.compile(r"(part|chunk|shard|batch|block|data|nodes?|edges?)?[-_.]?\d.*|(part|chunk|shard|batch)\b.*", re.I)
_BEGINNING = re.compile(r"^(src|source|from|start|dst|dest|destination|target|to|end)[-_.]?", re.I)
_ENDING = re.compile(r"[-_.]?(ids?|idx|index|key)$", re.I)


def files_of(path: Path) -> tuple[Path, ...]:
    """List the parts of a table: a file, the files of a folder, or the file that has the name but for its suffix."""
    with source_errors(str(path)):
        if path.is_file():
            return (path,) if has_table_suffix(path) else ()
        if path.is_dir():
            return tuple(sorted(each for each in path.iterdir() if each.is_file() and _is_table(each)))
        if not path.parent.is_dir():
            return ()
        return tuple(each for each in sorted(path.parent.iterdir()) if _is_table(each) and text_stem(each) == path.name)


def list_tables(folder: Path) -> dict[str, tuple[Path, ...]]:
    """List the tables of a folder by name: a file, or a folder of parts, for each."""
    found: dict[str, tuple[Path, ...]] = {}
    if not folder.is_dir():
        return found
    with source_errors(str(folder)):
        for path in sorted(folder.iterdir()):
            files = files_of(path) if not path.name.startswith((".", "_")) else ()
            if files:
                name = text_stem(path)
                if name in found:
                    raise SourceError(f"{folder}: has {found[name][0].name} and {path.name}; keep one of them")
                found[name] = files
    return found


def is_typed_tables(source: Path) -> bool:
    """Check whether a folder looks like tables per type, by names alone.

    Edges named author__writes__paper tell so, and files of nodes that are named as types next to several edges.
    """
    if not source.is_dir():
        return False
    if (source / SCHEMA_NAME).is_file():
        return True
    if not (source / "edges").is_dir():
        return False
    edges = list_tables(source / "edges")
    if edges and all(split_ends(name) is not None for name in edges):
        return True
    nodes = list_tables(source / "nodes")
    return len(nodes) > 1 and bool(edges) and all(_is_type(name) for name in (*nodes, *edges))


def find_schema(source: Path, columns_of: Callable[[tuple[Path, ...]], Sequence[str]]) -> Schema:
    """Find the types of a folder's tables. columns_of: lists the names of the columns of a table of edges.

    Raises SourceError for edges of which nothing tells the types.
    """
    nodes = {name: TypeTable(name=name, files=files) for name, files in list_tables(source / "nodes").items()}
    edges: dict[str, TypeTable] = {}
    for name, files in list_tables(source / "edges").items():
        ends = split_ends(name)
        given: dict[str, str] = {}
        if ends is None:
            found = _ends_by_columns(columns_of(files), nodes)
            if found is None:
                raise SourceError(
                    f"{files[0]}: neither its name, such as author__writes__paper, nor its columns, such as "
                    f"{' and '.join(list(nodes)[:2])}, say which types of nodes the edges connect; rename one, or "
                    f"describe it in {source / SCHEMA_NAME}: [edges.{name}] with source_type and destination_type"
                )
            (source_column, source_type), (destination_column, destination_type) = found
            ends = (source_type, name, destination_type)
            given = {"source": source_column, "destination": destination_column}
        if "__".join(ends) in edges:
            raise SourceError(f"{files[0]}: edges {'__'.join(ends)} are there twice; remove one of the tables")
        edges["__".join(ends)] = TypeTable(name="__".join(ends), files=files, given=given, ends=ends)
        for each in (ends[0], ends[2]):
            nodes.setdefault(each, TypeTable(name=each, files=()))
    return Schema(source, nodes, edges)


def ends_by_names(columns: Sequence[str], ends: tuple[str, str, str]) -> tuple[str, str] | None:
    """Find the columns of both ends that are named after their types; None: not two such columns."""
    if ends[0] == ends[2]:
        return None
    found = [[name for name in columns if _type_of(name, (each,)) is not None] for each in (ends[0], ends[2])]
    return (found[0][0], found[1][0]) if len(found[0]) == len(found[1]) == 1 else None


def _ends_by_columns(columns: Sequence[str], types: Iterable[str]) -> list[tuple[str, str]] | None:
    """Find the two columns that are named after node types, source first, each with its type."""
    found = [(name, each) for name in columns if (each := _type_of(name, types)) is not None]
    if len(found) != 2:
        return None
    prefixes = [_BEGINNING.match(name) for name, _ in found]
    is_swapped = prefixes[0] is not None and end_of(prefixes[0][1]) == "destination"
    return found[::-1] if is_swapped else found


def _type_of(column: str, types: Iterable[str]) -> str | None:
    """Return the type that a column is named after, such as paper, paper_id or src_paper."""
    stems = {joined_name(column), joined_name(_ENDING.sub("", column))}
    stems |= {joined_name(_BEGINNING.sub("", _ENDING.sub("", column)))}
    for each in types:
        name = joined_name(each)
        if stems & {name, f"{name}s", name.removesuffix("s")} - {""}:
            return each
    return None


def _is_table(path: Path) -> bool:
    return has_table_suffix(path) and not path.name.startswith((".", "_"))


def _is_type(name: str) -> bool:
    return TYPE_NAME.fullmatch(name) is not None and _PART.fullmatch(name) is None
