"""Names of the samplers that training can use, and which options go with which."""

from __future__ import annotations

from typing import Any

from diskhop.config.options import option
from diskhop.config.rules import COUNT_OR_NONE
from diskhop.errors import ConfigError

NEIGHBOR = "neighbor"
LABOR, LADIES, FASTGCN = IMPORTANCE = ("labor", "ladies", "fastgcn")
# Draw a number of nodes per hop, for all lists together.
LAYER_WISE = (LADIES, FASTGCN)
SAINT_NODE, SAINT_EDGE, SAINT_WALK = SAINT = ("saint-node", "saint-edge", "saint-walk")
CLUSTER, MARIUS = "cluster", "marius"
# Draws a number of nodes of each type per hop, on graphs with several types.
HGT = "hgt"
# Samplers that choose the nodes of a batch, and take all edges among them.
CHOOSING = (*SAINT, CLUSTER)
# Samplers that arrange the batches of an epoch, which loaders of seed nodes cannot do.
ARRANGING = (*CHOOSING, MARIUS)
# Samplers with files of their own in --scratch.
WITH_FILES = CHOOSING
# Names of the registry's samplers that training has.
SAMPLERS = (NEIGHBOR, *IMPORTANCE, *ARRANGING, HGT)
# Of these, the ones for graphs with several types.
TYPED_SAMPLERS = (NEIGHBOR, LABOR, HGT)
_WEIGHS_EDGES = "weighs edges so that sums over all lists are unbiased, and models of several types take plain means"
_CHOOSES_NODES = "chooses nodes of all types for a batch, of which only one type has labels to learn"
# Why the others cannot sample a graph with several types.
WHY_NOT_TYPED = {
    LADIES: _WEIGHS_EDGES,
    FASTGCN: _WEIGHS_EDGES,
    **dict.fromkeys(SAINT, _CHOOSES_NODES),
    CLUSTER: _CHOOSES_NODES,
    MARIUS: "divides consecutive nodes into partitions, and nodes of one type are consecutive",
}
# Options that only some samplers have: the value that says: not given, and those samplers.
_OPTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "weighted": (False, (NEIGHBOR,)),
    "replace": (False, (NEIGHBOR,)),
    "subgraph_type": ("directional", (NEIGHBOR,)),
    "importance": (0, (LABOR,)),
    "batch_dependency": (1, IMPORTANCE),
    "walk_length": (0, (SAINT_WALK,)),
    "sample_coverage": (0, SAINT),
    "clusters": (0, (CLUSTER,)),
    "node_partitions": (0, (MARIUS,)),
    "resident_partitions": (0, (MARIUS,)),
}


def recounted_options(sampler: str) -> tuple[str, ...]:
    """Return options that count something else than neighbours, seed nodes or rounds of them, as presets do."""
    if sampler in CHOOSING:
        return ("fanout", "batch_size", "epochs")
    return ("fanout",) if sampler in (*LAYER_WISE, HGT) else ()


def own_count(help: str, shown: str) -> Any:
    """Return an option of one sampler, or a few. shown: what is chosen without it."""
    return option(0, help=help, rule=COUNT_OR_NONE, panel="Sampling", metavar="N", shown=shown)


def check_sampler(config: Any) -> None:
    """Raise ConfigError for options that do not go with the sampler. config: a SampledConfig."""
    sampler = config.sampler
    if config.HAS_TYPES:
        _check_typed(config)
    elif sampler == HGT:
        raise ConfigError(f"--sampler {HGT} is for graphs with several types of nodes: use --sampler {LABOR}")
    for name, (usual, users) in _OPTIONS.items():
        if getattr(config, name) != usual and sampler not in users:
            flag = f"--{name.replace('_', '-')}"
            given = getattr(config, name)
            shown = f"{flag} {given}" if type(given) is int else flag
            raise ConfigError(
                f"{shown} is for --sampler {', '.join(users)}, got {sampler}: remove it, or use --sampler {users[0]}"
            )
    if sampler in CHOOSING and any(count != -1 for count in config.fanout):
        raise ConfigError(
            f"--fanout is for samplers of neighbours, and --sampler {sampler} takes all edges among a batch's nodes: "
            "remove it, or use --fanout -1"
        )
    if config.model == "gat":
        _check_attention(config)


def _check_typed(config: Any) -> None:
    """Refuse samplers that graphs with several types cannot use."""
    sampler = config.sampler
    if sampler in WHY_NOT_TYPED:
        raise ConfigError(
            f"--sampler {sampler} is for graphs of one type: it {WHY_NOT_TYPED[sampler]}; use --sampler "
            f"{' or '.join(TYPED_SAMPLERS)}"
        )
    if config.importance:
        raise ConfigError(
            f"--importance {config.importance} {_WEIGHS_EDGES}: remove it, or use --sampler neighbor or hgt"
        )


def _check_attention(config: Any) -> None:
    """Refuse weights of edges, which attention has itself."""
    sampler = config.sampler
    if sampler in LAYER_WISE or config.importance:
        how = f"--sampler {sampler}" + (" --importance 1" if config.importance else "")
        raise ConfigError(
            f"gat weighs edges itself, and {how} gives them weights that sums need: use --model sage or gcn, or "
            "--sampler neighbor or labor"
        )
    if config.sample_coverage:
        raise ConfigError(
            f"gat weighs edges itself, and --sample-coverage {config.sample_coverage} gives them norms: remove it, or "
            "use --model sage or gcn"
        )
