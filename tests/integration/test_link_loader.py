"""Claims about LinkNeighborLoader: fields and meaning are PyG's, and no store, thread or budget changes a batch."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import SubsetRandomSampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import BaseSampler, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from diskhop import LinkNeighborLoader, PygStores, from_pyg
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.stores.stores import STORES
from tests.mini_batches import assert_same_batches

NUM_NODES, NUM_EDGES, NUM_LINKS = 300, 4000, 210
TRIPLETS = {"mode": "triplet", "amount": 2}


def graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=torch.rand(NUM_NODES, 8, generator=generator),
        time=torch.arange(NUM_NODES) % 30,
        edge_index=torch.randint(0, NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_weight=torch.rand(NUM_EDGES, generator=generator).round(decimals=1),
        edge_time=torch.randint(0, 30, (NUM_EDGES,), generator=generator),
    )


PAIRS = torch.randint(0, NUM_NODES, (2, NUM_LINKS), generator=torch.Generator().manual_seed(2))
TIMES = torch.arange(NUM_LINKS) % 40
WAYS: list[dict[str, Any]] = [
    {},
    {"neg_sampling": "binary", "edge_label": torch.arange(NUM_LINKS) % 3},
    {"neg_sampling_ratio": 0.7, "subgraph_type": "induced"},
    {"neg_sampling": TRIPLETS, "weight_attr": "edge_weight", "replace": True},
    {"neg_sampling": TRIPLETS, "disjoint": True},
    {"neg_sampling": ("binary", 1.5), "disjoint": True, "subgraph_type": "bidirectional"},
    {"neg_sampling": TRIPLETS, "time_attr": "time", "edge_label_time": TIMES},
    {"neg_sampling": "binary", "time_attr": "time", "edge_label_time": TIMES, "temporal_strategy": "last"},
    {"neg_sampling": "binary", "time_attr": "edge_time", "edge_label_time": TIMES},
    {"edge_label_index": None, "neg_sampling": "binary"},
    {"sampler": "labor", "batch_dependency": 2, "neg_sampling": "binary"},
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_pyg(graph(), tmp_path_factory.mktemp("graphs") / "graph", order="hot")


def load(dataset: Dataset, num_neighbors: Any = (5, 4), **arguments: Any) -> LinkNeighborLoader:
    fanouts = list(num_neighbors) if isinstance(num_neighbors, tuple) else num_neighbors
    given = {"batch_size": 20, "memory": "50MB", "edge_label_index": PAIRS, **arguments}
    return LinkNeighborLoader(dataset, fanouts, **given)


def check_fields(batch: Data, ways: dict[str, Any]) -> None:
    given, num_links = graph(), 20
    pairs = PAIRS if ways.get("edge_label_index", PAIRS) is not None else given.edge_index
    assert torch.equal(batch.x, given.x[batch.n_id])
    if ways.get("subgraph_type") != "bidirectional":  # which has the opposites of edges
        assert torch.equal(batch.n_id[batch.edge_index], given.edge_index[:, batch.e_id])
    assert "batch_size" not in batch
    if "src_index" in batch:
        assert "edge_label_index" not in batch
        ends = torch.stack([batch.src_index, batch.dst_pos_index])
        assert batch.dst_neg_index.shape == (num_links, 2)
        assert bool((batch.dst_neg_index < batch.num_nodes).all())
    else:
        ends = batch.edge_label_index[:, :num_links]
    assert torch.equal(batch.n_id[ends], pairs[:, batch.input_id])
    if "edge_label" in batch:
        labels = ways["edge_label"][batch.input_id] + 1 if "edge_label" in ways else torch.ones(num_links)
        assert torch.equal(batch.edge_label[:num_links], labels)
        assert torch.equal(batch.edge_label[num_links:], torch.zeros_like(batch.edge_label[num_links:]))
        assert len(batch.edge_label) == batch.edge_label_index.shape[1] > num_links
    if "edge_label_time" not in ways:
        return
    times = batch.seed_time if "src_index" in batch else batch.edge_label_time
    assert torch.equal(times[:num_links], TIMES[batch.input_id])
    if ways["time_attr"] == "time":
        is_drawn = torch.ones(batch.num_nodes, dtype=torch.bool)
        is_drawn[ends.flatten()] = False  # the ends that were given may be later than their link
        assert bool((batch.time <= times[batch.batch])[is_drawn].all())
    else:
        assert bool((batch.edge_time <= times[batch.batch[batch.edge_index[1]]]).all())


@pytest.mark.fast(4)
@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(ways) or "plain")
def test_a_batch_has_pygs_fields_whatever_carries_it(dataset: Dataset, tmp_path: Path, ways: dict[str, Any]) -> None:
    with load(dataset, store="memory", shuffle=True, drop_last=True, **ways) as loader:
        expected = [*islice(loader, 10)]
        assert len(expected) == 10
        assert expected[0].input_id.tolist() != [*range(20)]
    for batch in expected:
        check_fields(batch, ways)
    for store in STORES:
        looks_ahead = {"scratch": str(tmp_path)} if STORES[store].looks_ahead else {}
        arguments: dict[str, Any] = {"memory": "35MB", "threads": 2, "ordered": True, **looks_ahead, **ways}
        with load(dataset, store=store, shuffle=True, drop_last=True, **arguments) as loader:
            assert_same_batches(islice(loader, len(expected)), expected)


class PygsLinks(BaseSampler):  # type: ignore[misc]
    """Links and negatives as PyG makes them."""

    def __init__(self, nodes: Any, *, disjoint: bool) -> None:
        self._nodes = nodes
        self._disjoint = disjoint

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> SamplerOutput:
        """See BaseSampler."""
        return self._nodes.sample_from_nodes(index)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """See BaseSampler."""

        def sample(seeds: Tensor, _times: Any) -> SamplerOutput:
            return self._nodes.sample_from_nodes(NodeSamplerInput(None, seeds))

        return edge_sample(index, sample, NUM_NODES, self._disjoint, neg_sampling=neg_sampling)


@pytest.mark.fast(3)
@pytest.mark.parametrize("neg_sampling", [None, "binary", TRIPLETS])
@pytest.mark.parametrize("disjoint", [False, True])
def test_batches_have_the_fields_that_pyg_makes(dataset: Dataset, neg_sampling: Any, disjoint: bool) -> None:
    """PyG's own function makes the links of the other batch, over the same sampler of nodes."""
    with (
        load(dataset, neg_sampling=neg_sampling, disjoint=disjoint) as ours,
        PygStores(dataset, [5, 4], disjoint=disjoint, batch_size=20, memory="50MB") as stores,
    ):
        index = (None, PAIRS)
        sampler = PygsLinks(stores.sampler, disjoint=disjoint)
        theirs = LinkLoader(stores.data, sampler, index, neg_sampling=neg_sampling, batch_size=20)
        for mine, pygs in zip(ours, theirs, strict=True):
            of_links = {name for name in pygs.to_dict() if "label" in name or "index" in name or name in ("batch",)}
            assert {name for name in of_links if pygs[name] is not None} <= mine.to_dict().keys()
            for name in ("edge_label_index", "edge_label", "src_index", "dst_neg_index", "input_id"):
                if pygs.get(name) is not None:
                    assert mine[name].shape == pygs[name].shape
                    assert mine[name].dtype == pygs[name].dtype
            if disjoint:
                num_seeds = mine.num_sampled_nodes[0]
                assert torch.equal(mine.batch[:num_seeds], pygs.batch[:num_seeds])


def test_all_edges_are_in_the_order_of_the_source(dataset: Dataset) -> None:
    given = graph()
    labels, times = torch.arange(NUM_EDGES) % 5 + 1, torch.arange(NUM_EDGES) % 30
    arguments = {"edge_label_index": None, "edge_label": labels, "edge_label_time": times, "time_attr": "edge_time"}
    for shuffle in (False, True):
        with load(dataset, (2,), batch_size=500, shuffle=shuffle, **arguments) as loader:
            assert len(loader.dataset) == NUM_EDGES
            batches = [*loader]
            ids = torch.cat([batch.input_id for batch in batches])
            assert torch.equal(ids.sort().values, torch.arange(NUM_EDGES))
            assert torch.equal(ids, torch.arange(NUM_EDGES)) == (not shuffle)
            for batch in [*batches, loader([17, 3, 3999])]:
                assert torch.equal(batch.n_id[batch.edge_label_index], given.edge_index[:, batch.input_id])
                assert torch.equal(batch.edge_label, labels[batch.input_id])
                assert torch.equal(batch.edge_label_time, times[batch.input_id])
            assert loader([17, 3, 3999]).input_id.tolist() == [17, 3, 3999]


def test_shuffled_edges_of_the_graph_take_no_memory(dataset: Dataset) -> None:
    with load(dataset, edge_label_index=None, shuffle=True, neg_sampling="binary") as loader:
        assert "links" not in loader.plan.reserved
        first = [batch.input_id for batch in loader]
        assert torch.equal(torch.cat(first).sort().values, torch.arange(NUM_EDGES))
        assert not torch.equal(torch.cat([batch.input_id for batch in loader]), torch.cat(first))


def test_ordering_all_edges_is_in_the_budget(dataset: Dataset) -> None:
    budget = Budget(50_000_000)
    with load(dataset, edge_label_index=None, memory=budget):
        assert budget.table()["order of links"] >= 16 * NUM_EDGES
    budget = Budget(50_000_000)
    with load(dataset, edge_label_index=None, shuffle=True, memory=budget):
        assert "order of links" not in budget.table()
    with pytest.raises(BudgetError, match="order of links"):
        load(dataset, edge_label_index=None, memory=16 * NUM_EDGES)


def test_edges_without_numbers_are_counted_as_they_are_stored(tmp_path: Path) -> None:
    dataset = from_pyg(graph(), tmp_path / "graph", edge_ids="drop")
    with load(dataset, edge_label_index=None, batch_size=1000) as loader:
        batches = [*loader]
    assert torch.equal(torch.cat([batch.input_id for batch in batches]), torch.arange(NUM_EDGES))
    ends = torch.cat([batch.n_id[batch.edge_label_index] for batch in batches], 1)
    wanted = graph().edge_index
    assert sorted(zip(*ends.tolist(), strict=True)) == sorted(zip(*wanted.tolist(), strict=True))
    with pytest.raises(ConfigError, match="does not keep their numbers; pass edge_label_index as well"):
        load(dataset, edge_label_index=None, edge_label=torch.ones(NUM_EDGES))


def test_labels_keep_dtype_and_shape(dataset: Dataset) -> None:
    labels = torch.rand(NUM_LINKS, 2, dtype=torch.float64) + 0.5
    with load(dataset, edge_label=labels, neg_sampling="binary") as loader:
        batch = next(iter(loader))
        assert torch.equal(batch.edge_label, torch.cat([labels[:20], torch.zeros(20, 2, dtype=torch.float64)]))
    with load(dataset, edge_label=np.zeros(NUM_LINKS, np.int16)) as loader:
        assert next(iter(loader)).edge_label.dtype == torch.int16
    with load(dataset, neg_sampling_ratio=0.0) as loader:
        assert "edge_label" not in next(iter(loader))


def test_negatives_follow_their_weights(dataset: Dataset) -> None:
    weights = torch.zeros(NUM_NODES)
    weights[[7, 11]] = torch.tensor([1.0, 3.0])
    sampling = NegativeSampling("triplet", 5, dst_weight=weights)
    with load(dataset, neg_sampling=sampling) as loader:
        drawn = torch.cat([batch.n_id[batch.dst_neg_index].flatten() for batch in loader])
    counts = torch.bincount(drawn, minlength=NUM_NODES)
    assert counts.nonzero().flatten().tolist() == [7, 11]
    assert 0.65 < counts[11] / counts.sum() < 0.85
    with load(dataset, neg_sampling=NegativeSampling("triplet", 20, dst_weight="degree")) as loader:
        drawn = torch.cat([batch.n_id[batch.dst_neg_index].flatten() for batch in loader])
        assert "links" in loader.plan.reserved
        assert loader.plan.reserved["links"] == 16 * NUM_LINKS
    degrees = torch.bincount(graph().edge_index[1], minlength=NUM_NODES).double()
    expected = degrees / NUM_EDGES * len(drawn)
    counts = torch.bincount(drawn, minlength=NUM_NODES)
    assert float(((counts - expected) ** 2 / expected).sum()) < 400
    assert torch.corrcoef(torch.stack([counts.double(), degrees]))[0, 1] > 0.5
    sampling = NegativeSampling("binary", 1, src_weight=weights)
    with load(dataset, neg_sampling=sampling) as loader:
        batch = next(iter(loader))
        assert set(batch.n_id[batch.edge_label_index[0, 20:]].tolist()) <= {7, 11}
        assert len(set(batch.n_id[batch.edge_label_index[1, 20:]].tolist())) > 5


def test_a_sampler_of_torch_orders_links_and_states_resume(dataset: Dataset) -> None:
    torch.manual_seed(0)
    order = SubsetRandomSampler(range(100, 150))
    with load(dataset, sampler=order) as loader:
        assert len(loader) == 3
        assert sorted(torch.cat([batch.input_id for batch in loader]).tolist()) == [*range(100, 150)]
    with load(dataset, shuffle=True, neg_sampling="binary") as loader:
        batches = iter(loader)
        next(batches)
        state, rest = loader.state_dict(), [*batches]
    with load(dataset, shuffle=True, neg_sampling="binary") as same:
        same.load_state_dict(state)
        assert_same_batches(same, rest)
    with (
        load(dataset, shuffle=True, neg_sampling=TRIPLETS) as other,
        pytest.raises(ConfigError, match="with neg_sampling"),
    ):
        other.load_state_dict(state)
    with load(dataset, input_id=torch.arange(NUM_LINKS) * 2) as loader:
        assert loader([3, 5]).input_id.tolist() == [6, 10]


def test_a_graph_of_one_type_has_its_fields_by_type(tmp_path: Path) -> None:
    data = HeteroData(paper={"x": graph().x})
    data["paper", "cites", "paper"].edge_index = graph().edge_index
    dataset = from_pyg(data, tmp_path / "graph")
    cites = "paper", "cites", "paper"
    for index in (cites, ("paper", "paper"), (cites, None), None):
        with load(dataset, edge_label_index=index, neg_sampling="binary") as loader:
            batch = next(iter(loader))
            assert batch.input_type == cites
            ends = batch["paper"].n_id[batch[cites].edge_label_index[:, :20]]
            assert torch.equal(ends, graph().edge_index[:, :20])
    with load(dataset, edge_label_index=(cites, PAIRS), neg_sampling=TRIPLETS) as loader:
        batch = next(iter(loader))
        assert torch.equal(batch["paper"].n_id[batch["paper"].src_index], PAIRS[0, :20])
        assert batch["paper"].dst_neg_index.shape == (20, 2)
    with pytest.raises(ConfigError, match=r"of the edge type \('paper', 'author'\), and the edges of .* are"):
        load(dataset, edge_label_index=("paper", "author"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time_attr": "time"}, "time_attr 'time' needs the times of the links, and 'edge_label_time' is not set"),
        ({"edge_label_time": TIMES}, "edge_label_time has no effect .* and 'time_attr' is not set"),
        ({"time_attr": "age", "edge_label_time": TIMES}, "has no times 'age'"),
        ({"edge_label_index": torch.tensor([[0], [300]])}, "edge_label_index has id 300, which no node"),
        ({"edge_label_index": torch.tensor([[0], [-1]])}, "edge_label_index has id -1"),
        ({"edge_label_index": torch.zeros(3, 2)}, r"must be ids of shape \(2, links\), got shape \(3, 2\)"),
        ({"edge_label_index": torch.zeros(2, 3)}, "must be whole numbers"),
        ({"edge_label_index": [[0, 1], [2]]}, r"must be ids of shape \(2, links\), got \[\[0, 1\], \[2\]\]"),
        ({"edge_label_index": torch.zeros(2, 0, dtype=torch.long)}, "is empty, and must have at least one link"),
        ({"edge_label_index": "train"}, "must be ids of shape"),
        ({"edge_label_index": ("node", "edge", "node")}, "is of an edge type, and the edges of .* have none"),
        ({"edge_label": torch.ones(3)}, r"edge_label must be 210 numbers, one per link, got .*shape \(3,\)"),
        ({"edge_label": ["a"] * NUM_LINKS}, "edge_label must be 210 numbers"),
        ({"time_attr": "time", "edge_label_time": TIMES[:9]}, "edge_label_time must be 210 whole numbers"),
        ({"time_attr": "time", "edge_label_time": TIMES * 0.5}, "edge_label_time must be whole numbers"),
        ({"neg_sampling_ratio": -0.5}, r"neg_sampling_ratio must be at least 0, or None, got -0\.5"),
        ({"neg_sampling_ratio": 1, "neg_sampling": "binary"}, "remove one of them"),
        ({"neg_sampling": {"mode": "binary", "amount": 0}}, "needs to be positive .*; for example neg_sampling="),
        ({"neg_sampling": {"mode": "triplet", "amount": 1.5}}, "needs to be an integer"),
        ({"neg_sampling": "ternary"}, "'ternary' is not a valid NegativeSamplingMode; for example"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(3))}, "src_weight of neg_sampling must be 300"),
        ({"neg_sampling": NegativeSampling("binary", 1, "degrees")}, "unknown src_weight of neg_sampling 'degrees'"),
        ({"neg_sampling": NegativeSampling("binary", 1, -torch.ones(NUM_NODES))}, "at least 0 and finite, got -1"),
        (
            {"neg_sampling": NegativeSampling("binary", 1, torch.zeros(NUM_NODES))},
            "there is no node of a weight above 0; leave",
        ),
        (
            {"neg_sampling": "binary", "time_attr": "time", "edge_label_time": TIMES - 1},
            "no candidate is left to be a negative: there is no node not later than its link, of time -1; leave",
        ),
        ({"neg_sampling": TRIPLETS, "edge_label": torch.ones(NUM_LINKS)}, "leave edge_label out"),
        ({"transform_sampler_output": len}, "LinkNeighborLoader cannot take transform_sampler_output="),
        ({"batch_size": 0}, "batch_size"),
        ({"input_nodes": [1]}, "LinkNeighborLoader has no argument 'input_nodes'"),
        ({"sampler": 5}, "sampler must be positions in edge_label_index with a length"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(dataset: Dataset, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught, load(dataset, **arguments) as loader:
        next(iter(loader))
    assert "\n" not in str(caught.value)


def test_a_graph_without_edges_needs_links(tmp_path: Path) -> None:
    dataset = from_pyg(Data(num_nodes=10), tmp_path / "graph")
    with pytest.raises(ConfigError, match=r"edge_label_index is not given, and .* has no edges"):
        load(dataset, edge_label_index=None)
    with load(dataset, [], edge_label_index=[[0, 1], [2, 3]], neg_sampling="binary") as loader:
        assert next(iter(loader)).num_edges == 0
