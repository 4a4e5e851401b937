"""The kinds of source that `diskhop import` knows. A new kind is one file or folder, and a line here."""

from __future__ import annotations

from diskhop.importing.arrays.source import ARRAYS
from diskhop.importing.arrays.typed_files import TYPED_FILES
from diskhop.importing.arrays.typed_folders import TYPED_FOLDERS
from diskhop.importing.graphbolt.source import GRAPHBOLT
from diskhop.importing.ntriples.source import NTRIPLES
from diskhop.importing.ogb import OGB
from diskhop.importing.pbg.source import PBG
from diskhop.importing.source import SourceKind
from diskhop.importing.tables.source import TABLES
from diskhop.importing.text.source import EDGES
from diskhop.importing.triples.source import TRIPLES

# In the order of detection: the first kind that recognises a source opens it.
SOURCES: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (GRAPHBOLT, TYPED_FILES, ARRAYS, OGB, TYPED_FOLDERS, PBG, NTRIPLES, TRIPLES, TABLES, EDGES)
}
