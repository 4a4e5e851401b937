"""Manifests of derived folders: JSON objects with a version and a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import json_checksum


def encode_manifest(content: Mapping[str, Any], version: int) -> bytes:
    """Return the content of a manifest file."""
    versioned = {"version": version, **content}
    return (json.dumps({**versioned, "checksum": json_checksum(versioned)}, indent=1) + "\n").encode()


def read_manifest(path: Path, version: int, what: str, remedy: str) -> dict[str, Any]:
    """Read a manifest file. what: kind of folder, and remedy: the next step, for errors.

    Raises ReadError; FormatError if the manifest is damaged or has another version.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}; give the folder of {what}") from error
    except (ValueError, RecursionError):
        raise FormatError(f"{path}: is damaged (not JSON); {remedy}") from None
    if not isinstance(content, dict) or content.get("version") != version:
        raise FormatError(f"{path}: is not a manifest of {what} of version {version}; {remedy}")
    if content.pop("checksum", None) != json_checksum(content):
        raise FormatError(f"{path}: is damaged (its checksum does not match); {remedy}")
    del content["version"]
    return content
