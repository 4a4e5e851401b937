"""Evaluating a link model: embeddings of all nodes, then every held-out edge against negatives and among candidates.

Edges of validation are measured with the training edges as messages, those of test with validation edges too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget, parse_sizes
from diskhop.config.link import LinkConfig
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.embedding.ranking.evaluate import evaluate, evaluation_bytes
from diskhop.embedding.ranking.groups import group_bytes
from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges, Protocol, num_candidates
from diskhop.embedding.step.draws import draw_candidates
from diskhop.errors import ConfigError
from diskhop.io.atomic import write_file
from diskhop.nn.decoders.decoders import Decoder
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.rows import RowTable
from diskhop.run_files import EVALUATION_FILE, LINK_RUN
from diskhop.runs.links.measures import BYTES_PER_EDGE, PairMeasure, PairScores
from diskhop.runs.links.tables import TableReader, open_decoder, open_embeddings, open_links
from diskhop.runs.links.task import PART_OF
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.result import describe_protocol, describe_run, measure_memory
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.edge_split.blocks import block_bytes, read_edges
from diskhop.sampling.edge_split.rules import PARTS
from diskhop.sampling.edge_split.split import EdgeSplit, HeldLinks, open_split, plan_split
from diskhop.sampling.links import LinkBatch, Links
from diskhop.sampling.negatives import Candidates, DrawKey, Negatives
from diskhop.sampling.seeds import count_batches
from diskhop.system.memory import resident_bytes

_SHOWN = ("valid", "test")
# Edges whose four ends are in memory at once, at most; each chunk reads the table of embeddings once.
_MOST_EDGES_AT_ONCE = 1 << 18
_CHUNK_SHARE = 8


def evaluate_links(
    run: Path | str,
    *,
    part: str | None = None,
    memory: int | str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> dict[str, Any]:
    """Measure a run's best model on held-out edges, and write the result to RUN/evaluation.json.

    part: train, valid or test; None for valid and test.
    memory: bytes or a size such as '2GB'; default: the run's.
    options: threads, and options of ranking by the names of EmbedConfig, where eval_candidates=0 ranks each edge among
        all nodes; default: the run's.
    Returns the run, and for each part AUC, average precision, MRR and Hits@k with their protocols. Raises ConfigError,
    BudgetError.
    """
    if part is not None:
        require_known("part", part, PARTS)
    opened, config = open_links(run)
    dataset = opened.open_dataset()
    opened.require_fit(dataset)
    budget = Budget(parse_sizes(memory=memory).get("memory_bytes", config.memory_bytes))
    plan = plan_split(dataset, config.link_split, config.split, budget)
    counts = dict(zip(PARTS, plan.counts.positives, strict=True))
    wanted = [name for name in (_SHOWN if part is None else (part,)) if counts[name]]
    if not wanted:
        raise ConfigError(f"{opened.path}: its split has no {part or 'held-out'} edges; use --part train")
    split = open_split(dataset, plan, config.scratch or None, budget, progress=progress)
    before_bytes = resident_bytes("VmRSS")
    threads = options.pop("threads", None) or config.threads
    ranked = _ranking_options(config, dataset.num_nodes, options)
    parts = {}
    with reproducible(threads), WorkFolder(opened.path / EVALUATION_FILE) as work:
        for graph, names in _graphs(split, wanted):
            most = max(counts[name] for name in names)
            num_known = dataset.num_edges if ranked.filtered else 0
            ranking = evaluation_bytes(most, num_known, config.dim, ranked.candidates, group_bytes(budget.total_bytes))
            measuring_bytes = _scoring_bytes(budget, config.dim, most) + block_bytes(dataset.num_edges)
            later = {
                "measuring links": measuring_bytes,
                "ranking links": ranking,
                "given split": plan.rule.num_bytes,
            }
            with (
                ExitStack() as held,
                open_embeddings(
                    opened, graph, budget, threads=threads, later=later, work=work, progress=progress
                ) as table,
            ):
                for name, num_bytes in later.items():
                    held.enter_context(budget.reserve(name, num_bytes))
                decoder = open_decoder(opened, config)
                for name in names:
                    links = split.links[PARTS.index(name)]
                    measuring = _Measuring(table, decoder, dataset, config, budget, progress)
                    parts[name] = {**measuring.pairs(name, links), **measuring.ranks(name, links, ranked)}
            work.remove()
    result = {**_describe(opened, dataset, config, parts), **measure_memory(before_bytes, budget)}
    write_file(opened.path / EVALUATION_FILE, (json.dumps(result, indent=1) + "\n").encode())
    return result


def _describe(
    opened: OpenClassifier, dataset: Dataset, config: LinkConfig, parts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        **describe_run(LINK_RUN, dataset, config.model, config.seed),
        "run": str(opened.path),
        "trained_on": opened.dataset_hash,
        "outputs": {"kind": "links", "count": config.dim},
        "decoder": config.decoder,
        "parts": parts,
        "notes": _notes(parts),
    }


def _notes(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    notes = [f"Ranks in {name}: {describe_protocol(each['protocol'])}" for name, each in parts.items()]
    if "train" in parts:
        notes.append("Messages use the training edges, so their own metrics are too high; compare runs by test.")
    return notes


def _graphs(split: EdgeSplit, wanted: list[str]) -> Iterator[tuple[Dataset, list[str]]]:
    """Yield the graphs that messages use, with the parts that are measured on them."""
    on_train, on_test = [name for name in wanted if name != "test"], [name for name in wanted if name == "test"]
    if split.test_graph is split.train_graph:
        yield split.train_graph, wanted
        return
    for graph, names in ((split.train_graph, on_train), (split.test_graph, on_test)):
        if names:
            yield graph, names


def _ranking_options(config: LinkConfig, num_nodes: int, options: Mapping[str, Any]) -> Protocol:
    names = ("eval_candidates", "eval_filtered", "eval_ties")
    given = {**{name: getattr(config, name) for name in names}, "eval_sides": "both", **options}
    return Protocol(
        filtered=given["eval_filtered"],
        candidates=num_candidates(given["eval_candidates"], num_nodes),
        sides=given["eval_sides"],
        ties=given["eval_ties"],
    )


def _edges_at_once(budget: Budget, dim: int, num_edges: int) -> int:
    """Number of edges whose ends, and those of their negatives, fit a share of the budget."""
    fit = budget.total_bytes // _CHUNK_SHARE // (4 * 4 * 2 * dim)
    return max(1, min(num_edges, _MOST_EDGES_AT_ONCE, fit))


def _scoring_bytes(budget: Budget, dim: int, num_edges: int) -> int:
    return BYTES_PER_EDGE * num_edges + _edges_at_once(budget, dim, num_edges) * 4 * 4 * 2 * dim


class _Measuring:
    """Measures links by a table of embeddings. dataset: with all edges, by whose numbers links are stored."""

    def __init__(
        self,
        table: RowTable,
        decoder: Decoder,
        dataset: Dataset,
        config: LinkConfig,
        budget: Budget,
        progress: Progress,
    ) -> None:
        self._reader = TableReader(table, decoder)
        self._decoder = decoder
        self._dataset = dataset
        self._config = config
        self._budget = budget
        self._progress = progress

    @torch.no_grad()
    def pairs(self, part: str, links: HeldLinks) -> dict[str, Any]:
        """Return ROC-AUC and average precision of edges against as many random pairs."""
        uniform = Candidates(num_nodes=self._dataset.num_nodes)
        negatives = Negatives(mode="binary", amount=1, sources=uniform, destinations=uniform)
        purpose = next(each for each, number in PART_OF.items() if PARTS[number] == part)
        measured = Links(ends=links, negatives=negatives)
        # The negatives of the run's own evaluation, which are drawn batch by batch.
        batch_size = self._config.eval_batch_size
        per_chunk = max(1, _edges_at_once(self._budget, self._reader.dim, len(links)) // batch_size)
        measure = PairMeasure("auc")
        for first, last in row_ranges(count_batches(len(links), batch_size), per_chunk):
            batches = [
                measured.batch(batch_size, DrawKey(self._config.seed, purpose, 0, number))
                for number in range(first, last)
            ]
            measure.add(measure.part(self._score(batches)))
            self._progress(f"scoring {part} edges", min(last * batch_size, len(links)), len(links))
        return dict(measure.details())

    def _score(self, batches: list[LinkBatch]) -> PairScores:
        """Score the edges and negatives of some batches."""
        rows = [np.stack([each.seeds[each.sources], each.seeds[each.destinations]]) for each in batches]
        counts = [len(each.positions) for each in batches]
        parts = [each[:, :count] for each, count in zip(rows, counts, strict=True)]
        parts += [each[:, count:] for each, count in zip(rows, counts, strict=True)]
        pairs = np.concatenate(parts, axis=1)
        nodes, places = np.unique(pairs, return_inverse=True)
        embeddings = self._reader.gather(nodes)
        sources, destinations = torch.from_numpy(places.reshape(pairs.shape))
        scores = self._decoder(embeddings.index_select(0, sources), embeddings.index_select(0, destinations))
        return PairScores(scores[: sum(counts)], scores[sum(counts) :])

    def ranks(self, part: str, links: HeldLinks, protocol: Protocol) -> dict[str, Any]:
        """Return MRR and Hits@k, with their protocol."""
        sources, destinations = links.take(np.arange(len(links)))
        edges = MeasuredEdges(sources, None, destinations, len(links))
        drawn = draw_candidates(self._dataset.num_nodes, protocol.candidates, self._config.seed)
        found = evaluate(
            self._reader,
            edges,
            protocol,
            KnownEdgeBlocks(self._known_blocks, 0),
            drawn,
            group_bytes(self._budget.total_bytes),
            partial(self._progress, f"ranking {part} edges"),
        )
        # That of ranks is over candidates; the part has one over random pairs.
        return {name: value for name, value in found.items() if name != "auc"}

    def _known_blocks(self) -> Iterator[tuple[NDArray[np.int64], None, NDArray[np.int64]]]:
        for block in read_edges(EdgeLists.of(self._dataset.topology)):
            yield block.sources, None, block.destinations
