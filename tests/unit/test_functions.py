"""Every command has a function that takes the same words and shows what it returns."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import diskhop
from diskhop.cli.app import app
from diskhop.cli.commands import PANEL_OF, load_commands
from diskhop.config.options import option_fields
from diskhop.config.sampled import SampledConfig
from diskhop.config.words import takes_words, word_of
from diskhop.display import Curves, Display, Facts, Grid
from diskhop.errors import ConfigError

FUNCTIONS = {name: {"import": "import_graph"}.get(name, name) for name in PANEL_OF}
# Words of commands alone, and what there is in Python instead.
OF_COMMANDS = {
    "json": "the result itself",
    "tensorboard": "callbacks=",
    "processes": "torchrun",
    "search": "diskhop.search()",
}


@cache
def commands() -> Any:
    load_commands([])
    return get_command(app).commands  # type: ignore[attr-defined]


def words_of(command: str) -> set[str]:
    words = set()
    for parameter in commands()[command].params:
        is_option = parameter.opts[0].startswith("--")
        words.add(parameter.opts[0].removeprefix("--").replace("-", "_") if is_option else parameter.name)
    return words


@pytest.mark.parametrize("command", PANEL_OF)
def test_a_function_takes_the_words_of_its_command(command: str) -> None:
    parameters = inspect.signature(getattr(diskhop, FUNCTIONS[command])).parameters
    taken = {"source" if name == "run" and command == "predict" else name for name in words_of(command)}
    missing = {word for word in taken if word not in parameters and word not in OF_COMMANDS}
    assert not missing
    assert FUNCTIONS[command] in diskhop.__all__


@pytest.mark.parametrize("command", PANEL_OF)
def test_a_function_documents_its_words(command: str) -> None:
    function = getattr(diskhop, FUNCTIONS[command])
    for word in inspect.signature(function).parameters:
        assert f"{word}:" in function.__doc__ or f"{word}," in function.__doc__, word


@takes_words(SampledConfig)
def options_of(dataset: str, **options: Any) -> dict[str, Any]:
    """Return the options."""
    return options


def test_words_become_options_and_text_is_parsed() -> None:
    given = options_of("g", memory="2GB", fanout="10,5", eval=False, scratch=Path("/scratch"), batch_size=3)
    assert given == {
        "memory_bytes": 2_000_000_000,
        "fanout": (10, 5),
        "evaluate": False,
        "scratch": "/scratch",
        "batch_size": 3,
    }
    assert options_of("g", memory_bytes=5, evaluate=True, cache=None) == {"memory_bytes": 5, "evaluate": True}
    assert options_of("g", unknown=1) == {"unknown": 1}
    with pytest.raises(ConfigError, match="memory and memory_bytes are the same option"):
        options_of("g", memory="2GB", memory_bytes=5)
    with pytest.raises(ConfigError, match="memory: "):
        options_of("g", memory="much")


@takes_words(SampledConfig)
def arguments_of(dataset: str, *, out: str, format: str = "npy", **options: Any) -> tuple[Any, ...]:
    """Return the arguments."""
    return dataset, out, format, options


@pytest.mark.parametrize("nothing", [None, ""])
def test_none_and_empty_text_are_no_values_of_any_option(nothing: Any) -> None:
    for option in option_fields(SampledConfig).values():
        assert options_of("g", **{word_of(option): nothing}) == {}, option.name
    assert arguments_of("g", out="o", format=nothing, fanout=nothing) == ("g", "o", "npy", {})
    assert arguments_of("g", out=nothing) == ("g", nothing, "npy", {}), "what must be given is the function's to refuse"
    assert options_of("g", unknown=nothing) == {"unknown": nothing}
    assert options_of("g", max_batches=0, eval=False, warmup=0) == {"max_batches": 0, "evaluate": False, "warmup": 0}


class Shown(Display):
    """A result with every kind of part."""

    def _title(self) -> str:
        return "<b>name</b>"

    def _parts(self) -> Any:
        return [
            Facts([("name", "<script>"), ("n", "1")]),
            Grid(["a<", "b"], [["1", "<i>"], ["22", "3"]]),
            Curves({"loss": [2.0, float("nan"), 1.0], "<valid>": [0.5, 0.75], "once": [1.0]}),
        ]


def test_a_result_shows_lines_and_escaped_html() -> None:
    assert repr(Shown()).splitlines() == [
        "<b>name</b>",
        "  name  <script>",
        "  n     1",
        "  a<  b",
        "  1   <i>",
        "  22  3",
    ]
    page = Shown()._repr_html_()
    for text in ("<script>", "<i>", "<valid>", "<b>name"):
        assert text not in page
    assert "&lt;script&gt;" in page
    assert page.count("<polyline") == 2
    assert "points='4.0,4.0 356.0,86.0'" in page, "a curve from the top left to the bottom right"
    assert "nan" not in page


def test_data_functions_return_results_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder of the new dataset is missing"):
        diskhop.generate("uniform")
    text = tmp_path / "edges.txt"
    text.write_text("0 1\n1 2\n2 0\n")
    dataset = diskhop.import_graph(text, tmp_path / "graph", undirected=True, memory="100MB")
    assert (dataset.num_nodes, dataset.num_edges) == (3, 6)
    assert "3" in repr(diskhop.inspect(dataset))
    verified = diskhop.verify(dataset)
    assert verified.is_whole
    assert "every checksum matches" in repr(verified)
    exported = diskhop.export(dataset, tmp_path / "out", memory="200MB")
    assert "edge_index.npy" in repr(exported)
    assert diskhop.clean(dataset, dry_run=True).entries == ()
    topology = tmp_path / "graph/edges/edge/indices.bin"
    topology.write_bytes(bytes(topology.stat().st_size))
    broken = diskhop.verify(tmp_path / "graph")
    assert [each.file for each in broken.damages] == ["edges/edge/indices.bin"]
