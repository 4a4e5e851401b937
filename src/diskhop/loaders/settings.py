"""Settings that loaders of sampled batches share, checked in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch

from diskhop.budget import Budget
from diskhop.config.options import check_arguments, check_options
from diskhop.config.sampled import SampledConfig
from diskhop.loaders.batches import Batch
from diskhop.loaders.checks import path_of, require_dtype, require_flags, require_function, require_texts, size_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoaderSettings:
    """Arguments as users give them; NeighborLoader describes them."""

    batch_size: int
    shuffle: bool | None
    drop_last: bool
    transform: Callable[[Any], Any] | None
    custom_cls: type[Batch] | None
    memory: Budget | int | str | None
    store: str | None
    cache: int | str | None
    pinned: str | None
    disk: int | str | None
    scratch: PathLike[str] | str | None
    ordered: bool
    engine: str | None
    threads: int | None
    seed: int
    out_dtype: torch.dtype | None
    features: str | None
    neighbor_cache: int | str | None = None
    superbatch: int | None = None
    device: torch.device | str | None = None
    device_memory: int | str | None = None

    def check(self, loader: str, **options: Any) -> None:
        """Raise ConfigError for wrong types and values. loader: name of the class. options: more of SampledConfig."""
        check_options({"batch_size": self.batch_size, "seed": self.seed}, loader, (SampledConfig,))
        check_arguments(loader, SampledConfig, threads=self.threads, superbatch=self.superbatch, **options)
        require_flags(
            shuffle=False if self.shuffle is None else self.shuffle, drop_last=self.drop_last, ordered=self.ordered
        )
        require_texts(store=self.store, engine=self.engine, pinned=self.pinned, features=self.features)
        require_function("transform", self.transform)
        require_dtype("out_dtype", self.out_dtype)

    def choices(self) -> dict[str, Any]:
        """Return the choices of a Workload."""
        return {
            "cache_bytes": size_of("cache", self.cache),
            "neighbor_cache_bytes": size_of("neighbor_cache", self.neighbor_cache) or None,
            "superbatch": None if self.superbatch is None else int(self.superbatch) or None,
            "disk_bytes": size_of("disk", self.disk),
            "scratch": path_of("scratch", self.scratch),
            "store": self.store,
            "engine": self.engine,
            "threads": self.threads,
            "pinned": self.pinned,
        }
