"""Options that a run does not have, by its graph, task and model: refused by their flags, with what they are for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.options import check_options, option_fields, options_of
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.models import HOP_MODELS, LAYERS
from diskhop.nn.typed.models import TYPED_MODELS

# Configurations of runs on nodes with their models, of graphs with one type and with several.
_ONE_TYPE: Mapping[type[TrainConfig], Collection[str]] = {SampledConfig: LAYERS, HopConfig: HOP_MODELS}
_SEVERAL_TYPES: Mapping[type[TrainConfig], Collection[str]] = {TypedConfig: TYPED_MODELS, TypedHopConfig: HOP_MODELS}
_LINKS = (LinkConfig, TypedLinkConfig)


def check_training_options(options: Mapping[str, Any], kind: type[TrainConfig]) -> dict[str, Any]:
    """Check options of any kind of training, as check_options(); kind: the one whose rules come first."""
    return check_options(options, "training", (kind, *_ONE_TYPE, *_SEVERAL_TYPES, *_LINKS))


def require_fitting(dataset: Dataset, given: Mapping[str, Any], kind: type[TrainConfig], run: str) -> None:
    """Refuse options that runs of a kind do not have.

    given: by name, as check_training_options() returns them. run: the kind in words, as "model 'sage'".
    """
    for name in given:
        if name not in options_of(kind):
            raise ConfigError(f"{_flag(name)} {_purpose(dataset, name, is_link=kind in _LINKS, run=run)}: remove it")


def _purpose(dataset: Dataset, name: str, *, is_link: bool, run: str) -> str:
    """Return what an option is for, in words."""
    nodes, other_nodes = _ONE_TYPE, _SEVERAL_TYPES
    other_links: type[LinkConfig] = TypedLinkConfig
    others = f"is for graphs with several types, and {dataset.path} has one"
    if dataset.has_several_types:
        nodes, other_nodes, other_links = _SEVERAL_TYPES, _ONE_TYPE, LinkConfig
        others = f"is for graphs of one type, and {dataset.path} has several"
    if is_link:
        return others if name in options_of(other_links) else f"has no effect on {run}"
    models = [model for kind, models in nodes.items() if name in options_of(kind) for model in models]
    if models:
        return f"is for {', '.join(models)}, not for {run}"
    return others if any(name in options_of(kind) for kind in other_nodes) else f"has no effect on {run}"


def _flag(name: str) -> str:
    kinds = (*_ONE_TYPE, *_SEVERAL_TYPES, *_LINKS)
    return next(option_fields(kind)[name].main_flag for kind in kinds if name in options_of(kind))
