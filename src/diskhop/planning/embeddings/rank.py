"""Ranking of numbers of partitions, and of how many are in memory at once."""

from __future__ import annotations

from dataclasses import replace

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.planning.embeddings.costs import measure_edges_per_second, predict_embedding
from diskhop.planning.embeddings.partitions import NUMBERS_OF_PARTITIONS, plan_embedding
from diskhop.planning.embeddings.size import embed_size
from diskhop.planning.options import Option, Ranking, rank
from diskhop.plans import EmbedPlan

# A larger buffer moves fewer partitions and needs more memory.
_BUFFERS = (3, 4, 6)


def rank_partitions(dataset: Dataset, config: EmbedConfig, disk: DiskModel) -> Ranking[EmbedPlan]:
    """Rank the configuration with several numbers of partitions. Raises BudgetError where none fits."""
    edges_per_second = measure_edges_per_second(dataset, config, config.memory_bytes // 4)
    size = embed_size(dataset, config)
    refused: dict[str, str] = {}
    found: list[Option[EmbedPlan]] = []
    smallest: BudgetError | None = None
    for number in NUMBERS_OF_PARTITIONS:
        if number > size.num_nodes:
            continue
        name = f"{number} partition{'s' if number > 1 else ''}"
        options: list[Option[EmbedPlan]] = []
        for buffer in dict.fromkeys(min(buffer, max(2, number)) for buffer in _BUFFERS):
            tried = replace(config, partitions=number, buffer=buffer)
            try:
                plan = plan_embedding(tried, size, Budget(config.memory_bytes))
            except BudgetError as error:
                refused[name] = str(error)
                smallest = error
                break
            predicted = predict_embedding(plan, tried, size.num_edges, edges_per_second, disk)
            named = f"{name}, buffer {buffer}" if number > buffer else name
            options.append(Option(name=named, plan=plan, predicted=predicted, simplicity=number * 100 + buffer))
        if options:
            refused.pop(name, None)
            # Among equals the one with the least memory.
            found.append(min(options, key=lambda option: option.seconds(config.epochs)))
    if not found:
        assert smallest is not None, "a graph has nodes"
        raise smallest
    return rank(found, refused, config.epochs, "embeddings in")
