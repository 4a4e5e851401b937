"""Decides what the files of a folder are: edges, nodes, or nothing that is imported.

Folders below it count too, such as `year=2021/` or the `edges.csv/` of a program that writes parts. Names tell what a
file has: its own, or that of a folder around it. Files without such a name are parts of the edges if no file has one.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision, listed

What = Literal["edges", "nodes", "note", ""]

_MOST_DEPTH = 6
_EDGE_WORDS = frozenset(
    [
        "edge",
        "edges",
        "edgelist",
        "link",
        "links",
        "relation",
        "relations",
        "relationship",
        "relationships",
        "arc",
        "arcs",
        "interaction",
        "interactions",
        "connection",
        "connections",
        "adjacency",
    ]
)
_NODE_WORDS = frozenset(
    [
        "node",
        "nodes",
        "nodelist",
        "vertex",
        "vertices",
        "label",
        "labels",
        "target",
        "targets",
        "attribute",
        "attributes",
        "feature",
        "features",
        "class",
        "classes",
        "entity",
        "entities",
    ]
)
_LABEL_WORDS = frozenset(("label", "labels", "target", "targets", "class", "classes"))
_NOTE_WORDS = frozenset(
    [
        "readme",
        "license",
        "licence",
        "copying",
        "notes",
        "citation",
        "changelog",
        "authors",
        "about",
        "description",
        "requirements",
    ]
)


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files of a folder, in the order of their paths.

    edges, nodes: files with rows of edges, and of nodes.
    others: files that are not imported, each with the reason.
    """

    edges: tuple[Path, ...]
    nodes: tuple[Path, ...]
    others: tuple[tuple[str, str], ...]

    def decisions(self, folder: Path) -> list[Decision]:
        """Describe the files for people."""
        found = []
        for role, paths in (("edges", self.edges), ("nodes", self.nodes)):
            if paths:
                names = [str(path.relative_to(folder)) for path in paths]
                subject = names[0] if len(names) == 1 else f"{len(names)} files"
                why = "by its name" if what_of(names[0]) == role else "files of one kind"
                found.append(Decision(subject, role, f"{why}: {listed(names)}" if len(names) > 1 else why))
        return [*found, *(Decision(name, "not imported", why) for name, why in self.others)]


def list_folder(folder: Path, has_suffix: Callable[[Path], bool], plain_name: Callable[[str], str]) -> FolderFiles:
    """List the files of a folder and of those below it.

    has_suffix: whether a file's name is one of a table or text. plain_name: a name without the suffix of compression.
    Raises SourceError for a file that is there plain and compressed.
    """
    found: dict[What, list[Path]] = {"edges": [], "nodes": [], "": []}
    others = []
    for path in _walk(folder):
        name = str(path.relative_to(folder))
        if any(part.startswith((".", "_")) for part in Path(name).parts):
            others.append((name, "a hidden file or a marker"))
        elif not has_suffix(path):
            others.append((name, "no table or text by its name"))
        elif what_of(name) == "note":
            others.append((name, "a note by its name"))
        else:
            found[what_of(name)].append(path)
    edges = found["edges"] or found[""] or found["nodes"]
    nodes = [] if edges is found["nodes"] else found["nodes"]
    if found["edges"]:
        others += [(str(path.relative_to(folder)), "named neither edges nor nodes") for path in found[""]]
    for paths in (edges, nodes):
        repeated = [name for name, count in Counter(plain_name(str(path)) for path in paths).items() if count > 1]
        if repeated:
            twins = [path.name for path in paths if plain_name(str(path)) == repeated[0]]
            raise SourceError(f"{folder}: has {' and '.join(twins)}; keep one of them")
    return FolderFiles(tuple(edges), tuple(nodes), tuple(others))


def what_of(name: str) -> What:
    """Say what a file has by its path below the source: the last part of it that tells."""
    for number, part in enumerate(reversed(Path(name).parts)):
        words = set(re.findall(r"[a-z]+", part.lower()))
        for what, known in (("edges", _EDGE_WORDS), ("nodes", _NODE_WORDS)):
            if words & known:
                return what  # type: ignore[return-value]
        if number == 0 and words & _NOTE_WORDS:
            return "note"
    return ""


def says_labels(path: Path) -> bool:
    """Check whether the name of a file says that it has labels."""
    return bool(set(re.findall(r"[a-z]+", path.name.lower())) & _LABEL_WORDS)


def _walk(folder: Path) -> list[Path]:
    """List files, those of linked folders too, in the order of their paths."""
    seen = {os.path.realpath(folder)}
    files = []
    for root, folders, names in os.walk(folder, followlinks=True):
        depth = len(Path(root).relative_to(folder).parts)
        kept = []
        for name in folders:
            path = os.path.realpath(Path(root) / name)
            if path not in seen and depth < _MOST_DEPTH:
                seen.add(path)
                kept.append(name)
        folders[:] = kept
        files += [Path(root) / name for name in names]
    return sorted(files)


def import_alone(paths: Sequence[Path]) -> str:
    """Say how to import one of several files that do not belong together."""
    return f"import one of them alone: diskhop import {shlex.quote(str(paths[0]))} DEST"
