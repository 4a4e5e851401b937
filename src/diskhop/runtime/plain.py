"""Jobs as JSON, which is safe to load from a folder that others may write: it can only make diskhop's own objects.

An object is its class, by module and name, and its state. Classes must be diskhop's. Functions are loaded only if
LOADERS names them. `for_workers` is called where an object has it, as for worker processes (jobs.py).
"""

from __future__ import annotations

import base64
import copyreg
import importlib
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from diskhop._native import Engine
from diskhop.errors import ConfigError
from diskhop.runtime.jobs import Job, Share

# Functions that make objects from plain data, and have no other effect. The registry of `for_workers`.
LOADERS = frozenset(
    {
        "diskhop.dataset.sort.hot_order:_renumbered_by_shared",
        "diskhop.importing.arrays.edges:_open_again",
        "diskhop.importing.arrays.npy:_open_file",
        "diskhop.importing.numbering.ids:_read_set",
        "diskhop.io.locks:SharedLock",
        "diskhop.nn.models:build_hop_model",
        "diskhop.nn.models:build_model",
        "diskhop.pipeline.pack_job:_open_job",
        "diskhop.predicting.batched.degrees:_open_again",
        "diskhop.predicting.batched.layer_rows:_open_again",
        "diskhop.predicting.batched.model_layers:_open_again",
        "diskhop.predicting.batched.row_batches:_open_again",
        "diskhop.predicting.hop_rows:_open_again",
        "diskhop.predicting.opened_format:_open_again",
        "diskhop.predicting.row_files:_open_again",
        "diskhop.predicting.shared_network:_build_again",
        "diskhop.predicting.streamed.network_tables:_open_again",
        "diskhop.predicting.typed.first_rows:_given_again",
        "diskhop.predicting.typed.open_steps:_open_again",
        "diskhop.runs.nodes.packing:_map_passes",
        "diskhop.runs.typed.model:make_network",
        "diskhop.runtime.duck:_open_share",
        "diskhop.runtime.jobs:map_array",
        "diskhop.runtime.tasks:_stage_in_worker",
    }
)
_PACKAGE = "diskhop."
_SIMPLE = (type(None), bool, int, float, str)
_KIND = "is"
Json = Any


def encode_job(job: Job, share: Share) -> str:
    """Return a job as JSON. Raises TypeError for one that must stay in this process."""
    return json.dumps(_Encoder(share).encode(job))


def decode_job(text: str, engine: Engine) -> Job:
    """Return the copy of a job, with an engine of this process. Raises ConfigError for anything but a job."""
    try:
        job: Job = _Decoder(engine).decode(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise ConfigError(
            f"a list of tasks cannot be read ({error}); use the same version of diskhop for the command and its tasks"
        ) from error
    return job


class _Encoder:
    """Turns objects into JSON."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._seen: dict[int, tuple[int, Any]] = {}  # an object that is used twice is made once
        self._encodings: Mapping[type[Any], Callable[[Any], Json]] = {
            bytes: lambda value: {_KIND: "bytes", "content": _text(value)},
            re.Pattern: lambda value: {
                _KIND: "pattern",
                "pattern": self.encode(value.pattern),
                "flags": value.flags,
            },
            list: lambda value: [self.encode(each) for each in value],
            tuple: lambda value: {_KIND: "tuple", "values": self._all(value)},
            set: lambda value: {_KIND: "set", "values": self._all(sorted(value))},
            frozenset: lambda value: {_KIND: "frozenset", "values": self._all(sorted(value))},
            dict: lambda value: {_KIND: "dict", "keys": self._all(value), "values": self._all(value.values())},
            partial: lambda value: {
                _KIND: "partial",
                "function": _name_of_loader(value.func),
                "args": self._all(value.args),
                "kwargs": {name: self.encode(each) for name, each in value.keywords.items()},
            },
        }

    def encode(self, value: Any) -> Json:
        """Return a value as JSON."""
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if kind in self._encodings:
            return self._encodings[kind](value)
        if isinstance(value, np.generic):
            return self.encode(value.item())
        if isinstance(value, PurePath):
            return {_KIND: "path", "path": str(value)}
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError("an array of objects stays in its process")
            self._share.require_copied(value)
            content = _text(np.ascontiguousarray(value).tobytes())
            return {_KIND: "array", "dtype": value.dtype.str, "shape": list(value.shape), "content": content}
        if isinstance(value, np.dtype):
            return {_KIND: "dtype", "dtype": value.str}
        if isinstance(value, Engine):
            return {_KIND: "engine"}
        if id(value) in self._seen:
            return {_KIND: "again", "number": self._seen[id(value)][0]}
        for_workers = getattr(kind, "for_workers", None)
        if for_workers is not None:
            encoded = {_KIND: "call", "call": self.encode(for_workers(value, self._share))}
        else:
            encoded = self._encode_object(value)
        self._seen[id(value)] = len(self._seen), value
        return {**encoded, "number": len(self._seen) - 1}

    def _encode_object(self, value: Any) -> Json:
        if isinstance(value, Enum):  # before it is reduced, which early releases of Python 3.11 do by name
            return {_KIND: "enum", "class": _name_of_class(type(value)), "value": self.encode(value.value)}
        reduced: tuple[Any, ...] = (*value.__reduce_ex__(2), None)
        function, args, state = reduced[:3]
        if function is copyreg.__newobj__ and args[0] is type(value):  # type: ignore[attr-defined]
            return {
                _KIND: "object",
                "class": _name_of_class(type(value)),
                "args": self._all(args[1:]),
                "state": self.encode(state),
            }
        if state is None and _name_of(function) in LOADERS:
            return {_KIND: "call", "call": self.encode(partial(function, *args))}
        raise TypeError(f"{type(value).__name__} stays in its process")

    def _all(self, values: Any) -> list[Json]:
        return [self.encode(each) for each in values]


class _Decoder:
    """Turns JSON into objects."""

    def __init__(self, engine: Engine) -> None:
        self._seen: dict[int, Any] = {}
        self._decodings: Mapping[str, Callable[[Any], Any]] = {
            "bytes": lambda value: base64.b64decode(value["content"]),
            "pattern": lambda value: re.compile(self.decode(value["pattern"]), value["flags"]),
            "tuple": lambda value: tuple(self._all(value["values"])),
            "set": lambda value: set(self._all(value["values"])),
            "frozenset": lambda value: frozenset(self._all(value["values"])),
            "dict": lambda value: dict(zip(self._all(value["keys"]), self._all(value["values"]), strict=True)),
            "partial": self._partial,
            "path": lambda value: Path(value["path"]),
            "array": lambda value: (
                np.frombuffer(base64.b64decode(value["content"]), np.dtype(value["dtype"]))
                .reshape(value["shape"])
                .copy()
            ),
            "dtype": lambda value: np.dtype(value["dtype"]),
            "engine": lambda _: engine,
            "again": lambda value: self._seen[value["number"]],
            "call": lambda value: self._partial(value["call"])(),
            "enum": self._enum,
            "object": self._object,
        }

    def decode(self, value: Json) -> Any:
        """Return the value of JSON."""
        if isinstance(value, list):
            return self._all(value)
        if not isinstance(value, dict):
            return value
        decoded = self._decodings[value[_KIND]](value)
        if "number" in value:
            self._seen[value["number"]] = decoded
        return decoded

    def _all(self, values: Json) -> list[Any]:
        return [self.decode(each) for each in values]

    def _partial(self, value: Json) -> partial[Any]:
        name = value["function"]
        if name not in LOADERS:
            raise TypeError(f"{name} is not one of diskhop's loaders")
        kwargs = {key: self.decode(each) for key, each in value["kwargs"].items()}
        return partial(_find(name), *self._all(value["args"]), **kwargs)

    def _enum(self, value: Json) -> Any:
        kind = _find_class(value["class"])
        if not issubclass(kind, Enum):
            raise TypeError(f"{kind} is no enumeration")
        return kind(self.decode(value["value"]))

    def _object(self, value: Json) -> Any:
        kind = _find_class(value["class"])
        made = kind.__new__(kind, *self._all(value["args"]))
        state = self.decode(value["state"])
        if state is None:
            return made
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
            return made
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        for key, each in {**(attributes or {}), **(slots or {})}.items():
            object.__setattr__(made, key, each)
        return made


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _name_of(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"


def _name_of_class(kind: type[Any]) -> str:
    name = _name_of(kind)
    if not name.startswith(_PACKAGE):
        raise TypeError(f"{name} stays in its process")
    return name


def _name_of_loader(function: Any) -> str:
    name = _name_of(function)
    if name not in LOADERS:
        raise TypeError(f"{name} stays in its process")
    return name


def _find_class(name: str) -> type[Any]:
    kind = _find(name)
    # A module of diskhop also has names of other packages.
    if not isinstance(kind, type) or not kind.__module__.startswith(_PACKAGE):
        raise TypeError(f"{name} is not one of diskhop's classes")
    return kind


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise TypeError(f"{name} is not diskhop's")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
