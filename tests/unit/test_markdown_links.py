"""Relative links of the repository's Markdown lead to files that exist, and to headings that those have."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Made by `make docs`, which checks its links itself.
GENERATED = ("docs/_build", "docs/reference/generated")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$|`[^`\n]+`", re.M | re.S)


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")]
    found += [each for folder in ("docs", "benchmarks", "examples") for each in (ROOT / folder).rglob("*.md")]
    return [each for each in found if not str(each.relative_to(ROOT)).startswith(GENERATED)]


@cache
def anchors_of(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    fenced = re.sub(r"^( *)(`{3,}).*?^\1\2 *$", "", path.read_text(), flags=re.M | re.S)
    anchors: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", fenced, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in anchors:
            number += 1
        anchors.add(anchor)
    return anchors


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if path.is_relative_to(ROOT / "docs/reference/generated"):
            continue
        missing = not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors_of(path))
        if missing:
            broken.append(f"{page}: {target}")
    return broken


def test_relative_links_lead_somewhere() -> None:
    found = pages()
    assert len(found) > 40
    broken = [each for page in found for each in broken_links(page)]
    assert not broken, "\n".join(broken)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Of `two`: words\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#of-two-words) `[b](no.md)` [c](gone.md) [d](other.md#gone) [e](https://x.y)\n")
    assert [each.rpartition(": ")[2] for each in broken_links(page)] == ["gone.md", "other.md#gone"]
