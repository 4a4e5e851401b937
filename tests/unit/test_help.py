"""The help is what its snapshots say, and names whatever an option can be."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from diskhop.cli.commands import PANEL_OF
from diskhop.cli.options import spell_options
from diskhop.config import learning
from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LINK_METRICS, LinkConfig
from diskhop.config.options import AUTO, option_fields
from diskhop.config.predict import PredictConfig
from diskhop.config.sampled import SampledConfig
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.scores import SCORES
from diskhop.generating.config import GraphConfig
from diskhop.hops.operators import OPERATORS
from diskhop.hops.spec import PropagationSpec
from diskhop.importing.options import ImportOptions
from diskhop.nn.decoders.decoders import DECODERS
from diskhop.nn.decoders.losses import LINK_LOSSES
from diskhop.nn.matmul.backends import BACKENDS
from diskhop.nn.matmul.products import PRECISIONS
from diskhop.nn.models import HOP_MODELS, LAYERS
from diskhop.nn.norms import NORMS
from diskhop.policies.orderings import ORDERS
from diskhop.runs.nodes.metrics import METRICS
from diskhop.stores.stores import STORES
from tests.golden.make_help import FOLDER, render_help

CONFIGS = (
    SampledConfig,
    HopConfig,
    LinkConfig,
    EmbedConfig,
    GraphConfig,
    ImportOptions,
    PropagationSpec,
    PredictConfig,
)
# Names that an option takes, which its help must list: what it can be is decided above the configuration.
NAMES = [
    (SampledConfig, "model", [*LAYERS, *HOP_MODELS]),
    (SampledConfig, "store", [AUTO, *STORES]),
    (SampledConfig, "norm", NORMS),
    (SampledConfig, "metric", METRICS),
    (SampledConfig, "loss", learning.LOSSES),
    (SampledConfig, "lr_schedule", learning.SCHEDULES),
    (SampledConfig, "precision", PRECISIONS),
    (SampledConfig, "matmul", BACKENDS),
    (LinkConfig, "decoder", DECODERS),
    (LinkConfig, "loss", LINK_LOSSES),
    (LinkConfig, "metric", LINK_METRICS),
    (HopConfig, "operators", OPERATORS),
    (EmbedConfig, "model", SCORES),
    (EmbedConfig, "loss", LOSSES),
    (EmbedConfig, "partition_order", [AUTO, *ORDERS]),
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render_help()


@pytest.mark.parametrize("name", ["diskhop", *PANEL_OF])
def test_the_help_is_its_snapshot(pages: dict[str, str], name: str) -> None:
    snapshot = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert pages[name] == snapshot, "if this is meant, write the snapshots with: python -m tests.golden.make_help"


def test_no_snapshot_is_left_of_a_command_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {"diskhop", *PANEL_OF}


@pytest.mark.parametrize(("kind", "option", "names"), NAMES, ids=[f"{kind.__name__}.{name}" for kind, name, _ in NAMES])
def test_the_help_of_an_option_lists_what_it_can_be(kind: type[Any], option: str, names: list[str]) -> None:
    words = option_fields(kind)[option].help.replace(",", " ").replace(".", " ").replace(":", " ").split()
    assert set(names) <= {word.removesuffix(";").removeprefix("(") for word in words}


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_option_says_what_it_is_and_its_example_follows_its_rule(kind: type[Any]) -> None:
    for name, option in option_fields(kind).items():
        if not option.is_declared:
            assert name == "kind", "the argument of 'generate'"
            continue
        assert option.help[0].isupper(), name
        assert option.help.endswith("."), name
        if option.rule is not None:
            assert option.check(option.rule.example, name) is not None, name


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("plan", CONFIGS[:4]), ("train", CONFIGS[:3]), ("pack", CONFIGS[:1]), ("predict", CONFIGS[7:])],
)
def test_commands_of_a_run_take_all_of_its_options(
    pages: dict[str, str], command: str, kinds: tuple[type[Any], ...]
) -> None:
    for kind in kinds:
        for field in fields(kind):
            assert f" {option_fields(kind)[field.name].main_flag} " in pages[command]


def test_options_are_written_as_the_command_line_takes_them() -> None:
    given = {
        "model": "sign",
        "memory_bytes": 1_500_000_000,
        "disk_bytes": 1001,
        "fanout": (10, -1),
        "operators": ("sign", "ppr:alpha=0.1"),
        "evaluate": False,
        "reuse": True,
    }
    words = "--model sign --memory 1500MB --disk 1001 --fanout 10,-1 --operator sign --operator ppr:alpha=0.1"
    assert spell_options(given, SampledConfig, HopConfig) == [*words.split(), "--no-eval", "--reuse"]
