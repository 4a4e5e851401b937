"""Everything a person reads is in plain words: no idioms of our own, no docstring that needs its surroundings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# An idiom, and the field's word for it.
IDIOMS = {
    r"on (?:its|their) way": "in flight",
    r"(?:go|goes|gone|going|went) on (?:from|with|by)": "resume",
    r"by heart": "memorise, overfit",
    r"read over": "merge reads",
    r"so many": "a number, or n",
    r"nobody(?:'s)?": "unused, not set",
    r"anew": "again",
    r"as asked": "requested",
    r"told": "reported, given, distinguished",
    r"brought beside": "moved next to",
    r"beside": "next to, in addition to",
    r"dealt (?!with)|dealing(?! with)": "partitioned, permuted, assigned",
    r"(?:is|are|be) let in": "admitted",
    r"put together": "assembled",
    r"round and round": "repeatedly",
    r"in turns|takes? turns": "alternately",
    r"of use": "useful",
    r"made-up": "generated, random",
}
IDIOM = re.compile(
    "|".join(rf"(?P<i{number}>\b(?:{idiom})(?!\w))" for number, idiom in enumerate(IDIOMS)), re.IGNORECASE
)
# A docstring begins with a verb or a noun.
LEANING = re.compile(r"(?:At|By|For each of|Of|That|What|Who|Whom|Whose)\b")


def find_files(pattern: str, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob(pattern))


TEXTS = [
    *find_files("*.py", "src"),
    *find_files("*.pyi", "src"),
    *find_files("*.md", "docs"),
    *find_files("*.?pp", "native"),
    *find_files("*.html", "src"),
    *find_files("*.toml", "src"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]


def idioms_in(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for match in IDIOM.finditer(line):
            word = list(IDIOMS.values())[int((match.lastgroup or "i0")[1:])]
            yield f"{path.relative_to(ROOT)}:{number}: '{match.group()}': say {word}"


def docstrings_in(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring; of C++, of each comment that begins with three slashes."""
    if path.suffix in (".hpp", ".cpp"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.strip().startswith("/// ") and not lines[number - 1].strip().startswith("///"):
                yield number + 1, line.strip().removeprefix("/// ")
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def by_folder(paths: list[Path]) -> dict[str, list[Path]]:
    """Files by their folder: a test each would take longer than what it looks at."""
    folders: dict[str, list[Path]] = {}
    for path in paths:
        folders.setdefault(str(path.parent.relative_to(ROOT)), []).append(path)
    return folders


TEXTS_BY_FOLDER = by_folder(TEXTS)
WITH_DOCSTRINGS = by_folder(
    [path for path in [*TEXTS, *find_files("*.py", "tests")] if path.suffix in (".py", ".pyi", ".hpp", ".cpp")]
)


@pytest.mark.parametrize("folder", TEXTS_BY_FOLDER)
def test_texts_use_the_fields_words(folder: str) -> None:
    found = [each for path in TEXTS_BY_FOLDER[folder] for each in idioms_in(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", WITH_DOCSTRINGS)
def test_docstrings_stand_alone(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in WITH_DOCSTRINGS[folder]
        for line, text in docstrings_in(path)
        if LEANING.match(text)
    ]
    assert not found, "begin with a verb or a noun:\n" + "\n".join(found)
