"""How the ranks of a run share a machine, and how they prepare a run without getting in each other's way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.pipeline.peers import meet
from diskhop.runs.devices import device_of_rank
from diskhop.runs.distributed import Group
from diskhop.runs.feeds import PreparedRun
from diskhop.runtime.ranks import Ranks

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def require_shareable(config: TrainConfig, ranks: Ranks) -> None:
    """Refuse options with which several ranks would not train as one process does."""
    if config.accumulate % ranks.count:
        least = -(-config.accumulate // ranks.count) * ranks.count
        raise ConfigError(
            f"--accumulate must be a multiple of {ranks.count} processes, which compute as many batches at a time, got "
            f"{config.accumulate}: use --accumulate {least}"
        )
    if ranks.count > 1 and isinstance(config, SampledConfig) and config.store == "shared" and not config.ordered:
        raise ConfigError(
            f"--store shared delivers batches in any order, so results of {ranks.count} processes would vary between "
            "runs: add --ordered"
        )


def require_same_dataset(dataset: Dataset, group: Group) -> None:
    """Refuse ranks with different datasets. All raise the same ConfigError."""
    first, *others = group.gather((dataset.hash, str(dataset.path)))
    for rank, (found, path) in enumerate(others, start=1):
        if found != first[0]:
            raise ConfigError(
                f"{path}: process {rank} has another dataset there (hash {found}) than process 0 has in {first[1]} "
                f"(hash {first[0]}); copy the same dataset to every machine"
            )


def require_whole_machines(group: Group) -> None:
    """Refuse processes of a machine that do not know of each other. All ranks raise the same ConfigError."""
    if group.is_alone:
        return
    found = meet()[1].count
    for rank, (count, stated) in enumerate(group.gather((found, group.ranks.local_count))):
        if count != stated:
            raise ConfigError(
                "LOCAL_WORLD_SIZE must be the number of processes on a machine, which share its memory, got "
                f"{stated} in process {rank}, whose machine has {count}: start all {count} by one torchrun"
            )


def share_of(config: ConfigT, ranks: Ranks) -> ConfigT:
    """Return the options of one rank: its share of the machine's memory and threads, and its GPU.

    Its plan is made with the budget of the machine, because ranks have some data in one copy.
    """
    count = ranks.local_count
    if count == 1:
        return config
    return replace(
        config,
        memory_bytes=config.memory_bytes // count,
        threads=max(1, config.threads // count),
        device=device_of_rank(config.device, ranks),
    )


def whole_of(planned: ConfigT, config: ConfigT, ranks: Ranks) -> ConfigT:
    """Return the options that a run is saved with. planned: what a rank's share became. config: of the machine."""
    return planned if ranks.count == 1 else _with_machine(planned, config)


def prepare_in_turns(config: ConfigT, group: Group, prepare: Callable[[ConfigT], PreparedRun]) -> PreparedRun:
    """Prepare a run on rank 0, then on the first rank of each machine, then on the others.

    Later ranks use the files that earlier ones have made, and run what rank 0 has planned.

    config: options of this rank.
    """
    if group.is_alone:
        return prepare(config)
    prepared: PreparedRun | None = None
    planned = config
    for is_turn in (group.ranks.is_first, group.ranks.local_rank == 0, True):
        if is_turn and prepared is None:
            prepared = prepare(_with_machine(planned, config))
        planned = group.from_first(planned if prepared is None else cast(ConfigT, prepared.config))
        group.wait()
    assert prepared is not None
    return prepared


def budget_of(config: TrainConfig, ranks: Ranks) -> Budget:
    """Return the budget of a run, which ranks of one machine share. config: of the machine."""
    return Budget(config.memory_bytes, ranks.local_count)


def _with_machine(config: ConfigT, other: ConfigT) -> ConfigT:
    """Return a configuration with another one's memory, threads and device."""
    return replace(config, memory_bytes=other.memory_bytes, threads=other.threads, device=other.device)
