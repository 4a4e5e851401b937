"""Sources that no kind recognises, and files that are never read: what they are, and what to do instead."""

from __future__ import annotations

import contextlib
import shlex
import zipfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from diskhop.dataset.manifest import MANIFEST_NAME
from diskhop.errors import SourceError
from diskhop.importing.source import SourceKind
from diskhop.importing.text.packing import DamageError, plain_name
from diskhop.importing.text.streams import open_text

# Python's pickles begin with this byte and their protocol; torch.save makes a zip archive with a pickle in it.
_PICKLE = b"\x80"
_PROTOCOLS = b"\2\3\4\5"
_ZIP = b"PK\x03\x04"
_TORCH_SUFFIXES = (".pt", ".pth")
_PICKLE_SUFFIXES = (".pkl", ".pickle", ".gpickle")
# Formats that NetworkX reads, by suffix.
_NETWORKX = {".graphml": "read_graphml", ".gexf": "read_gexf", ".gml": "read_gml", ".g6": "read_graph6"}
_OTHERS = (
    *(".json", ".jsonl", ".xml", ".ttl", ".nq", ".rdf", ".owl", ".xlsx", ".xls", ".ods", ".mat", ".h5", ".hdf5"),
    *(".feather", ".arrow", ".orc", ".avro", ".db", ".sqlite", ".rds", ".html", ".pdf"),
)
_SAMPLE_BYTES = 1 << 12
_MOST_FOLDERS = 100


def refuse_pickles(source: Path) -> None:
    """Raise SourceError for a file that torch.save or pickle wrote. It is recognised, never loaded."""
    if not source.is_file() or not _is_pickle(source):
        return
    is_torch = source.suffix in _TORCH_SUFFIXES or source.suffix not in _PICKLE_SUFFIXES
    call = (
        f"torch.load({str(source)!r}, weights_only=False)" if is_torch else f"pickle.load(open({str(source)!r}, 'rb'))"
    )
    raise SourceError(
        f"{source}: is a saved Python object (torch.save or pickle), which is never loaded, as it can run any code; "
        f"if you trust it, load it in Python and pass the graph on: diskhop.from_pyg({call}, 'DEST')"
    )


def unknown_error(source: Path, kinds: Mapping[str, SourceKind]) -> SourceError:
    """Return the error for a source that no kind recognises. Raises SourceError for an archive."""
    if (source / MANIFEST_NAME).is_file():
        return SourceError(f"{source}: is a dataset of diskhop already; use it as it is: diskhop inspect {source}")
    if source.is_dir():
        return SourceError(f"{source}: format not recognised; {_advice_on_folder(source, kinds)}")
    with contextlib.suppress(DamageError):
        open_text(source).close()  # an archive is refused with the command that unpacks it
    return SourceError(f"{source}: format not recognised; {_advice_on_file(source)}")


def _advice_on_file(path: Path) -> str:
    suffix = Path(plain_name(path.name)).suffix.lower()
    if suffix in _NETWORKX:
        target = path.with_suffix(".tsv").name
        code = (
            f"import networkx as nx; nx.write_edgelist(nx.{_NETWORKX[suffix]}({str(path)!r}), {target!r}, "
            "delimiter='\\t', data=False)"
        )
        return f"convert it to edges: python -c {shlex.quote(code)}, then import {target} with --no-header"
    if suffix in _OTHERS:
        return f"{suffix} files are not read; save the edges as CSV or Parquet, with columns source and destination"
    with path.open("rb") as stream:
        is_text = b"\0" not in stream.read(_SAMPLE_BYTES)
    if is_text or plain_name(path.name) != path.name:
        return "if it is a text with one edge per line, name the format: --format edges"
    return "give a text with one edge per line, Parquet, or arrays in .npz or .npy"


def _advice_on_folder(folder: Path, kinds: Mapping[str, SourceKind]) -> str:
    folders = [path for path in islice(sorted(folder.iterdir()), _MOST_FOLDERS) if path.is_dir()]
    known = [path for path in folders if _is_known(path, kinds)]
    if known:
        return f"give the folder of the graph in it: {known[0]}"
    saved = next((path for path in folder.rglob("*.pt") if path.is_file()), None)
    if saved is not None:
        return (
            f"it has saved Python objects ({saved.relative_to(folder)}), which are never loaded; load the graph in "
            "Python and pass it to diskhop.from_pyg(data, 'DEST')"
        )
    return "give a folder with edges as text (.csv, .tsv, .txt), Parquet, or arrays in data.npz or .npy"


def _is_known(folder: Path, kinds: Mapping[str, SourceKind]) -> bool:
    try:
        return any(kind.detect(folder) for kind in kinds.values())
    except SourceError:
        return False


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(2)
    if start[:1] == _PICKLE and start[1:] in [bytes([each]) for each in _PROTOCOLS]:
        return True
    if start != _ZIP[:2] or path.suffix == ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.rpartition("/")[2] == "data.pkl" for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
