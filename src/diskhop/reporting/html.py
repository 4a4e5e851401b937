"""Self-contained HTML pages from templates: no network, no other file, and no name that is more than text."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from diskhop.budget import format_bytes
from diskhop.display import visible_text
from diskhop.errors import ConfigError
from diskhop.io.destinations import new_file, require_new_file
from diskhop.reporting.figures import Figure
from diskhop.reporting.values import values_of

# Keys of plotly's data whose texts are ours, with its own markup.
_OWN_MARKUP = ("hovertemplate",)


def require_page(path: Path, flag: str, *, overwrite: bool) -> None:
    """Raise ConfigError unless a page can be written to a path, DestinationError if something is there already."""
    if path.suffix != ".html":
        raise ConfigError(f"{path}: a page is an .html file; use {flag} {path.with_suffix('.html')}")
    require_new_file(path, overwrite=overwrite)


def write_page(content: str, path: Path, *, overwrite: bool) -> Path:
    """Write a page, whole or not at all; return its path."""
    # Names may hold halves of surrogate pairs, which no file can.
    encoded = content.encode("utf-8", "backslashreplace")
    with new_file(path, overwrite=overwrite) as partial:
        partial.write_bytes(encoded)
    return path


def render_page(template: str, **content: Any) -> str:
    """Return the page of a template of this folder. content: what the template shows, by name."""
    return _environment().get_template(template).render(**content)


def plotly_for(*groups: Any) -> str:
    """Return plotly.js for a page if any group of figures has some, else nothing."""
    return _plotly() if any(groups) else ""


def visible(value: Any) -> Any:
    """Return a text whose control characters and marks of direction are spelt out; others unchanged."""
    return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("diskhop.reporting", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=visible,
    )
    environment.filters["bytes"] = format_bytes
    environment.filters["json"] = script_json
    environment.filters["values"] = values_of
    return environment


def script_json(figure: Figure) -> str:
    """Return JSON that is safe inside a script element, whatever names it contains."""
    document = {"data": [_plain(trace) for trace in figure.data], "layout": _plain(figure.layout)}
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plain(value: Any) -> Any:
    """Return data of plotly whose texts are not taken for its markup, and without NaN, which JSON does not have."""
    if isinstance(value, str):
        return visible(value).replace("&", "&amp;").replace("<", "&lt;")
    if isinstance(value, Mapping):
        return {key: each if key in _OWN_MARKUP else _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


@cache
def _plotly() -> str:
    """Return plotly.js, compressed for the browser to unpack: a page has 2 MB instead of 5."""
    source = files("plotly") / "package_data" / "plotly.min.js"
    return base64.b64encode(gzip.compress(source.read_bytes(), mtime=0)).decode()
