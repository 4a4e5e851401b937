"""Ranking a run's edges by its configuration's protocol, during training and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.budget import Budget, parse_sizes
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import check_options, require_known
from diskhop.embedding.graph_edges import EdgeParts, read_edge_parts
from diskhop.embedding.ranking.evaluate import rank_edges, summarize
from diskhop.embedding.ranking.groups import group_bytes
from diskhop.embedding.ranking.protocol import MeasuredEdges, Protocol, num_candidates
from diskhop.embedding.ranking.reader import EmbeddingReader
from diskhop.embedding.step.draws import draw_candidates
from diskhop.errors import ConfigError
from diskhop.nn.reproducible import reproducible
from diskhop.planning.embeddings.partitions import config_of_rank
from diskhop.planning.embeddings.size import embed_size
from diskhop.run_files import EMBEDDING
from diskhop.runs.distributed import Group
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.result import describe_run, measure_memory
from diskhop.system.memory import resident_bytes

PARTS = ("test", "valid")


def evaluate_by(
    config: EmbedConfig,
    reader: EmbeddingReader,
    parts: EdgeParts,
    edges: MeasuredEdges,
    progress: Callable[[int, int], None],
    group: Group,
) -> dict[str, Any]:
    """Rank some of a dataset's edges by a configuration's protocol; each rank ranks a share. See evaluate()."""
    candidates = num_candidates(config.eval_candidates, reader.layout.num_nodes)
    protocol = Protocol(
        filtered=config.eval_filtered,
        candidates=candidates,
        sides=config.eval_sides,
        ties=config.eval_ties,
    )
    drawn = draw_candidates(reader.layout.num_nodes, candidates, config.seed)
    # Drawn by the nodes' first places, so that candidates stay the same nodes when partitions change.
    at = parts.permutation.places(parts.permutation.after(0).nodes(drawn))
    own = edges.take(np.asarray(group.ranks.share(range(len(edges)))))
    ranks = rank_edges(reader, own, protocol, parts.known, at, group_bytes(config.memory_bytes), progress)
    return summarize(list(chain.from_iterable(group.gather(ranks))), edges, protocol)


def evaluate_embeddings(
    run: Path | str,
    *,
    part: str = "test",
    memory: int | str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    group: Group | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Rank edges by a run's last commit; returns MRR and other values, with the protocol, memory and the run.

    part: 'test' or 'valid'.
    memory: bytes or a size such as '2GB'; default: the run's.
    progress: called with edges done and in total, of this process.
    group: processes that each rank a share, in their share of a machine's memory and threads; all get the same values.
    options: options of EmbedConfig such as eval_candidates and threads; default: the run's.
    Raises ConfigError, BudgetError, TrainingError.
    """
    require_known("part", part, PARTS)
    opened = open_run(run)
    given = check_options({**options, **parse_sizes(memory=memory)}, "evaluation", (EmbedConfig,))
    whole, group = replace(opened.config, evaluate=True, **given), group or Group()
    config, budget = config_of_rank(whole, group.ranks), Budget(whole.memory_bytes, group.ranks.local_count)
    size = embed_size(opened.dataset, config)
    wanted = {"measuring": size.measure_bytes, "edges as they are read": size.block_bytes}
    budget.require(wanted)
    with ExitStack() as held:
        for name, num_bytes in wanted.items():
            held.enter_context(budget.reserve(name, num_bytes))
        held.enter_context(reproducible(config.threads))
        before_bytes = resident_bytes("VmRSS")
        parts = read_edge_parts(opened.dataset, config, opened.permutation)
        edges = parts.test if part == "test" else parts.valid
        if edges is None:
            raise ConfigError(f"{opened.dataset.path}: has no {part} edges, and the run left none out of training")
        measured = evaluate_by(config, opened.reader, parts, edges, progress, group)
    described = describe_run(EMBEDDING, opened.dataset, config.model, config.seed)
    return {**described, "run": str(opened.path), "part": part, **measured, **measure_memory(before_bytes, budget)}
