"""The schema of a dataset: what a model that was trained on it expects of every other.

Training records the schema in the RUN folder, since the dataset may be gone when the model is used again. Runs without
a record are compared by the shapes of their model's parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from diskhop.config.sampled import LEARNED
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SchemaError
from diskhop.predicting.scaling import Scaling

_STORED = "stored"
# A graph where every sampled edge has its opposite is undirected. One where fewer than this share of them have it is
# directed. Anything between fits both, since crawls of an undirected graph may lack a few opposites.
_DIRECTED_SHARE = 0.9
# What the dataset has, what the run was trained on, and what to do.
_Mismatch = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Properties of a dataset that a model depends on. None stands for unknown, and fits everything.

    feature_dim: values per node, of stored features or of those made in their place; 0 without any.
    feature_source: 'stored', or the kind of features that are made (dataset/made_features.py).
    feature_dtype: dtype of stored features; '' where they are made.
    num_outputs: number of classes, or of columns of tasks or values; 0 without labels.
    label_kind: 'classes', 'tasks' or 'values'; '' without labels.
    class_names: name of each class; None where the dataset has none.
    node_types: names of the node types.
    edge_types: source type, name and destination type of each edge type.
    reciprocal_share: fraction of edges with an opposite; None for several edge types, or without edges.
    type_features: name, columns and dtype of the features of each node type, of a graph with several types; 0 columns
        and '' for a type without.
    learned: name, number of nodes and checksum of the ids of each node type whose rows the model learns.
    scaling: units of the values that the model predicts; None for classes and tasks. Datasets need not agree in them.
    """

    feature_dim: int
    num_outputs: int
    feature_source: str | None = None
    feature_dtype: str | None = None
    label_kind: str | None = None
    class_names: tuple[str, ...] | None = None
    node_types: tuple[str, ...] | None = None
    edge_types: tuple[tuple[str, str, str], ...] | None = None
    reciprocal_share: float | None = None
    type_features: tuple[tuple[str, int, str], ...] | None = None
    learned: tuple[tuple[str, int, str], ...] | None = None
    scaling: Scaling | None = None

    def without_labels(self) -> Schema:
        """Return the schema for a model that labels do not matter to."""
        return replace(self, num_outputs=0, label_kind="", class_names=None)

    def to_bytes(self) -> bytes:
        """Return the content of a RUN's schema file."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


def schema_of(dataset: Dataset, features: str = "", seed: int = 0, target: str = "") -> Schema:
    """Return the schema of a dataset. Reads a few hundred edges.

    features, seed: the run's options; they make features for a dataset without any.
    target: node type whose labels are learned, in a graph with several types. Raises ConfigError for several node types
    without one, and where these features cannot be made.
    """
    if target:
        return _typed_schema(dataset, features, target)
    is_stored = dataset.feature_table() is not None
    if features and not is_stored:
        dataset = dataset.with_made_features(features, seed)
    made = dataset.made_features
    edges = list(dataset.edges.values())
    names = dataset.names("classes")
    return Schema(
        feature_dim=dataset.feature_dim if is_stored else made.dim,
        feature_source=_STORED if is_stored else made.kind,
        feature_dtype=dataset.feature_dtype,
        num_outputs=dataset.num_outputs,
        label_kind=dataset.label_kind if dataset.num_outputs else "",
        class_names=None if names is None else tuple(names),
        node_types=tuple(sorted(dataset.nodes)),
        edge_types=tuple(sorted((each.source, each.name, each.destination) for each in edges)),
        reciprocal_share=edges[0].reciprocal_share() if len(edges) == 1 else None,
    )


def _typed_schema(dataset: Dataset, features: str, target: str) -> Schema:
    nodes = dataset.nodes.get(target)
    names = dataset.names("classes", target)
    types = ((name, each.feature_dim, each.feature_dtype) for name, each in dataset.nodes.items())
    without = [name for name, each in dataset.nodes.items() if each.feature_table() is None]
    learned = [(name, dataset.nodes[name].num_nodes, _ids_checksum(dataset, name)) for name in without]
    return Schema(
        feature_dim=0 if nodes is None else nodes.feature_dim,
        num_outputs=0 if nodes is None else nodes.num_outputs,
        label_kind=nodes.label_kind if nodes is not None and nodes.num_outputs else "",
        class_names=None if names is None else tuple(names),
        node_types=tuple(sorted(dataset.nodes)),
        edge_types=tuple(sorted((each.source, each.name, each.destination) for each in dataset.edges.values())),
        type_features=tuple(sorted(types)),
        learned=tuple(sorted(learned)) if features in ("", LEARNED) else (),
    )


def _ids_checksum(dataset: Dataset, node_type: str) -> str:
    """Return what tells the ids of a type's nodes, in their order, from others; '' if they are numbered from 0."""
    paths = (f"nodes/{node_type}/original_ids.bin", dataset.names_file("nodes", node_type))
    entries = (dataset.manifest.files.get(path) for path in paths if path is not None)
    return " ".join(entry.xxh3_64 for entry in entries if entry is not None)


def schema_of_model(path: Path, parameters: Mapping[str, Tensor], num_layers: int) -> Schema:
    """Return what the parameters of a node classifier show by their shapes. Raises ConfigError for other parameters.

    path: model.safetensors. parameters: its content, by the names that nn/ gives. num_layers: layers of the model.
    """
    matrices = [(name, tensor.shape) for name, tensor in sorted(parameters.items()) if tensor.ndim == 2]
    last = (f"convs.{num_layers - 1}.", f"model.mlp.{num_layers - 1}.", "model.linear.")
    outputs = [shape[0] for name, shape in matrices if name.startswith(last)]
    if not outputs:
        raise ConfigError(f"{path}: is not the model of a node classifier of {num_layers} layers; train again")
    return Schema(feature_dim=matrices[0][1][1], num_outputs=outputs[0])


def read_schema(path: Path) -> Schema:
    """Read the schema file of a RUN. Raises ConfigError for a damaged one."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        for name in ("class_names", "node_types"):
            found[name] = None if found[name] is None else tuple(map(str, found[name]))
        for name in ("type_features", "learned"):
            of_types = found[name]
            if of_types is not None:
                found[name] = tuple((str(each), int(number), str(text)) for each, number, text in of_types)
        if found["edge_types"] is not None:
            found["edge_types"] = tuple((str(source), str(name), str(end)) for source, name, end in found["edge_types"])
        if found["scaling"] is not None:
            found["scaling"] = Scaling(*(tuple(map(float, found["scaling"][name])) for name in ("means", "scales")))
        return Schema(**found)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; train again in a new folder") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ConfigError(
            f"{path}: is damaged: {reason}; copy the run again, or train again in a new folder"
        ) from error


def require_schema(trained: Schema, run: Path, found: Schema, dataset: Path) -> None:
    """Refuse a dataset that does not fit a run. Raises SchemaError with a line for each mismatch.

    trained: schema of the dataset that the run was trained on. found: schema of this dataset.
    """
    of_features = _feature_mismatches if trained.type_features is None else _type_mismatches
    mismatches = [*of_features(trained, found), *_label_mismatches(trained, found)]
    mismatches += _structure_mismatches(trained, found)
    if mismatches:
        raise SchemaError(
            [f"{dataset}: {here}, but {run} was trained on {there}; {way}" for here, there, way in mismatches]
        )


def _feature_mismatches(trained: Schema, found: Schema) -> Iterator[_Mismatch]:
    if trained.feature_source is not None and trained.feature_source != found.feature_source:
        without = "import the graph without features, or train again"
        yield _features(found), _features(trained), "import the same features" if _is_stored(trained) else without
        return
    if trained.feature_dim != found.feature_dim:
        way = "import the same columns" if _is_stored(trained) else "train again with --features random"
        yield f"{found.feature_dim} feature columns", f"{trained.feature_dim}", way
    if trained.feature_dtype is not None and trained.feature_dtype != found.feature_dtype:
        way = f"import the graph again with --dtype {trained.feature_dtype}"
        yield f"features of type {found.feature_dtype}", trained.feature_dtype, way


def _type_mismatches(trained: Schema, found: Schema) -> Iterator[_Mismatch]:
    """Yield mismatches of the features of node types that both have, and of nodes whose rows are learned."""
    now = {name: rest for name, *rest in found.type_features or ()}
    for name, dim, dtype in trained.type_features or ():
        if name in now and now[name] != [dim, dtype]:
            here, there = (_columns(*each) for each in (now[name], (dim, dtype)))
            yield f"{here} of type '{name}'", there, "import the same features, or train again"
    ids = {name: rest for name, *rest in found.learned or ()}
    for name, count, checksum in trained.learned or ():
        if name not in ids or ids[name] == [count, checksum]:
            continue
        here = f"{ids[name][0]:,} nodes of type '{name}'" if ids[name][0] != count else f"other nodes of type '{name}'"
        way = "train again, or once with --features degree, which new nodes have too"
        yield here, f"{count:,}, each with a learned row", way


def _columns(dim: int, dtype: str) -> str:
    return f"{dim} feature columns of {dtype}" if dim else "no features"


def _label_mismatches(trained: Schema, found: Schema) -> Iterator[_Mismatch]:
    """Yield mismatches of labels. A dataset without labels fits every run."""
    if not found.num_outputs:
        return
    kind = trained.label_kind or found.label_kind
    if (trained.num_outputs, kind) != (found.num_outputs, found.label_kind):
        yield (
            f"{found.num_outputs} {found.label_kind}",
            f"{trained.num_outputs} {kind}",
            "import the same labels, or none",
        )
        return
    for number, (old, new) in enumerate(zip(trained.class_names or (), found.class_names or (), strict=False)):
        if old != new:
            yield f"class {number} is '{new}'", f"'{old}'", "number the classes as in training"


def _structure_mismatches(trained: Schema, found: Schema) -> Iterator[_Mismatch]:
    for what, old, new in (
        ("node types", trained.node_types, found.node_types),
        ("edge types", _spelled(trained.edge_types), _spelled(found.edge_types)),
    ):
        if old is not None and new is not None and old != new:
            yield f"{what} {', '.join(new)}", ", ".join(old), "import the same types"
    before, now = trained.reciprocal_share, found.reciprocal_share
    if before is None or now is None or (before == 1) == (now == 1):
        return
    if min(before, now) < _DIRECTED_SHARE:
        flag = "--undirected" if before == 1 else "--directed"
        yield _directedness(now), _directedness(before), f"import the graph again with {flag}"


def _is_stored(schema: Schema) -> bool:
    return schema.feature_source in (None, _STORED)


def _features(schema: Schema) -> str:
    if _is_stored(schema):
        return f"{schema.feature_dim} feature columns"
    return f"features '{schema.feature_source}', made for a graph without any"


def _spelled(edge_types: tuple[tuple[str, str, str], ...] | None) -> tuple[str, ...] | None:
    return None if edge_types is None else tuple(f"{name} ({source} to {end})" for source, name, end in edge_types)


def _directedness(share: float) -> str:
    return "edges stored in both directions" if share == 1 else f"edges of which {share:.0%} have an opposite"
