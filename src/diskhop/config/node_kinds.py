"""The configurations of runs on nodes, in the order in which an option is looked up."""

from __future__ import annotations

from diskhop.config.hop import HopConfig
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.config.typed import TypedConfig

KINDS: tuple[type[TrainConfig], ...] = (SampledConfig, HopConfig, TypedConfig)
