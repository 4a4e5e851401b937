"""Uses of a finished run on links: embeddings, evaluation, likely partners, reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import diskhop
from diskhop.budget import Budget, Reservation
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.planning.workload import Workload
from diskhop.protocols import Purpose
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.links.batches import make_passes
from diskhop.runs.links.defaults import resolve_link_config
from diskhop.runs.links.neighbors import link_neighbors
from diskhop.runs.links.prepare import planned_workload
from diskhop.runs.links.tables import open_decoder, open_links
from diskhop.runs.links.task import presumed_parts
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from diskhop.sampling.edge_split.rules import TEST
from diskhop.sampling.negatives import DrawKey
from tests.links import OPTIONS, resolved
from tests.runs import small_graph
from tests.unit.test_edge_split import links_of, pairs_of, split_of


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm", order="hot")


@pytest.fixture(scope="module")
def finished(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train(dataset, out=out, **{**OPTIONS, "decoder": "distmult", "fanout": (-1,)})
    return out


def embeddings(run: Path, out: Path) -> np.ndarray:
    """Embeddings in the order of dataset.node_ids()."""
    predict_run(run, out=out, format="npy", memory="200MB")
    found: np.ndarray = np.load(out / "embedding.npy")
    return found


def test_evaluation_is_what_the_run_measured(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_bytes())
    found = evaluate_run(finished)
    assert list(found["parts"]) == ["valid", "test"]
    for metric in ("auc", "ap"):
        # Training measured in batches with all neighbours: the same values but for rounding.
        assert found["parts"]["test"][metric] == pytest.approx(result["test"][metric], abs=2e-3)
    assert json.loads((finished / "evaluation.json").read_bytes()) == found
    small = evaluate_run(finished, part="test", memory="20MB", threads=2)
    assert small["parts"]["test"] == found["parts"]["test"]


@pytest.mark.fast(1)
@pytest.mark.parametrize(("wanted", "shown"), [(40, 40), (600, "all"), (10**6, "all")])
def test_ranks_in_training_are_those_of_evaluation(
    dataset: Dataset, tmp_path: Path, wanted: int, shown: int | str
) -> None:
    options = {**OPTIONS, "metric": "mrr", "eval_candidates": wanted, "fanout": (-1,), "epochs": 1}
    measured = train(dataset, out=tmp_path / "run", **options, eval_batch_size=16).result["test"]
    found = evaluate_run(tmp_path / "run", part="test")["parts"]["test"]
    assert measured["protocol"] == found["protocol"]
    assert measured["protocol"]["candidates"] == shown
    for metric in ("mrr", "hits_at_1", "hits_at_10"):
        assert measured[metric] == pytest.approx(found[metric], abs=2e-3)


def test_evaluation_reserves_the_embeddings_of_candidates(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: dict[str, int] = {}
    reserve = Budget.reserve

    def record(budget: Budget, name: str, num_bytes: int) -> Reservation:
        reserved[name] = num_bytes
        return reserve(budget, name, num_bytes)

    monkeypatch.setattr(Budget, "reserve", record)
    sizes = []
    for count in (100, 500):
        evaluate_run(finished, part="test", eval_candidates=count)
        sizes.append(sum(reserved.values()))
    assert sizes[1] - sizes[0] >= 4 * 2 * 400 * 16


def test_ranking_in_training_is_in_the_budget(dataset: Dataset) -> None:
    def workload(**options: Any) -> Workload:
        config, task = resolved(dataset, **{"eval_batch_size": 50, "metric": "mrr", **options})
        return planned_workload(dataset, config, task)

    assert "scores of candidates" not in workload(metric="auc").also_held
    plain, filtered = (workload(eval_candidates=100, eval_filtered=each) for each in (False, True))
    assert plain.also_held["scores of candidates"] >= 2 * 4 * 50 * 100
    assert filtered.values.of(10, 10) - plain.values.of(10, 10) >= 2 * 50 * 100


def test_metrics_of_training_edges_have_a_note(finished: Path) -> None:
    assert any("Messages use the training edges" in note for note in evaluate_run(finished, part="train")["notes"])
    assert not any("Messages" in note for note in evaluate_run(finished, part="test")["notes"])


def test_draws_by_degree_keep_no_copy_of_the_degrees(dataset: Dataset) -> None:
    config, task = resolved(dataset, negative_draws="degree")
    passes = make_passes(config, dataset, presumed_parts(task))
    assert passes.train_negatives.num_bytes == 0
    ends = passes.links(Purpose.TRAIN).batch(100, DrawKey(0, Purpose.TRAIN, 0, 0))
    assert len(ends.sources) == 200


def test_candidates_of_a_batch_are_distinct(dataset: Dataset) -> None:
    config, _, task = resolve_link_config(dataset, {**OPTIONS, "metric": "mrr", "eval_candidates": 500})
    passes = make_passes(config, dataset, presumed_parts(task))
    for purpose in (Purpose.VALID, Purpose.TEST):
        negatives = passes.links(purpose).negatives
        assert negatives is not None
        for side in negatives.draw(7, None, DrawKey(0, purpose, 0, 3)):
            assert len(side) == len(np.unique(side)) == 500


def test_filtered_ranks_among_all_nodes_are_those_of_a_table(dataset: Dataset, finished: Path) -> None:
    found = evaluate_run(finished, part="test", eval_candidates=0, eval_filtered=True)["parts"]["test"]
    assert found["protocol"]["candidates"] == "all"
    split = split_of(dataset)
    opened, config = open_links(finished)
    decoder = open_decoder(opened, config)
    table = _embeddings_of(finished, split.test_graph)
    scores = decoder.matrix(table, table).detach().double().numpy()
    known = np.zeros(scores.shape, bool)
    known[tuple(np.array(sorted(pairs_of(dataset))).T)] = True
    ranks = []
    for u, v in sorted(links_of(split, TEST)):
        for others, is_known, own in ((scores[u], known[u], v), (scores[:, v], known[:, v], u)):
            kept = others[~is_known]
            ranks.append(1 + (kept > others[own]).sum() + (kept == others[own]).sum() / 2)
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), abs=1e-3)


def _embeddings_of(run: Path, graph: Dataset) -> torch.Tensor:
    """Embeddings by row with all neighbours in a graph, computed by the network on the whole graph at once."""
    from diskhop.nn.layers.aggregate import Block
    from diskhop.nn.models import build_model

    opened, config = open_links(run)
    network = build_model(config, graph.feature_dim, config.dim).eval()
    opened.load_into(network)
    files = graph.topology
    indptr = torch.from_numpy(np.fromfile(files.indptr_path, "<i8").astype(np.int32))
    sources = torch.from_numpy(np.fromfile(files.indices_path, files.index_dtype).astype(np.int32))
    count = graph.num_nodes
    block = Block(indptr, sources, (count, 0), (len(sources),), by_hop=False)
    table = graph.feature_table()
    assert table is not None
    stored = np.fromfile(table.path, np.float32).reshape(count, -1)[:, : graph.feature_dim]
    with torch.no_grad():
        out: torch.Tensor = network(torch.from_numpy(stored), block)
    return out


def test_auc_and_average_precision_are_scikit_learns(dataset: Dataset, finished: Path) -> None:
    from diskhop.protocols import Purpose
    from diskhop.sampling.links import Links
    from diskhop.sampling.negatives import Candidates, DrawKey, Negatives

    split = split_of(dataset)
    uniform = Candidates(num_nodes=dataset.num_nodes)
    negatives = Negatives(mode="binary", amount=1, sources=uniform, destinations=uniform)
    links = Links(ends=split.links[TEST], negatives=negatives)
    batch = links.batch(1000, DrawKey(0, Purpose.TEST, 0, 0))
    opened, config = open_links(finished)
    table = _embeddings_of(finished, split.test_graph)[torch.from_numpy(batch.seeds)]
    with torch.no_grad():
        scores = open_decoder(opened, config)(table[batch.sources], table[batch.destinations]).numpy()
    labels = np.arange(len(scores)) < len(batch.positions)
    found = evaluate_run(finished, part="test")["parts"]["test"]
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)
    assert found["ap"] == pytest.approx(average_precision_score(labels, scores), abs=1e-4)


def test_neighbors_are_the_best_by_the_decoder(dataset: Dataset, finished: Path, tmp_path: Path) -> None:
    table = torch.from_numpy(embeddings(finished, tmp_path / "predictions"))
    opened, config = open_links(finished)
    with torch.no_grad():
        scores = open_decoder(opened, config).matrix(table, table)
    ids = dataset.node_ids().tolist()
    found = link_neighbors(finished, ids[7], top=5)
    scores[7, 7] = -torch.inf
    best = scores[7].topk(5)
    assert [int(each.name) for each in found] == [ids[place] for place in best.indices.tolist()]
    assert [each.score for each in found] == pytest.approx(best.values.tolist(), rel=1e-4)
    edges = {(int(dataset.id_map().ids(np.array([u]))[0]), int(dataset.id_map().ids(np.array([v]))[0]))  # type: ignore[arg-type]
             for u, v in pairs_of(dataset)}  # fmt: skip
    for each in found:
        pair = (ids[7], int(each.name))
        assert each.is_known == (pair in edges or pair[::-1] in edges)


def test_the_command_says_which_partners_have_an_edge(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["neighbors", str(finished), "3", "--top", "1000", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["neighbors"]
    known = {each["name"] for each in answers if each["is_known"]}
    assert 0 < len(known) < len(answers)
    assert run_command(["neighbors", str(finished), "3", "--top", "1000"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {words[1] for words in lines if words[-1] == "(known)"} == known


def test_the_second_query_reads_what_the_first_computed(finished: Path) -> None:
    first = link_neighbors(finished, 3, top=2)
    (stored,) = finished.glob("embeddings-*.npy")
    before = stored.stat().st_mtime_ns
    assert link_neighbors(finished, 3, top=2) == first
    assert stored.stat().st_mtime_ns == before
    assert len(link_neighbors(finished, 3, top=10**6)) == 599


def test_embeddings_are_exported_as_predictions_have_them(finished: Path, tmp_path: Path) -> None:
    table = embeddings(finished, tmp_path / "predictions")
    assert run_command(["export", str(finished), str(tmp_path / "rows.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), table, rtol=1e-5, atol=1e-6)
    faiss = pytest.importorskip("faiss")
    diskhop.export(finished, tmp_path / "index.faiss", by="dot")
    found = faiss.read_index(str(tmp_path / "index.faiss")).search(table[7:8], 3)[1][0]
    np.testing.assert_array_equal(found, np.argsort(-table @ table[7], kind="stable")[:3])


def test_commands(dataset: Dataset, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["evaluate", str(finished), "--part", "test", "--eval-candidates", "50"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "average precision" in said
    assert "both sides, raw, 50 candidates" in said
    assert run_command(["neighbors", str(finished), "3", "--top", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run_command(["report", str(finished), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "cross-entropy loss of edges" in page
    assert "random pairs" in page
    capsys.readouterr()
    for words, message in (
        (["predict", str(finished), "--what", "class", "--out", str(tmp_path / "x")], "the model predicts links"),
        (["predict", str(finished), "--require", "test>=.5", "--out", str(tmp_path / "x")], "measure links by"),
        (["evaluate", str(finished), "--eval-edges", "5"], "--eval-edges has no effect on links"),
        (["neighbors", str(finished), "3", "--by", "magic"], "unknown nearness 'magic'"),
        (
            ["train", str(dataset.path), "--warm-start", str(finished)],
            "name a run of 'diskhop train' of kind node or hop",
        ),
    ):
        assert run_command(words) == 2, words
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_decoder_that_does_not_fit_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("config.toml", "model.safetensors", "schema.json"):
        (tmp_path / "run" / name).write_bytes((finished / name).read_bytes())
    text = (tmp_path / "run" / "config.toml").read_text().replace('decoder = "distmult"', 'decoder = "mlp"')
    (tmp_path / "run" / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match="does not fit --decoder mlp"):
        link_neighbors(tmp_path / "run", 3)
