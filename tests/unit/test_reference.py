"""The reference has every public name with an example that runs, every option with help, and every kind of error."""

from __future__ import annotations

import doctest
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import diskhop
from diskhop.cli.commands import PANEL_OF
from extensions.docstrings import to_rst
from extensions.pictures import FOLDER, PICTURES
from extensions.reference import PYTHON_PAGES, commands, error_kinds, examples_of_commands, make_pages
from tests.runs import OPTIONS, small_graph

NAMES = sorted(set(diskhop.__all__) - {"__version__"})
# Their examples take milliseconds and start from my-graph alone. Others train, measure a disk or start processes.
FAST = (
    *("Dataset", "DiskhopError", "PathSpec", "PropagationSpec", "export", "generate", "inspect", "open_dataset"),
    "verify",
)
NEEDED = {"MLflowCallback": "mlflow", "WandbCallback": "wandb", "TensorBoardCallback": "tensorboardX"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in, with the graph that examples start from: my-graph."""
    folder = tmp_path_factory.mktemp("reference")
    before = Path.cwd()
    os.chdir(folder)
    small_graph(folder / "my-graph")
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """The folder, with what slow examples start from as well: no-features, typed-graph, run and embedded."""
    diskhop.generate("typed", "typed-graph", shape="company", nodes=300, dim=8, memory="200MB")
    diskhop.generate("uniform", "no-features", nodes=600, edges=2400, dim=0, memory="200MB")
    diskhop.train("my-graph", **{**OPTIONS, "epochs": 1}, seed=0, out="run")
    diskhop.embed("my-graph", model="dot", dim=8, epochs=1, memory="200MB", seed=0, out="embedded")
    return folder


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(diskhop, name)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    examples = examples_of(name)
    assert examples, f"end the docstring of diskhop.{name} with an example after '>>>'"
    assert name.lower() in "".join(each.source for each in examples).lower()


@pytest.mark.parametrize("name", FAST)
def test_an_example_runs(name: str, folder: Path) -> None:
    run_examples(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in NAMES if each not in FAST])
def test_an_example_that_takes_seconds_runs(name: str, trained: Path) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    run_examples(name)


def run_examples(name: str) -> None:
    test = doctest.DocTest(examples_of(name), {"diskhop": diskhop}, name, None, None, None)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


def test_every_public_name_is_on_one_page() -> None:
    shown = [name for _, names in PYTHON_PAGES.values() for name in names]
    assert sorted(shown) == sorted(diskhop.__all__), "add the name to PYTHON_PAGES in docs/extensions/reference.py"


def test_every_command_option_and_error_is_on_its_page() -> None:
    pages = make_pages()
    for name, command in commands().items():
        page = pages[f"commands/{name}"]
        for each in command.params:
            assert each.help, f"{name} {each.name}"
            if each.opts[0].startswith("-"):
                shown = re.escape(", ".join([*each.opts, *each.secondary_opts]))
                assert re.search(rf"^`+{{option}} {shown}( .*)?\n\S", page, re.M), f"{name} {each.opts}"
    for kind in error_kinds().values():
        assert re.search(rf"^## {kind.__name__}\n\n.*exit code [12]\.", pages["errors"], re.M)
    raised = set(re.findall(r"^class (\w+Error)\(", Path(inspect.getfile(diskhop.DiskhopError)).read_text(), re.M))
    assert raised <= {kind.__name__ for kind in error_kinds().values()}


def test_every_command_is_shown_once() -> None:
    shown = examples_of_commands()
    assert set(shown) == set(PANEL_OF), "every command has a line in docs/reference/every-command.md"


def test_docstrings_become_lists_and_code() -> None:
    """Names become a list, examples lose their prompts, and no character is markup by accident."""
    text = "Do it for all_ *.\n\nname, other: a `path`,\n    of 2 lines.\n\n>>> f(\n...     1\n... )\n2\n\nEnd."
    assert [line for line in to_rst(text.splitlines()) if line] == [
        r"Do it for all\_ \*.",
        "* ``name``, ``other``: a ``path``,",
        "  of 2 lines.",
        "End.",
        ".. code-block:: python",
        "   f(",
        "       1",
        "   )",
        "   # 2",
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_is_drawn(name: str) -> None:
    again = "if this is meant, write it with: python docs/extensions/pictures.py"
    assert (FOLDER / f"{name}.svg").read_text() == PICTURES[name](), again
