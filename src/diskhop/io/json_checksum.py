"""The checksum of a document that is stored as JSON, whatever the order and spacing that it is written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash


def json_checksum(content: Mapping[str, Any]) -> str:
    """16 hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{xxhash.xxh3_64_intdigest(text.encode()):016x}"
