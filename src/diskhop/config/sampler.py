"""Rules of a run's sampler: which options go with which."""

from __future__ import annotations

from typing import Any

from diskhop.errors import ConfigError

NEIGHBOR = "neighbor"
LABOR, LADIES, FASTGCN = IMPORTANCE = ("labor", "ladies", "fastgcn")
# Names of the registry's samplers that training has.
SAMPLERS = (NEIGHBOR, *IMPORTANCE)
# Draw a number of nodes per hop, for all lists together.
LAYER_WISE = (LADIES, FASTGCN)
# Options with a value that says: not given.
_OF_NEIGHBOR = {"weighted": False, "replace": False, "subgraph_type": "directional"}


def check_sampler(config: Any) -> None:
    """Raise ConfigError for options that do not go with the sampler. config: a SampledConfig."""
    sampler = config.sampler
    if config.importance and sampler != LABOR:
        raise ConfigError(f"--importance {config.importance} is for --sampler labor, got {sampler}: remove it")
    if config.batch_dependency > 1 and sampler not in IMPORTANCE:
        raise ConfigError(
            f"--batch-dependency {config.batch_dependency} is for --sampler {', '.join(IMPORTANCE)}, got {sampler}: "
            "remove it, or use --sampler labor"
        )
    for name, usual in _OF_NEIGHBOR.items():
        if sampler != NEIGHBOR and getattr(config, name) != usual:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} is for --sampler neighbor, got {sampler}: remove {flag}, or --sampler {sampler}")
    if config.model == "gat" and (sampler in LAYER_WISE or config.importance):
        how = f"--sampler {sampler}" + (" --importance 1" if config.importance else "")
        raise ConfigError(
            f"gat weighs edges itself, and {how} gives them weights that sums need: use --model sage or gcn, or "
            "--sampler neighbor or labor"
        )
