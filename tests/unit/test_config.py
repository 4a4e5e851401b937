"""A configuration is whole and within its rules, or refused in one line."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.config.hop import HopConfig
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import check_options, differing_options, dump_config, load_config, options_of
from diskhop.config.parse import absolute_path, resolved_path
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError
from diskhop.nn.models import HOP_MODELS, LAYERS, config_kind
from diskhop.runs.choices import list_presets
from diskhop.runs.nodes.defaults import PRESETS, load_preset

WHOLE = SampledConfig(
    model="sage",
    layers=2,
    hidden=64,
    norm="none",
    dropout=0.5,
    task="classification",
    loss="cross-entropy",
    metric="accuracy",
    fanout=(10, -1),
    eval_fanout=(-1, -1),
    batch_size=100,
    eval_batch_size=200,
    epochs=3,
    memory_bytes=10**9,
    store="direct",
    engine="threads",
    threads=2,
    lr=0.1 + 0.2,
)
WHOLE_OF_HOPS = HopConfig(
    **{name: value for name, value in asdict(WHOLE).items() if name in options_of(TrainConfig) and name != "model"},
    model="sign",
    hops=3,
    operators=("sign", "ppr:alpha=0.1"),
    direction="both",
    dtype="float16",
    shuffle="chunks",
    chunk_rows=64,
    placement="disk",
)


@pytest.mark.parametrize("whole", [WHOLE, WHOLE_OF_HOPS], ids=["sampled", "hops"])
def test_a_written_configuration_reads_back_the_same(tmp_path: Path, whole: TrainConfig) -> None:
    path = tmp_path / "config.toml"
    path.write_text(dump_config(whole, "node", "/data/ü graph", "abc"))
    saved = load_config(path, KINDS)
    assert config_kind(whole.model)(**saved.options) == whole
    assert (saved.dataset, saved.dataset_hash) == ("/data/ü graph", "abc")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"layers": 0}, "layers must be from 1 to 100, got 0"),
        ({"layers": 3}, "fanout must be one count for each of 3 layers"),
        ({"fanout": (10, 0)}, "fanout must be counts from 1 to 2147483647, or -1 for all .*, got \\[10, 0\\]"),
        ({"eval_fanout": (-2, 1)}, "eval_fanout must be counts from 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"input_dropout": -0.1}, "input_dropout must be"),
        ({"lr": 0.0}, "lr must be more than 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be more than 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"batch_size": 0}, "batch_size must be from 1 to 2147483647, got 0"),
        ({"epochs": 0}, "epochs must be from 1"),
        ({"patience": -1}, "patience must be from 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"threads": 0}, "threads must be from 1 to 1024"),
        ({"memory_bytes": 0}, "memory_bytes must be from 1"),
        ({"model": "gat", "hidden": 12}, "hidden must be a multiple of 8 heads, got 12"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replace(WHOLE, **changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hops": 0}, "hops must be from 1 to 100, got 0"),
        ({"operators": ()}, "operators must be one operator or several, got \\[\\]"),
        ({"direction": "up"}, "direction must be one of in, out, both, got 'up'"),
        ({"dtype": "int8"}, "dtype must be one of float32, float16, bfloat16, got 'int8'"),
        ({"shuffle": "columns"}, "shuffle must be one of auto, rows, chunks, got 'columns'"),
        ({"placement": "cloud"}, "placement must be one of auto, device, memory, disk, got 'cloud'"),
        ({"chunk_rows": 0}, "chunk_rows must be from 1 to 2147483647, got 0"),
        ({"model": "hoga", "hidden": 12}, "hidden must be a multiple of 8 heads, got 12"),
    ],
)
def test_what_cannot_work_with_hops_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replace(WHOLE_OF_HOPS, **changes)


def test_an_unknown_option_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"a\.toml: unknown option 'epoch' \(did you mean 'epochs'\?\).*batch_size"):
        check_options({"epoch": 3}, "a.toml", KINDS)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("epochs", "3", "a whole number"),
        ("epochs", 3.0, "a whole number"),
        ("epochs", True, "a whole number"),
        ("lr", "fast", "a number"),
        ("evaluate", 1, "true or false"),
        ("model", 5, "a string"),
        ("fanout", 10, "a list of whole numbers"),
        ("fanout", [10, 2.5], "a list of whole numbers"),
    ],
)
def test_an_option_of_another_type_is_refused(name: str, value: object, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"here: {name} must be {kind}, got"):
        check_options({name: value}, "here", KINDS)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("batch_size", 0, "from 1 to 2147483647, got 0"),
        ("layers", 101, "from 1 to 100, got 101"),
        ("fanout", [3, -2], "counts from 1"),
        ("lr", float("inf"), "more than 0, got inf"),
        ("memory_bytes", 2**63, "from 1 to 9223372036854775807"),
    ],
)
def test_an_option_out_of_its_range_is_refused_where_it_stands(name: str, value: object, rule: str) -> None:
    with pytest.raises(ConfigError, match=f"here: {name} must be {rule}"):
        check_options({name: value}, "here", KINDS)


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lr must be a number, got 1000.*0000$"):
        check_options({"lr": 10**400}, "here", KINDS)


def test_whole_numbers_pass_for_floats_and_lists_for_tuples() -> None:
    assert check_options({"lr": 1, "fanout": [5, -1]}, "here", KINDS) == {"lr": 1.0, "fanout": (5, -1)}


def test_a_configuration_keeps_plain_values_of_what_means_the_same() -> None:
    made = replace(WHOLE, batch_size=np.int64(10), lr=np.float32(0.5), fanout=[np.int32(5), -1])  # type: ignore[arg-type]
    assert (made.batch_size, made.lr, made.fanout) == (10, 0.5, (5, -1))
    assert [type(value) for value in (made.batch_size, made.lr, made.fanout[0])] == [int, float, int]
    with pytest.raises(ConfigError, match="batch_size must be a whole number, got True"):
        replace(WHOLE, batch_size=True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"epochs = ", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"dataset = 3", "dataset must be a string"),
        (b"[gcn]\nlr = 1", "unknown option 'gcn'"),
        (b"fanout = " + b"[" * 100_000, "is nested too deeply"),
        (b"lr" + b".a" * 5_000 + b" = 1", "lr must be a number, got"),
        (b"lr = 1" + b"0" * 400, "lr must be a number, got 1000"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"c\.toml: {complaint}"):
        load_config(path, KINDS)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_config(tmp_path / "none.toml", KINDS)


def test_options_that_differ_are_named() -> None:
    assert differing_options(asdict(WHOLE), replace(WHOLE, epochs=4, seed=1)) == ["epochs", "seed"]


@pytest.mark.parametrize("preset", ["cora", "oewn", "tolokers"])
@pytest.mark.parametrize("model", [None, *LAYERS, *HOP_MODELS])
def test_a_preset_is_valid_for_every_model(preset: str, model: str | None) -> None:
    options = load_preset(preset, model)
    assert options["model"] == (model or tomllib.loads(text_of(preset))["model"])
    if model in HOP_MODELS:
        replace(WHOLE_OF_HOPS, **options)
        return
    layers = options["layers"]
    for name in ("fanout", "eval_fanout"):
        counts = options[name]
        options[name] = counts * layers if len(counts) == 1 else counts
    replace(WHOLE, **options)


def text_of(preset: str) -> str:
    return (PRESETS / f"{preset}.toml").read_text()


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"unknown preset 'coral' .*'cora'.*{', '.join(list_presets(PRESETS))}"):
        load_preset("coral")


def test_an_empty_path_is_not_given() -> None:
    assert absolute_path("") == resolved_path("") == ""
    assert absolute_path("scratch") == str(Path.cwd() / "scratch")
