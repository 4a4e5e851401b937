"""Claims about a step: it is what autograd and Adagrad over whole tables would do, for every model and loss."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import KnownEdges
from diskhop.embedding.step.step import Step, Table

NUM_NODES, NUM_RELATIONS, DIM, NUM_EDGES, NUM_NEGATIVES, CHUNK = 30, 3, 8, 17, 6, 5
EPSILON = 1e-10


def make_options(**changes: object) -> StepOptions:
    options: dict[str, object] = {
        "model": "complex", "loss": "softmax", "margin": 0.5, "lr": 0.1, "batch_size": 20, "chunk_size": CHUNK,
        "num_negatives": NUM_NEGATIVES, "reciprocal": False, "n3": 0.0, "l2": 0.0, "dropout": 0.0,
    }  # fmt: skip
    return StepOptions(**{**options, **changes})  # type: ignore[arg-type]


def no_draws(chunk: int) -> torch.Generator:
    raise AssertionError("nothing is dropped")


def draws_of(seed: int, chunk: int) -> torch.Generator:
    return torch.Generator().manual_seed(10 * seed + chunk)


def make_tables(options: StepOptions, state_dim: int, seed: int = 0) -> tuple[Table, Table | None]:
    draws = np.random.default_rng(seed)

    def table(num_rows: int, dim: int) -> Table:
        values = draws.normal(0, 0.7, (num_rows, dim)).astype(np.float32)
        return Table(values, draws.uniform(0, 1, (num_rows, min(state_dim, dim))).astype(np.float32))

    score = SCORES[options.model]
    relations = None
    if score.uses_relations:
        relations = table(NUM_RELATIONS * (2 if options.reciprocal else 1), score.relation_dim(DIM))
    return table(NUM_NODES, DIM), relations


def make_batch(options: StepOptions, seed: int = 1) -> tuple[EdgeRows, np.ndarray]:
    draws = np.random.default_rng(seed)
    relations = draws.integers(0, NUM_RELATIONS, NUM_EDGES).astype(np.int32)
    ends = draws.integers(0, NUM_NODES, (2, NUM_EDGES))
    chunks = -(-NUM_EDGES // options.chunk_size)
    return EdgeRows(ends[0], relations, ends[1]), draws.integers(0, NUM_NODES, (2, chunks, NUM_NEGATIVES))


def score_of(model: str, source: Tensor, relation: Tensor | None, destination: Tensor) -> Tensor:
    """The definition, over the last dimension."""
    if relation is None:
        return (source * destination).sum(-1)
    if model == "distmult":
        return (source * relation * destination).sum(-1)
    if model == "transe":
        return -(source + relation - destination).square().sum(-1).clamp(min=1e-12).sqrt()
    if model == "transe-l1":
        return -(source + relation - destination).abs().sum(-1)
    half = source.shape[-1] // 2
    s, t = (torch.complex(each[..., :half], each[..., half:]) for each in (source, destination))
    if model == "rotate":
        return -(s * torch.polar(torch.ones_like(relation), relation) - t).abs().sum(-1)
    return (s * torch.complex(relation[..., :half], relation[..., half:]) * t.conj()).real.sum(-1)


def loss_of(name: str, positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    if name == "contrastive":
        return negatives.logsumexp(1) - positives
    if name == "softmax":
        return torch.cat([negatives, positives[:, None]], 1).logsumexp(1) - positives
    if name == "logistic":
        return functional.softplus(-positives - margin) + functional.softplus(negatives + margin).sum(1) / NUM_NEGATIVES
    return (margin - positives[:, None] + negatives).clamp(min=0).sum(1) / NUM_NEGATIVES


def oracle(
    options: StepOptions,
    nodes: Table,
    relations: Table | None,
    edges: EdgeRows,
    negatives: np.ndarray,
    known: Iterable[tuple[int, int, int]] = (),
) -> tuple[float, list[tuple[Tensor, Tensor]]]:
    """The loss, and gradients as (values, by autograd) of nodes and relations. known: triples."""
    values = torch.tensor(nodes.values, dtype=torch.float64, requires_grad=True)
    of_relations = (
        None if relations is None else torch.tensor(relations.values, dtype=torch.float64, requires_grad=True)
    )
    sources, destinations = torch.from_numpy(edges.sources), torch.from_numpy(edges.destinations)
    total = torch.zeros((), dtype=torch.float64)
    penalty = torch.zeros((), dtype=torch.float64)
    for number in range(negatives.shape[1]):
        rows = slice(number * options.chunk_size, min((number + 1) * options.chunk_size, len(edges)))
        s, t = values[sources[rows]], values[destinations[rows]]
        for side in (0, 1):
            relation = None
            if of_relations is not None and edges.relations is not None:
                numbers = torch.from_numpy(edges.relations[rows]).long()
                relation = of_relations[numbers + (NUM_RELATIONS if side and options.reciprocal else 0)]
                penalty = penalty + options.n3 / 3 * relation.abs().pow(3).sum()
            drawn = torch.from_numpy(negatives[side, number])
            others = values[drawn][None]
            r = None if relation is None else relation[:, None]
            if side == 0:
                positives, scores = (
                    score_of(options.model, s, relation, t),
                    score_of(options.model, s[:, None], r, others),
                )
            elif options.reciprocal:
                positives, scores = (
                    score_of(options.model, t, relation, s),
                    score_of(options.model, t[:, None], r, others),
                )
            else:
                positives, scores = (
                    score_of(options.model, s, relation, t),
                    score_of(options.model, others, r, t[:, None]),
                )
            wanted = (destinations if side == 0 else sources)[rows]
            scores = scores.masked_fill(wanted[:, None] == drawn[None], -torch.inf)
            asked = (sources if side == 0 else destinations)[rows].tolist()
            by_relation = [0] * len(asked) if edges.relations is None else edges.relations[rows].tolist()
            for source, relation_number, destination in known:
                for row, (node, number_of_relation) in enumerate(zip(asked, by_relation, strict=True)):
                    known_asked, answer = (source, destination) if side == 0 else (destination, source)
                    if (node, number_of_relation) == (known_asked, relation_number):
                        scores = scores.masked_fill(
                            (torch.arange(len(asked)) == row)[:, None] & (drawn == answer)[None], -torch.inf
                        )
            total = total + loss_of(options.loss, positives, scores, options.margin).sum()
        penalty = penalty + sum(
            options.l2 / 2 * each.square().sum() + options.n3 / 3 * each.abs().pow(3).sum() for each in (s, t)
        )
    torch.autograd.backward(total + penalty)
    found = [(values.detach(), values.grad)]
    if of_relations is not None:
        found.append((of_relations.detach(), of_relations.grad))
    return float(total.detach()), [(each, grad) for each, grad in found if grad is not None]


def adagrad(values: Tensor, grad: Tensor, squares: np.ndarray, lr: float) -> tuple[Tensor, Tensor]:
    """values and squares after a step."""
    before = torch.from_numpy(squares).double()
    added = grad.square() if before.shape[1] > 1 else grad.square().mean(1, keepdim=True)
    after = before + added
    return values - lr * grad / (after.sqrt() + EPSILON), after


@pytest.mark.fast(16)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", SCORES)
@pytest.mark.parametrize("state_dim", [1, DIM])
def test_a_step_is_what_autograd_and_adagrad_do(model: str, loss: str, state_dim: int) -> None:
    check(make_options(model=model, loss=loss), state_dim)


@pytest.mark.parametrize("loss", ["contrastive", "softmax"])
@pytest.mark.parametrize("model", ["dot", "distmult", "complex"])
def test_without_the_cores_products_it_is_the_same(monkeypatch: pytest.MonkeyPatch, loss: str, model: str) -> None:
    monkeypatch.setattr("diskhop.embedding.step.gradients.has_product_gradients", lambda: False)
    check(make_options(loss=loss, model=model, n3=0.1, l2=0.05), 1)


@pytest.mark.parametrize("model", [name for name, score in SCORES.items() if score.uses_relations])
def test_relations_have_an_embedding_for_each_direction(model: str) -> None:
    check(make_options(model=model, reciprocal=True), 1)


@pytest.mark.parametrize("model", SCORES)
def test_weights_of_cubes_and_squares_are_in_the_gradient(model: str) -> None:
    check(make_options(model=model, n3=0.1, l2=0.05), 1)


@pytest.mark.fast(8)
@pytest.mark.parametrize("model", SCORES)
@pytest.mark.parametrize("loss", LOSSES)
def test_negatives_that_make_a_known_edge_do_not_count(model: str, loss: str) -> None:
    options = make_options(model=model, loss=loss)
    edges, negatives = make_batch(options)
    if not SCORES[model].uses_relations:
        edges = EdgeRows(edges.sources, None, edges.destinations)
    draws = np.random.default_rng(2)
    known = draws.integers(0, NUM_NODES, (600, 3))
    known[:, 1] %= NUM_RELATIONS if SCORES[model].uses_relations else 1
    check(options, 1, edges, negatives, known)


def check(
    options: StepOptions,
    state_dim: int,
    edges: EdgeRows | None = None,
    negatives: np.ndarray | None = None,
    known: np.ndarray | None = None,
) -> None:
    nodes, relations = make_tables(options, state_dim)
    if edges is None or negatives is None:
        edges, negatives = make_batch(options)
    of_batch = None
    if known is not None:
        # Nodes' places are other numbers than their rows, in the same order as none of these.
        places = np.random.default_rng(3).permutation(NUM_NODES) + 100
        sources, of_relations, destinations = places[known[:, 0]], known[:, 1], places[known[:, 2]]
        made = KnownEdges.read(
            len(known),
            0 if edges.relations is None else NUM_RELATIONS,
            lambda: iter(
                [
                    (part[0], None if edges.relations is None else part[1], part[2])
                    for part in (
                        (sources[:250], of_relations[:250], destinations[:250]),
                        (sources[250:], of_relations[250:], destinations[250:]),
                    )
                ]
            ),
        )
        rows = np.concatenate([edges.sources, edges.destinations, negatives.reshape(-1)])
        kinds = None if edges.relations is None else torch.from_numpy(edges.relations)
        of_batch = made.of_batch(torch.from_numpy(places[rows]), kinds, len(edges))
    before = [(table.values.copy(), table.squares.copy()) for table in (nodes, relations) if table is not None]
    triples = () if known is None else set(map(tuple, known.tolist()))
    loss, gradients = oracle(options, nodes, relations, edges, negatives, triples)
    assert Step(options, nodes, relations).run(edges, negatives, no_draws, (), of_batch) == pytest.approx(
        loss, rel=1e-5
    )
    tables = [table for table in (nodes, relations) if table is not None]
    for table, (_, squares), (values, grad) in zip(tables, before, gradients, strict=True):
        wanted, wanted_squares = adagrad(values, grad, squares, options.lr)
        torch.testing.assert_close(torch.from_numpy(table.values).double(), wanted, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(torch.from_numpy(table.squares).double(), wanted_squares, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", SCORES)
def test_threads_change_no_bit(model: str) -> None:
    options = make_options(model=model, batch_size=500, chunk_size=100, num_negatives=NUM_NEGATIVES)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            nodes, relations = make_tables(options, 1)
            step = Step(options, nodes, relations)
            for seed in range(3):
                edges, negatives = make_batch(options, seed)
                step.run(edges, negatives, no_draws)
            found.append(nodes.values.tobytes())
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_dropout_is_drawn_from_the_generator_alone() -> None:
    options = make_options(dropout=0.5)
    found = []
    for seed in (3, 3, 4):
        nodes, relations = make_tables(options, 1)
        edges, negatives = make_batch(options)
        Step(options, nodes, relations).run(edges, negatives, partial(draws_of, seed))
        found.append(nodes.values.tobytes())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("model", SCORES)
def test_rows_that_are_fixed_are_negatives_and_stay(model: str) -> None:
    options = make_options(model=model)
    edges, negatives = make_batch(options)
    edges = EdgeRows(edges.sources % 20 + 10, edges.relations, edges.destinations % 20 + 10)
    found = []
    for fixed in ([], [range(10)]):
        nodes, relations = make_tables(options, 1)
        before = nodes.values[:10].copy(), nodes.squares[:10].copy()
        loss = Step(options, nodes, relations).run(edges, negatives, no_draws, fixed)
        found.append((loss, nodes, relations))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[1][1].values[:10], before[0])
    np.testing.assert_array_equal(found[1][1].squares[:10], before[1])
    assert not np.array_equal(found[0][1].values[:10], before[0])
    np.testing.assert_array_equal(found[0][1].values[10:], found[1][1].values[10:])


def test_rotations_begin_anywhere_on_the_circle() -> None:
    """Rotations near zero would make every node its own best answer; the other relations begin small."""
    drawn = {}
    for name in ("rotate", "complex", "distmult", "transe"):
        drawn[name] = torch.empty(500, 8)
        SCORES[name].draw_relations(drawn[name], 0.1, torch.Generator().manual_seed(0))
    phases = drawn.pop("rotate")
    assert float(phases.abs().max()) <= np.pi
    quarters = torch.histc(phases, 4, -np.pi, np.pi) / phases.numel()
    assert torch.allclose(quarters, torch.tensor(0.25), atol=0.03)
    assert all(float(values.std()) == pytest.approx(0.1, rel=0.1) for values in drawn.values())
