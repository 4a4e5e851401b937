"""HTML pages taken apart, to see that names in them are text."""

from __future__ import annotations

import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# Elements without an end.
_VOID = {"meta", "link", "br", "hr", "img", "input"}
# What runs in a browser, if it becomes an element.
CODE = "<img src=x onerror=\"document.body.dataset.broken='yes'\"></script><script>document.body.dataset.broken='yes'"
_MARKS = "\"'&amp;{{7*7}}\n\t\u202e\u2028"
# Names of datasets are printable.
PRINTABLE = f"{CODE}</script>\"'&amp;"
# In a file's name there is no slash, and no NUL.
ODD_FILE = f"{CODE.replace('/', '')}{_MARKS}"
ODD_NAME = f"{CODE}</script>{_MARKS}\0"


class Page(HTMLParser):
    """The elements, texts and scripts of a page.

    tags: of its elements, in order.
    attributes: of all elements, as pairs.
    scripts: contents of its scripts, by type.
    text: everything that is shown.
    """

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: dict[str, list[str]] = {}
        self.text = ""
        self._open: list[str] = []
        self._script: str | None = None
        self.feed(content)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "script":
            self._script = dict(attrs).get("type") or "code"

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"a name has closed an element: {tag}"
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts.setdefault(self._script, []).append(data)

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The charts' data and layouts."""
        return [json.loads(each) for each in self.scripts.get("application/json", [])]


def require_safe(content: str) -> Page:
    """Parse a page and check that nothing in it is an element, an attribute or code but the template's own."""
    page = Page(content)
    assert set(page.tags) <= {
        *("html", "head", "meta", "title", "link", "style", "body", "main", "h1", "h2", "h3", "p", "div", "section"),
        *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary", "script"),
    }, set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name == "src"], names
    # Plotly, and what draws with it.
    assert len(page.scripts.get("code", [])) <= 1
    assert len(page.scripts.get("text/plain", [])) <= 1
    for figure in page.figures:
        assert "<" not in json.dumps({**figure, "data": _without_templates(figure["data"])}), "plotly has markup"
    assert not {"\0", "\u202e"} & set(content), "control characters and marks of direction are spelt out"
    return page


def dump_dom(chromium: str, page: Path, profile: Path) -> str:
    """Return the document of a page after its scripts ran."""
    command = [
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000",
        f"--user-data-dir={profile}", page.resolve().as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout


def _without_templates(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in trace.items() if name != "hovertemplate"} for trace in traces]
