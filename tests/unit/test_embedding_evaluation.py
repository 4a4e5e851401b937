"""Ranks of edges against a loop over all candidates, whatever the partitions, the memory and the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.ranking.evaluate import evaluate
from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges, Protocol
from diskhop.embedding.ranking.ranks import TIES
from diskhop.embedding.ranking.reader import EmbeddingReader
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.draws import draw_candidates
from diskhop.errors import ConfigError
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.embedding.evaluate import evaluate_embeddings
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.embedding.places import Places
from diskhop.runs.start import embed
from tests.embedding import OPTIONS, small_triples

NUM_NODES, NUM_RELATIONS, NUM_EDGES, DIM = 83, 3, 40, 8
LARGE = 1 << 30
PROTOCOLS = [
    Protocol(filtered=filtered, candidates=candidates, sides=sides, ties=ties)
    for filtered in (True, False)
    for candidates in (0, 30)
    for sides, ties in (("both", "realistic"), ("tail", "optimistic"), ("head", "pessimistic"))
]


class ArrayStore:
    """Partitions in memory, in pieces of a few rows."""

    def __init__(self, layout: PartitionLayout, values: NDArray[np.float32], piece_rows: int = 7) -> None:
        self._layout, self._values, self._piece_rows = layout, values, piece_rows

    def read_pieces(self, partition: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        first = self._layout.start(partition)
        # What a partition has room for and no node: to be passed over.
        rows = np.full((self._layout.num_rows(partition) + 20, DIM), 9e9, np.float32)
        rows[: self._layout.num_rows(partition)] = self._values[first : self._layout.start(partition + 1)]
        for start in range(0, len(rows), self._piece_rows):
            yield start, rows[start : start + self._piece_rows]

    def read_rows(self, partition: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._values[self._layout.start(partition) + rows]


def reader_of(model: str, values: NDArray[np.float32], num_partitions: int, is_reciprocal: bool) -> EmbeddingReader:
    layout = PartitionLayout(NUM_NODES, num_partitions, DIM, 1)
    num_rows = NUM_RELATIONS * (2 if is_reciprocal else 1)
    relations = torch.randn(num_rows, SCORES[model].relation_dim(DIM), generator=torch.Generator().manual_seed(1))
    store = cast(PartitionStore, ArrayStore(layout, values))
    return EmbeddingReader(store, layout, SCORES[model], relations, is_reciprocal)


def some_edges(seed: int) -> tuple[MeasuredEdges, KnownEdgeBlocks]:
    """Edges to rank, and known ones: these, some twice, and many that share an end and a relation with them."""
    rng = np.random.default_rng(seed)
    known = rng.integers(0, [6, NUM_RELATIONS, NUM_NODES], (240, 3))
    edges = known[rng.permutation(240)[:NUM_EDGES]]
    blocks = [np.concatenate([known[:150], known[:20]]), known[150:]]
    measured = MeasuredEdges(edges[:, 0], edges[:, 1], edges[:, 2], NUM_EDGES)
    return measured, KnownEdgeBlocks(lambda: ((a, r, b) for a, r, b in (each.T for each in blocks)), NUM_RELATIONS)


def triples_of(known: KnownEdgeBlocks) -> NDArray[np.int64]:
    blocks = [(sources, relations, nodes) for sources, relations, nodes in known.blocks() if relations is not None]
    return np.concatenate([np.stack(block, axis=1) for block in blocks])


def by_a_loop(
    reader: EmbeddingReader, edges: MeasuredEdges, known: KnownEdgeBlocks, protocol: Protocol, drawn: NDArray[np.int64]
) -> dict[str, float]:
    all_known = set(map(tuple, triples_of(known).tolist()))
    nodes = reader.gather(np.arange(NUM_NODES))
    ranks, below, total = [], 0.0, 0
    assert edges.relations is not None
    for side in {"both": (0, 1), "tail": (0,), "head": (1,)}[protocol.sides]:
        queries = reader.queries(side, nodes[edges.given(side)], edges.relations)
        scores = torch.empty(len(edges), NUM_NODES)
        reader.kind.matrix(queries, nodes, scores)
        for number in range(len(edges)):
            own, given = int(edges.given(1 - side)[number]), int(edges.given(side)[number])
            relation = int(edges.relations[number])
            candidates = drawn[side].tolist() if protocol.candidates else list(range(NUM_NODES))
            if protocol.filtered:
                made = {n: (n, relation, given) if side else (given, relation, n) for n in candidates}
                candidates = [node for node in candidates if made[node] not in all_known]
            others = scores[number, [node for node in candidates if node != own]]
            above, ties = int((others > scores[number, own]).sum()), int((others == scores[number, own]).sum())
            ranks.append(1 + above + {"realistic": ties / 2, "optimistic": 0, "pessimistic": ties}[protocol.ties])
            below, total = below + len(others) - above - ties / 2, total + len(others)
    found = np.array(ranks, np.float64)
    hits = {f"hits_at_{k}": float((found <= k).mean()) for k in (1, 3, 10)}
    return {"mrr": float((1 / found).mean()), "mean_rank": float(found.mean()), **hits, "auc": below / total}


@pytest.mark.fast(12)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: "-".join(map(str, each.to_dict(1, 1).values())))
@pytest.mark.parametrize(("model", "num_partitions", "is_reciprocal"), [
    ("complex", 1, True), ("distmult", 8, False), ("transe", 5, False), ("transe-l1", 8, True), ("rotate", 3, False),
])  # fmt: skip
def test_ranks_are_those_of_a_loop(model: str, num_partitions: int, is_reciprocal: bool, protocol: Protocol) -> None:
    # Of few values, so that many scores tie.
    values = np.random.default_rng(0).integers(-1, 2, (NUM_NODES, DIM)).astype(np.float32)
    reader = reader_of(model, values, num_partitions, is_reciprocal)
    reader.relations.round_()
    edges, known = some_edges(2)
    drawn = draw_candidates(NUM_NODES, protocol.candidates, 3)
    expected = by_a_loop(reader, edges, known, protocol, drawn)
    for memory_bytes in (1, 20_000, LARGE):  # groups of one edge, of some, of all
        found = evaluate(reader, edges, protocol, known, drawn, memory_bytes)
        assert found.pop("protocol") == protocol.to_dict(NUM_EDGES, NUM_EDGES)
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num_nodes", "candidates"), [(1, 1), (7, 6), (1000, 999), (1 << 40, 5000)])
def test_a_candidate_is_drawn_once(num_nodes: int, candidates: int) -> None:
    drawn = draw_candidates(num_nodes, candidates, 5)
    assert drawn.shape == (2, candidates)
    assert all(len(np.unique(places)) == candidates for places in drawn)
    assert 0 <= drawn.min() <= drawn.max() < num_nodes


@pytest.mark.parametrize("wanted", [0, 29, 30, 31, 5000])
def test_no_rank_is_beyond_the_nodes(wanted: int, tmp_path: Path) -> None:
    """If as many candidates are wanted as there are nodes, all nodes are candidates, and the protocol says so."""
    source = tmp_path / "source.txt"
    source.write_text("".join(f"{node} {(node + 1) % 30}\n" for node in range(30)))
    graph = import_graph(source, tmp_path / "graph", engine=open_engine("threads").engine)
    options = {**OPTIONS, "model": "dot", "eval_candidates": wanted, "test_share": 0.5, "eval_ties": "pessimistic"}
    tested = embed(graph, out=tmp_path / "run", **options).result["test"]
    assert tested["mean_rank"] <= 30
    assert tested["protocol"]["candidates"] == (29 if wanted == 29 else "all")
    again = evaluate_embeddings(tmp_path / "run", eval_candidates=wanted)
    assert {name: again[name] for name in tested} == tested


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("ties", TIES)
def test_ranks_are_pykeens(ties: str, filtered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSTOW_HOME", str(tmp_path))  # where it would keep data sets
    # Here, not above: it takes seconds, which every worker would pay.
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation.evaluator import create_sparse_positive_filter_, filter_scores_

    values = np.random.default_rng(7).integers(-1, 2, (NUM_NODES, DIM)).astype(np.float32)
    reader = reader_of("distmult", values, 4, False)
    reader.relations.round_()
    edges, known = some_edges(8)
    assert edges.relations is not None
    batch = torch.from_numpy(np.stack([edges.sources, edges.relations, edges.destinations], axis=1))
    evaluator = RankBasedEvaluator(filtered=filtered, clear_on_finalize=False)
    nodes = torch.from_numpy(values)
    for side, target, column in ((0, "tail", 2), (1, "head", 0)):
        scores = torch.empty(len(edges), NUM_NODES)
        reader.kind.matrix(reader.queries(side, nodes[edges.given(side)], edges.relations), nodes, scores)
        own = scores.gather(1, batch[:, column : column + 1])
        if filtered:
            others, _ = create_sparse_positive_filter_(batch, torch.from_numpy(triples_of(known)), filter_col=column)
            scores = filter_scores_(scores, others).scatter(1, batch[:, column : column + 1], own)
        evaluator.process_scores_(batch, target, scores, own)
    expected = np.concatenate(evaluator.ranks["tail", ties] + evaluator.ranks["head", ties]).astype(np.float64)
    protocol = Protocol(filtered=filtered, candidates=0, sides="both", ties=ties)
    found = evaluate(reader, edges, protocol, known, draw_candidates(NUM_NODES, 0, 0), LARGE)
    assert found["mrr"] == pytest.approx((1 / expected).mean(), rel=1e-14)
    assert found["mean_rank"] == expected.mean()
    assert [found[f"hits_at_{k}"] for k in (1, 3, 10)] == [(expected <= k).mean() for k in (1, 3, 10)]
    # PyKEEN's own figures are of float32.
    by_pykeen = evaluator.finalize().get_metric(f"both.{ties}.inverse_harmonic_mean_rank")
    assert found["mrr"] == pytest.approx(by_pykeen, rel=1e-6)


@pytest.mark.parametrize("model", ["complex", "distmult", "transe", "transe-l1", "rotate"])
@pytest.mark.parametrize(("ties", "rank"), [
    ("optimistic", 1), ("realistic", (NUM_NODES + 1) / 2), ("pessimistic", NUM_NODES),
])  # fmt: skip
def test_a_constant_scorers_ranks(model: str, ties: str, rank: float) -> None:
    """DESIGN, section 7: all nodes have the same embedding, so that all scores tie."""
    row = np.random.default_rng(4).standard_normal(DIM).astype(np.float32)
    reader = reader_of(model, np.tile(row, (NUM_NODES, 1)), 8, False)
    edges, known = some_edges(5)
    protocol = Protocol(filtered=False, candidates=0, sides="both", ties=ties)
    found = evaluate(reader, edges, protocol, known, draw_candidates(NUM_NODES, 0, 0), LARGE)
    assert found["mean_rank"] == rank
    assert found["mrr"] == pytest.approx(1 / rank)
    assert found["auc"] == 0.5


def test_edges_without_relations_are_filtered_by_their_ends() -> None:
    values = np.random.default_rng(6).standard_normal((NUM_NODES, DIM)).astype(np.float32)
    reader = reader_of("dot", values, 2, False)
    ends = np.array([[1, 1, 1], [2, 3, 4]])
    edges = MeasuredEdges(ends[0], None, ends[1], 3)
    known = KnownEdgeBlocks(lambda: iter([(ends[0], None, ends[1])]), 0)
    protocol = Protocol(filtered=True, candidates=0, sides="tail", ties="realistic")
    found = evaluate(reader, edges, protocol, known, draw_candidates(NUM_NODES, 0, 0), LARGE)
    scores = values @ values[1]
    others = np.delete(scores, [2, 3, 4])
    ranks = np.array([1 + (others > scores[node]).sum() for node in (2, 3, 4)])
    assert found["mean_rank"] == pytest.approx(ranks.mean())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_triples(tmp_path_factory.mktemp("triples"))


def test_a_run_is_measured_again_by_any_protocol(dataset: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "eval_candidates": 0, "eval_edges": 0, "eval_filtered": True}
    done = embed(dataset, out=tmp_path / "run", **options)
    again = evaluate_embeddings(tmp_path / "run")
    assert {name: again[name] for name in done.result["test"]} == done.result["test"]
    assert done.result["test"]["protocol"] == {
        "filtered": True, "candidates": "all", "sides": "both", "ties": "realistic", "edges": "18 of 18",
    }  # fmt: skip
    other = evaluate_embeddings(tmp_path / "run", part="valid", eval_filtered=False, eval_edges=5, eval_sides="tail")
    assert other["protocol"]["edges"] == "5 of 18"
    assert not other["protocol"]["filtered"]
    with pytest.raises(ConfigError, match="unknown part 'train'"):
        evaluate_embeddings(tmp_path / "run", part="train")
    with pytest.raises(ConfigError, match="is no embedding run"):
        evaluate_embeddings(tmp_path)


def test_nodes_that_no_edge_trained_are_ranked_like_any_other(tmp_path: Path) -> None:
    num_trained = NUM_NODES - 10
    rng = np.random.default_rng(9)
    trained, test = (rng.integers(0, [num_trained, NUM_RELATIONS, num_trained], (number, 3)) for number in (200, 20))
    # Every second one begins with a new node, every fourth ends with one, too.
    test[::2, 0], test[::4, 2] = np.arange(num_trained, NUM_NODES), np.arange(num_trained, NUM_NODES - 5)
    (tmp_path / "source").mkdir()
    file = tmp_path / "source" / "data.npz"
    np.savez(file, train=trained, valid=test, test=test, num_entities=NUM_NODES, num_relations=NUM_RELATIONS)
    dataset = import_graph(tmp_path / "source", tmp_path / "graph", engine=open_engine("threads").engine)
    embed(dataset, out=tmp_path / "run", **{**OPTIONS, "eval_candidates": 0, "eval_filtered": True})
    found = evaluate_embeddings(tmp_path / "run")
    assert found["protocol"]["edges"] == "20 of 20"

    opened = open_run(tmp_path / "run")
    places = Places(opened.dataset, opened.permutation)
    all_edges = np.concatenate([trained, test])
    known = KnownEdgeBlocks(lambda: iter([placed(all_edges, places)]), NUM_RELATIONS)
    protocol = Protocol(filtered=True, candidates=0, sides="both", ties="realistic")
    edges = MeasuredEdges(*placed(test, places), len(test))
    expected = by_a_loop(opened.reader, edges, known, protocol, draw_candidates(NUM_NODES, 0, 0))
    assert {figure: found[figure] for figure in expected} == pytest.approx(expected, rel=1e-12)


def placed(
    triples: NDArray[np.int64], places: Places
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    sources, relations, destinations = triples.T
    return places.of(sources), relations, places.of(destinations)
