"""Names of columns that people and programs use, by the role that they tell.

Case, marks (`~from`, `:START_ID(Person)`), and words that add nothing (`FromNodeId`, `src_id`) are no difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["id", "index", "weight", "time", "type", "label", "split", "mask"]

_ENDS = {
    "source": ("target", "destination", "dest", "dst", "tgt", "sink"),
    "src": ("dst", "dest", "destination", "target", "tgt", "trg", "sink"),
    "from": ("to",),
    "head": ("tail",),
    "h": ("t",),
    "u": ("v",),
    "i": ("j",),
    "start": ("end", "stop"),
    "begin": ("end",),
    "origin": ("destination", "dest"),
    "follower": ("followee", "followed", "following"),
    "citing": ("cited",),
    "sender": ("receiver", "recipient"),
    "caller": ("callee",),
    "payer": ("payee",),
    "parent": ("child",),
    "subject": ("object",),
    "subj": ("obj",),
}
# The others are taken where none of these is there: start and end may be times of an edge.
_STRONG = ("source", "src", "from", "head", "follower")
# Words around the one that tells an end.
_FILLERS = ("node", "vertex", "entity", "id", "idx", "index", "key", "name", "user", "account", "address", "uri")
# Two columns with such a name and 1 and 2 after it are the ends of an edge.
_NUMBERED = re.compile(
    r"(|n|v|u|p|id|node|vertex|user|person|entity|word|item|protein|gene|author|page|end|member|actor|name)(1|2)"
)
_NEO4J = re.compile(r"[^:]*:(START_ID|END_ID|ID|TYPE|LABEL)(?:\((?P<space>[^)]*)\))?(?:\{.*\})?", re.I)
_INDEX = re.compile(r"|unnamed: ?\d+(\.\d+)*|__index_level_\d+__|level_\d+|index|row_?names?|row_?num(ber)?", re.I)
_PART = "train|training|val|valid|validation|test"
_MASK = re.compile(rf"(?:is_?)?(?P<part>{_PART})|(?P<masked>{_PART})_?mask(?:_?(?P<number>\d+))?", re.I)
PARTS = {"train": "train", "training": "train", "val": "valid", "valid": "valid", "validation": "valid", "test": "test"}
_OTHERS: dict[Role, frozenset[str]] = {
    "id": frozenset(
        [
            "id",
            "nodeid",
            "node",
            "vertexid",
            "vertex",
            "nid",
            "vid",
            "entityid",
            "edgeid",
            "eid",
            "linkid",
            "relid",
            "relationid",
            "relationshipid",
        ]
    ),
    "weight": frozenset(["weight", "weights", "w", "rating", "score", "amount", "strength", "similarity"]),
    "time": frozenset(["time", "timestamp", "ts", "date", "datetime"]),
    "type": frozenset(
        [
            "type",
            "relation",
            "relationtype",
            "rel",
            "reltype",
            "relationship",
            "predicate",
            "edgetype",
            "etype",
            "nodetype",
        ]
    ),
    "label": frozenset(["label", "labels", "y", "class", "classes", "target", "category", "nodelabel", "groundtruth"]),
    "split": frozenset(("split", "fold", "subset")),
}
# Which of several labels is taken: the first.
LABELS = ("label", "y", "class", "target")


class Ends(NamedTuple):
    """Positions of the columns of source and destination."""

    source: int
    destination: int


def find_ends(names: Sequence[str]) -> list[Ends]:
    """Find the columns that names tell to be source and destination: none, one pair, or several that tell it alike."""
    neo4j = [_neo4j_kind(name) for name in names]
    if neo4j.count("start_id") == neo4j.count("end_id") == 1:
        return [Ends(neo4j.index("start_id"), neo4j.index("end_id"))]
    cores = [_core(name) for name in names]
    for of_sources in (_STRONG, [each for each in _ENDS if each not in _STRONG]):
        found = set()
        for source in of_sources:
            for destination in _ENDS[source]:
                first, second = _pick(names, cores, source), _pick(names, cores, destination)
                if first is not None and second is not None:
                    found.add(Ends(first, second))
        if found:
            return sorted(found)
    joined = [joined_name(name) for name in names]
    numbered = [(place, _NUMBERED.fullmatch(name)) for place, name in enumerate(joined)]
    return [
        Ends(place, joined.index(f"{each[1]}2"))
        for place, each in numbered
        if each and each[2] == "1" and joined.count(f"{each[1]}2") == joined.count(each[0]) == 1
    ]


def end_of(name: str) -> str | None:
    """Say which end a name tells by itself: source or destination."""
    core = _core(name)
    if core in _ENDS or _neo4j_kind(name) == "start_id":
        return "source"
    is_destination = any(core in each for each in _ENDS.values()) or _neo4j_kind(name) == "end_id"
    return "destination" if is_destination else None


def is_end_name(name: str) -> bool:
    """Check whether a name is used for an end of an edge and hardly for anything else."""
    return _core(name) in ("source", "src", "target", "dst", "destination") or name.strip().lower() in ("~from", "~to")


def role_of(name: str) -> Role | None:
    """Say what a name tells about a column that is no end of edges."""
    if _INDEX.fullmatch(name.strip()):
        return "index"
    kind = _neo4j_kind(name)
    if kind is not None:
        return "id" if kind == "id" else "type" if kind in ("type", "label") else None
    if name.strip().lower() == "~label":  # of a graph database: the type of a node or edge
        return "type"
    joined = joined_name(name)
    if mask_of(name) is not None:
        return "mask"
    return next((role for role, known in _OTHERS.items() if joined in known), None)


def mask_of(name: str) -> tuple[str, int] | None:
    """Read the part and the number of a column that says which nodes are in a part, such as train_mask or is_test."""
    found = _MASK.fullmatch(name.strip())
    return (PARTS[(found["part"] or found["masked"]).lower()], int(found["number"] or 0)) if found else None


def id_space(name: str) -> str | None:
    """Read the group of ids that Neo4j's headers name, as Person in :START_ID(Person)."""
    found = _NEO4J.fullmatch(name.strip())
    return found["space"] if found else None


def _neo4j_kind(name: str) -> str | None:
    found = _NEO4J.fullmatch(name.strip())
    return found[1].lower() if found else None


def joined_name(name: str) -> str:
    """Return a name in lower case, without marks and blanks."""
    return re.sub(r"[\W_]+", "", name).lower()


def _core(name: str) -> str:
    """Take the words that add nothing off a name: FromNodeId is from."""
    core = joined_name(name)
    for _ in range(2):
        ending = next((each for each in _FILLERS if core.endswith(each) and core != each), "")
        core = core.removesuffix(ending)
    beginning = next((each for each in _FILLERS if core.startswith(each) and core != each), "")
    return core.removeprefix(beginning)


def _pick(names: Sequence[str], cores: Sequence[str], core: str) -> int | None:
    """Find the column of a core: the only one, else the one named so, else the one that says id."""
    places = [place for place, each in enumerate(cores) if each == core]
    exact = [place for place in places if joined_name(names[place]) == core]
    ids = [place for place in places if joined_name(names[place]).endswith("id")]
    return next((found[0] for found in (places, exact, ids) if len(found) == 1), None)
