"""Ranking of numbers of partitions, and of how many are in memory at once."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.pipeline.device_report import measure_copy_rate
from diskhop.planning.embeddings.costs import measure_edges_per_second, predict_embedding, with_swaps_explained
from diskhop.planning.embeddings.partitions import config_of_rank, numbers_of_partitions, plan_embedding
from diskhop.planning.embeddings.size import embed_size
from diskhop.planning.options import Option, Ranking, rank
from diskhop.plans import EmbedPlan
from diskhop.runtime.ranks import ONE, Ranks

# A larger buffer moves fewer partitions and needs more memory.
_BUFFERS = (3, 4, 6)


def rank_partitions(
    dataset: Dataset,
    config: EmbedConfig,
    disk: DiskModel,
    ranks: Ranks = ONE,
    device: torch.device | None = None,
) -> Ranking[EmbedPlan]:
    """Rank the configuration with several numbers of partitions. Raises BudgetError where none fits.

    config: of this machine. ranks: the processes that train together. device: where they train; None: in memory.
    """
    own, budget = config_of_rank(config, ranks), Budget(config.memory_bytes, ranks.local_count)
    # Each core trains for one process at a time.
    at_once = min(ranks.count, max(1, config.threads))
    edges_per_second = at_once * measure_edges_per_second(dataset, own, own.memory_bytes // 4, device)
    copy_rate = math.inf if device is None else measure_copy_rate(device)
    size = embed_size(dataset, own)
    refused: dict[str, str] = {}
    found: list[Option[EmbedPlan]] = []
    smallest: BudgetError | None = None
    for number in numbers_of_partitions(size.num_nodes, ranks):
        num_owned = number // ranks.count
        name = f"{number} partition{'s' if number > 1 else ''}"
        options: list[Option[EmbedPlan]] = []
        for buffer in dict.fromkeys(min(buffer, max(2, num_owned)) for buffer in _BUFFERS):
            tried = replace(own, partitions=number, buffer=buffer)
            try:
                plan = plan_embedding(tried, size, budget, ranks)
            except BudgetError as error:
                refused[name] = str(error)
                smallest = error
                break
            predicted = predict_embedding(plan, tried, size.num_edges, edges_per_second, disk, copy_rate)
            named = f"{name}, buffer {buffer}" if num_owned > buffer else name
            plan = with_swaps_explained(plan, tried, predicted, disk)
            options.append(Option(name=named, plan=plan, predicted=predicted, simplicity=number * 100 + buffer))
        if options:
            refused.pop(name, None)
            # Among equals the one with the least memory.
            found.append(min(options, key=lambda option: option.seconds(config.epochs)))
    if not found:
        assert smallest is not None, "a graph has nodes"
        raise smallest
    return rank(found, refused, config.epochs, "embeddings in")
