"""Reads metadata.yaml of a GraphBolt folder (DGL's OnDiskDataset) and checks it against its published specification.

Only what a dataset can store is read. Unknown keys are ignored, as DGL does. Every path must stay in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from diskhop.dataset.manifest import MOST_CLASSES, MOST_COUNT
from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import StoredArray, file_array
from diskhop.importing.source_file import source_errors

METADATA_NAME = "metadata.yaml"
# Path of the graph that DGL makes of the raw files.
PREPROCESSED = f"preprocessed/{METADATA_NAME}"
SETS = {"train": "train_set", "valid": "validation_set", "test": "test_set"}
_MOST_BYTES = 1 << 20
_EDGE_TYPE = re.compile(r"([^:]+):([^:]+):([^:]+)")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that metadata.yaml names. where: its entry, for errors."""

    where: str
    path: Path
    format: str

    def array(self) -> StoredArray:
        """Open its array. Raises SourceError for a pickle."""
        if self.format == "torch":
            raise SourceError(
                f"{self.where}: format is torch, which is a pickle; save it with numpy.save and name the format numpy"
            )
        with source_errors(str(self.path)):
            return file_array(self.path)


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of one type. type: source, relation and destination; None: the graph has one type."""

    type: tuple[str, str, str] | None
    file: StoredFile


@dataclass(frozen=True, slots=True)
class Feature:
    """An entry of feature_data. num_classes: key of labels that diskhop exports."""

    domain: str
    type: str | None
    name: str
    file: StoredFile
    num_classes: int | None


@dataclass(frozen=True, slots=True)
class SetOfType:
    """An entry of a set. data: arrays of seeds, labels and others, by name."""

    type: str | None
    data: Mapping[str, StoredFile]


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """An entry of tasks. sets: the sets that are not empty, by part (train, valid, test)."""

    name: str | None
    num_classes: int | None
    sets: Mapping[str, Sequence[SetOfType]]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of metadata.yaml.

    name: the dataset's name.
    nodes: number of nodes by type; the type is None if the graph has only one.
    edges: by type.
    features: feature_data of nodes and edges.
    graph_features: feature_data that DGL keeps with the topology.
    tasks: in order.
    """

    name: str | None
    nodes: Mapping[str | None, int]
    edges: Sequence[Edges]
    features: Sequence[Feature]
    graph_features: Sequence[Feature]
    tasks: Sequence[TaskEntry]


def read_metadata(folder: Path) -> Metadata:
    """Read metadata.yaml. Raises SourceError if it breaks the specification, or names a path outside the folder."""
    path = folder / METADATA_NAME
    with source_errors(str(path)):
        if not path.exists() and (folder / PREPROCESSED).exists():
            raise _only_pickles(folder)
        if not path.is_file():
            raise SourceError(f"{path}: is not a regular file; give the folder of an OnDiskDataset")
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise SourceError(f"{path}: must be at most {_MOST_BYTES} bytes; give a file that only names arrays")
    root = _Section(_parse_yaml(content, str(path)), str(path), folder)
    if not root.has("graph") and root.has("graph_topology"):
        raise _only_pickles(folder)
    return _parse(root)


def _only_pickles(folder: Path) -> SourceError:
    return SourceError(
        f"{folder}: has only DGL's preprocessed graph (fused_csc_sampling_graph.pt, a pickle, which could run any "
        f"code), and not the raw files; give the folder of the raw files with {METADATA_NAME}"
    )


class _Loader(yaml.SafeLoader):
    """YAML loader without aliases: nested aliases can expand to billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="has an alias (*name), which is not supported", problem_mark=self.get_mark()
            )
        return super().compose_node(parent, index)


def _parse_yaml(content: bytes, where: str) -> object:
    try:
        document: object = yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        problem = " ".join(str(error.problem or error.context).split())
        raise SourceError(f"{where}{line}: must be plain YAML: {problem[:200]}; fix the file") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problem = " ".join(str(error).split())
        raise SourceError(f"{where}: must be plain YAML: {problem[:200]}; fix the file") from None
    except (AttributeError, LookupError, TypeError):  # by what makes values of tags
        raise SourceError(f"{where}: has a value that is not what its tag (as !!int) says; fix the file") from None
    except RecursionError:
        raise SourceError(f"{where}: is nested too deeply; fix the file") from None
    return document


def _parse(root: _Section) -> Metadata:
    graph = root.child("graph")
    nodes: dict[str | None, int] = {}
    for section in graph.entries("nodes"):
        node_type = section.text("type", needed=False)
        if node_type in nodes:
            raise section.error("type", "must name each type once", node_type)
        nodes[node_type] = section.integer("num", 1, MOST_COUNT)
    if not nodes:
        raise graph.error("nodes", "must have at least one entry", [])
    edges = [Edges(_edge_type(section, nodes), section.file(("csv", "numpy"))) for section in graph.entries("edges")]
    if None in nodes and (len(nodes), len(edges)) != (1, 1):
        raise graph.error("nodes", "must each have a type, unless there is one of nodes and one of edges", None)
    if len({each.type for each in edges}) < len(edges):
        raise graph.error("edges", "must name each type once", [each.type for each in edges])
    features = [_feature(section) for section in root.entries("feature_data", needed=False)]
    return Metadata(
        name=root.text("dataset_name", needed=False),
        nodes=nodes,
        edges=edges,
        features=features,
        graph_features=[_feature(section) for section in graph.entries("feature_data", needed=False)],
        tasks=[_task(section) for section in root.entries("tasks", needed=False)],
    )


def _edge_type(section: _Section, nodes: Mapping[str | None, int]) -> tuple[str, str, str] | None:
    text = section.text("type", needed=None not in nodes)
    if text is None:
        return None
    found = _EDGE_TYPE.fullmatch(text)
    if found is None:
        raise section.error("type", "must be source:relation:destination", text)
    source, relation, destination = found.groups()
    for end in (source, destination):
        if end not in nodes:
            raise section.error("type", f"must be between types of nodes ({', '.join(map(str, nodes))})", text)
    return source, relation, destination


def _feature(section: _Section) -> Feature:
    domain = section.text("domain")
    if domain not in ("node", "edge", "graph"):
        raise section.error("domain", "must be node, edge or graph", domain)
    name = section.text("name")
    assert name is not None, "it is needed"
    return Feature(
        domain=domain,
        type=section.text("type", needed=False),
        name=name,
        file=section.file(("numpy", "torch")),
        num_classes=section.integer("num_classes", 1, MOST_CLASSES) if section.has("num_classes") else None,
    )


def _task(section: _Section) -> TaskEntry:
    sets = {part: [_set(each) for each in section.entries(key, needed=False)] for part, key in SETS.items()}
    return TaskEntry(
        name=section.text("name", needed=False),
        num_classes=section.integer("num_classes", 1, MOST_CLASSES) if section.has("num_classes") else None,
        sets={part: entries for part, entries in sets.items() if entries},
    )


def _set(section: _Section) -> SetOfType:
    data = {}
    for number, entry in enumerate(section.entries("data")):
        # Before DGL 2 the first was the seeds and the second the labels, without names.
        name = entry.text("name", needed=False) or dict(enumerate(("seeds", "labels"))).get(number, str(number))
        if name in data:
            raise entry.error("name", "must be given once in a set", name)
        data[name] = entry.file(("numpy", "torch"))
    return SetOfType(section.text("type", needed=False), data)


class _Section:
    """Checked access to the keys of one object in metadata.yaml. where: its name in errors."""

    def __init__(self, document: object, where: str, folder: Path) -> None:
        if not isinstance(document, dict):
            raise SourceError(f"{where}: must be keys and values, got {_shown(document)}; fix the file")
        self._document: dict[object, object] = document
        self._where = where
        self._folder = folder

    def error(self, key: str, rule: str, value: object) -> SourceError:
        """Return the error of a key that breaks a rule."""
        return SourceError(f"{self._where}: {key} {rule}, got {_shown(value)}; fix the file")

    def has(self, key: str) -> bool:
        """Check whether a key has a value."""
        return self._document.get(key) is not None

    def text(self, key: str, *, needed: bool = True) -> str | None:
        """Read 1 to 200 printable characters; None: there are none, and none are needed."""
        value = self._document.get(key)
        if value is None and not needed:
            return None
        if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
            raise self.error(key, "must be 1 to 200 printable characters", value)
        return value

    def integer(self, key: str, least: int, most: int) -> int:
        """Read a whole number in [least, most]."""
        value = self._document.get(key)
        if type(value) is not int or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}", value)
        return value

    def child(self, key: str) -> _Section:
        """Return the object under a key."""
        return _Section(self._document.get(key), f"{self._where}: {key}", self._folder)

    def entries(self, key: str, *, needed: bool = True) -> list[_Section]:
        """Return the objects of the list under a key."""
        value = self._document.get(key)
        if value is None and not needed:
            return []
        if not isinstance(value, list):
            raise self.error(key, "must be a list", value)
        return [_Section(each, f"{self._where}: {key}[{number}]", self._folder) for number, each in enumerate(value)]

    def file(self, formats: Sequence[str]) -> StoredFile:
        """Return the file that `path` and `format` name; it may be missing, but not outside the folder."""
        file_format = self.text("format")
        if file_format is None or file_format not in formats:
            raise self.error("format", f"must be {' or '.join(formats)}", file_format)
        text = self._document.get("path")
        if not isinstance(text, str) or not text.isprintable() or not 1 <= len(text) <= 4096:
            raise self.error("path", "must be the path of a file", text)
        path = self._folder / text
        with source_errors(f"{self._where}: path '{text}'"):
            is_inside = path.resolve().is_relative_to(self._folder.resolve())
        if Path(text).is_absolute() or ".." in Path(text).parts or not is_inside:
            raise self.error("path", f"must stay in the folder of {METADATA_NAME}", text)
        return StoredFile(self._where, path, file_format)


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list | tuple | set):
        return f"{'keys' if isinstance(value, dict) else 'a list'} ({len(value)})"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number beyond 64 bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
