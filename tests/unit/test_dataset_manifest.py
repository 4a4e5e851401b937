"""A manifest is read only if every byte of it makes sense; anything else is one FormatError."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.dataset.manifest_file import parse_manifest
from diskhop.errors import FormatError
from diskhop.io.checksums import digest_bytes

GOLDEN = [Path(__file__).parents[1] / "golden" / name / "manifest.json" for name in ("plain", "typed")]
DOCUMENTS = [json.loads(path.read_bytes()) for path in GOLDEN]


def sealed(document: Any) -> bytes:
    """The document as a manifest with a right checksum, as only a hostile or a newer writer would make it."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    encoded = (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()
    content["checksum"] = f"{digest_bytes(encoded):016x}"
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in entries:
        yield (*path, key)
        yield from places(child, (*path, key))


def changed(document: Any, path: tuple[Any, ...], change: Any) -> Any:
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return document


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just("../up"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("path", GOLDEN, ids=["plain", "typed"])
def test_reading_and_writing_are_inverse(path: Path) -> None:
    assert parse_manifest(path.read_bytes(), "m").to_bytes() == path.read_bytes()


def read_or_refused(content: bytes) -> None:
    """Either the manifest is read as it stands, or one line says what is wrong."""
    try:
        rewritten = parse_manifest(content, "m").to_bytes()
    except FormatError as refusal:
        message = str(refusal)
    else:
        assert rewritten == content
        return
    assert message.startswith("m: ")
    assert "\n" not in message


@given(data=st.data())
def test_any_value_replaced_by_any_other_is_read_or_refused(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(DOCUMENTS))
    path = data.draw(st.sampled_from(list(places(original))))
    junk = data.draw(JUNK)
    read_or_refused(sealed(changed(original, path, lambda parent, key: parent.__setitem__(key, junk))))


@given(data=st.data())
def test_any_key_removed_is_optional_or_missed(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(DOCUMENTS))
    path = data.draw(st.sampled_from(list(places(original))))
    read_or_refused(sealed(changed(original, path, lambda parent, key: parent.pop(key))))


@given(content=st.binary(max_size=40) | st.text(alphabet='{}[]":,0123456789eE.-ntf \\u', max_size=40).map(str.encode))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_manifest(content, "m")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b'{"format": Infinity}',
        b"9" * 10_000,
        b'{"a": 1, "a": 2}',
        b"\xff\xfe",
    ],
    ids=["lists", "objects", "nan", "infinity", "digits", "twice", "utf16"],
)
def test_hostile_json_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError, match="m: "):
        parse_manifest(content, "m")


@given(place=st.integers(0, len(GOLDEN[0].read_bytes()) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed(place: int, bit: int) -> None:
    content = bytearray(GOLDEN[0].read_bytes())
    content[place] ^= 1 << bit
    with pytest.raises(FormatError):
        parse_manifest(bytes(content), "m")


def test_whitespace_alone_is_noticed() -> None:
    with pytest.raises(FormatError, match="does not match its checksum"):
        parse_manifest(GOLDEN[0].read_bytes().replace(b"\n ", b"\n  ", 1), "m")


@pytest.mark.parametrize(
    "path", [(), ("node_types", "node"), ("node_types", "node", "features"), ("edge_types", "edge")]
)
def test_unknown_keys_are_kept_where_they_stand(path: tuple[str, ...]) -> None:
    content = sealed(changed(DOCUMENTS[0], (*path, "colour"), lambda parent, key: parent.__setitem__(key, {"a": [1]})))
    assert b'"colour"' in content
    assert parse_manifest(content, "m").to_bytes() == content


def test_a_manifest_too_long_to_be_one_is_refused_unread() -> None:
    with pytest.raises(FormatError, match="m: is longer than 67108864 bytes"):
        parse_manifest(bytes((64 << 20) + 1), "m")


def test_a_newer_version_is_refused_by_its_number_whatever_else_changed() -> None:
    with pytest.raises(
        FormatError, match="made by a newer diskhop: format version 2, this one reads 1; update diskhop"
    ):
        parse_manifest(b'{"format": "diskhop dataset", "format_version": 2}', "m")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("format",), "parquet", "not the manifest of a diskhop dataset"),
        (("format_version",), 0, "'format_version' must be a whole number from 1"),
        (("format_version",), True, "'format_version' must be a whole number"),
        (("name",), "two\nlines", "'name' must be 1 to 200 printable characters"),
        (("node_types", "node", "count"), -1, "'count' must be a whole number from 0"),
        (("node_types", "node", "count"), 2**48 + 1, "'count' must be a whole number from 0"),
        (("node_types", "node", "count"), 13, "its types call for"),
        (("node_types", "node", "features", "row_stride"), 1, "'row_stride' must be a whole number from 8"),
        (("node_types", "node", "features", "dtype"), "float64", "'dtype' must be one of float32, float16"),
        (("edge_types", "edge", "source"), "paper", "'source' must be one of node, got 'paper'"),
        (("edge_types", "edge", "index_dtype"), "int64", "'index_dtype' must be one of uint32"),
        (("edge_types", "edge", "weights"), False, "'weights' must be true or absent, got False"),
        (("edge_types", "edge", "weights"), True, "lists no file 'edges/edge/weights.bin'"),
        (("node_types", "..", "count"), 1, "must have names of letters"),
        (("files", "../outside.bin"), {"bytes": 0, "xxh3_64": "0" * 16}, "must have names of letters"),
        (("files", "/etc/passwd"), {"bytes": 0, "xxh3_64": "0" * 16}, "must have names of letters"),
        (("files", "manifest.json"), {"bytes": 0, "xxh3_64": "0" * 16}, "cannot hold its own checksum"),
        (("files", "edges/edge/indptr.bin", "xxh3_64"), "zz", "'xxh3_64' must be 16 hex digits"),
        (("checksums", "bytes"), 16, "'checksums.bin' with 16 bytes, its files call for"),
    ],
)
def test_each_rule_names_itself(path: tuple[str, ...], value: Any, words: str) -> None:
    def put(parent: Any, key: str) -> None:
        parent[key] = value

    document = copy.deepcopy(DOCUMENTS[0])
    if path[:2] == ("node_types", ".."):
        document["node_types"][".."] = {}
    with pytest.raises(FormatError) as caught:
        parse_manifest(sealed(changed(document, path, put)), "m")
    assert words in str(caught.value)
