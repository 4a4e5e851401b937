"""Layers of typed models have the parameters, values and gradients of PyG's, in float32 against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import HeteroConv, HGTConv, RGATConv, RGCNConv, SAGEConv
from torch_geometric.utils import softmax

from diskhop.nn.matmul.products import DEFAULT_PRODUCTS
from diskhop.nn.typed import means
from diskhop.nn.typed.hetero_sage import HeteroSageLayer
from diskhop.nn.typed.hgt import HgtLayer
from diskhop.nn.typed.rgat import RgatLayer
from diskhop.nn.typed.rgcn import RgcnLayer
from diskhop.nn.typed.simple_hgn import NEGATIVE_SLOPE, SimpleHgnLayer
from tests.examples import examples
from tests.unit.typed_blocks import RELATIONS, TypedCase, typed_cases

IN_DIM, OUT_DIM = 12, 8
TOLERANCE = 1e-5
NUM_EXAMPLES = 25


def assert_close(ours: Tensor | None, exact: Tensor | None, what: str) -> None:
    """A gradient may be absent where it is 0."""
    if ours is None or exact is None:
        one = exact if ours is None else ours
        assert one is None or not one.any(), what
        return
    scale = max(1.0, float(exact.detach().abs().max())) if exact.numel() else 1.0
    torch.testing.assert_close(ours.double(), exact, atol=TOLERANCE * scale, rtol=TOLERANCE, msg=what)


Run = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def check(
    case: TypedCase, ours: nn.Module, theirs: nn.Module, run: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    """Load PyG's parameters, compare outputs and all gradients. run: PyG's layer on rows by type, in float64."""
    torch.manual_seed(case.seed)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.uniform_(-0.5, 0.5)
    ours.load_state_dict(theirs.state_dict())
    theirs.double()
    our_x, their_x = case.leaves(torch.float32), case.leaves(torch.float64)
    outs, expected = ours(our_x, case.layer), run(their_x)
    computed = [name for name in case.schema.destinations if case.layer.num_targets[name]]
    assert list(outs) == computed
    loss: Any = 0
    their_loss: Any = 0
    for name in computed:
        assert_close(outs[name], expected[name], name)
        grad = torch.randn(outs[name].shape, dtype=torch.float64)
        loss, their_loss = loss + (outs[name] * grad.float()).sum(), their_loss + (expected[name] * grad).sum()
    torch.autograd.backward([loss, their_loss])
    for name, rows in our_x.items():
        assert_close(rows.grad, their_x[name].grad, name)
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(parameter.grad, other.grad, name)


def by_type(case: TypedCase, layer: nn.Module) -> Run:
    """PyG's layer on typed edges; it computes a row for every source."""

    def run(x: dict[str, Tensor]) -> dict[str, Tensor]:
        outs = layer(x, case.edge_index_dict())
        return {name: rows[: case.layer.num_targets[name]] for name, rows in outs.items()}

    return run


def on_one_graph(case: TypedCase, layer: nn.Module) -> Run:
    """PyG's layer on the nodes of all types as one graph."""

    def run(x: dict[str, Tensor]) -> dict[str, Tensor]:
        outs = layer(torch.cat(list(x.values())), *case.one_graph())
        return {name: case.targets_of(outs, name) for name in x}

    return run


@pytest.mark.filterwarnings("ignore:There exist node types")
@examples(NUM_EXAMPLES)
@given(case=typed_cases())
def test_hetero_sage_is_pygs(case: TypedCase) -> None:
    convs = {ends: SAGEConv((IN_DIM, IN_DIM), OUT_DIM) for ends in RELATIONS}
    theirs = HeteroConv(convs)
    ours = HeteroSageLayer(case.schema, IN_DIM, OUT_DIM, DEFAULT_PRODUCTS)
    check(case, ours, theirs, by_type(case, theirs))


@pytest.mark.parametrize(("chunk", "group"), [(1, 1), (3, 8), (4, 10**6)])
@pytest.mark.parametrize("regular", [{}, {"num_blocks": 4}])
def test_relations_are_grouped_and_cut_as_one_likes(
    regular: dict[str, int], chunk: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "_CHUNK_MEANS", chunk)
    monkeypatch.setattr(means, "_GROUP_MEANS", group)

    @examples(NUM_EXAMPLES // 3)
    @given(case=typed_cases())
    def agrees(case: TypedCase) -> None:
        theirs = RGCNConv(IN_DIM, OUT_DIM, len(RELATIONS), **regular)
        ours = RgcnLayer(case.schema, IN_DIM, OUT_DIM, DEFAULT_PRODUCTS, **regular)
        check(case, ours, theirs, on_one_graph(case, theirs))

    agrees()


@pytest.mark.parametrize("by_basis", [False, True])
@pytest.mark.parametrize("regular", [{}, {"num_bases": 2}, {"num_blocks": 4}])
def test_rgcn_is_pygs(regular: dict[str, int], by_basis: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RgcnLayer, "_saves_to_sum_by_basis", lambda *_: by_basis)

    @examples(NUM_EXAMPLES // 2)
    @given(case=typed_cases())
    def agrees(case: TypedCase) -> None:
        theirs = RGCNConv(IN_DIM, OUT_DIM, len(RELATIONS), **regular)
        ours = RgcnLayer(case.schema, IN_DIM, OUT_DIM, DEFAULT_PRODUCTS, **regular)
        check(case, ours, theirs, on_one_graph(case, theirs))

    agrees()


@pytest.mark.parametrize("mechanism", ["across-relation", "within-relation"])
@pytest.mark.parametrize("num_bases", [0, 2])
def test_rgat_is_pygs(num_bases: int, mechanism: str) -> None:
    @examples(NUM_EXAMPLES // 2)
    @given(case=typed_cases())
    def agrees(case: TypedCase) -> None:
        theirs = RGATConv(
            IN_DIM,
            OUT_DIM // 2,
            len(RELATIONS),
            heads=2,
            num_bases=num_bases or None,
            attention_mechanism=mechanism,
        )
        ours = RgatLayer(
            case.schema,
            IN_DIM,
            OUT_DIM,
            DEFAULT_PRODUCTS,
            heads=2,
            num_bases=num_bases,
            within=mechanism == "within-relation",
        )
        check(case, ours, theirs, on_one_graph(case, theirs))

    agrees()


@pytest.mark.fast(1)
@pytest.mark.parametrize("out_dim", [OUT_DIM, IN_DIM])
def test_hgt_is_pygs(out_dim: int) -> None:
    @examples(NUM_EXAMPLES)
    @given(case=typed_cases())
    def agrees(case: TypedCase) -> None:
        theirs = HGTConv(IN_DIM, out_dim, (list(case.x), list(RELATIONS)), heads=4)
        ours = HgtLayer(case.schema, IN_DIM, out_dim, DEFAULT_PRODUCTS, heads=4)
        check(case, ours, theirs, by_type(case, theirs))

    agrees()


def by_formula(conv: SimpleHgnLayer, case: TypedCase, x: Tensor, earlier: Tensor | None) -> tuple[Tensor, Tensor]:
    """Equations 5 to 9 of the paper on rows of all types, over the edges and a loop of every node."""
    edges, types = case.one_graph()
    loops = torch.arange(len(x))
    edges = torch.cat([edges, torch.stack([loops, loops])], dim=1)
    types = torch.cat([types, torch.full_like(loops, len(RELATIONS))])
    heads = conv.attn_l.shape[1]
    mapped = conv.fc(x).view(len(x), heads, -1)
    embedded = conv.fc_e(conv.edge_emb(types)).view(len(types), heads, -1)
    left, right = ((mapped * each).sum(dim=2) for each in (conv.attn_l, conv.attn_r))
    scores = left[edges[0]] + right[edges[1]] + (embedded * conv.attn_e).sum(dim=2)
    attention = softmax(functional.leaky_relu(scores, NEGATIVE_SLOPE), edges[1], num_nodes=len(x))
    if earlier is not None:
        attention = 0.95 * attention + 0.05 * earlier
    out = torch.zeros_like(mapped).index_add(0, edges[1], attention[:, :, None] * mapped[edges[0]])
    own = 0 if conv.res_fc is None else conv.res_fc(x)
    return (out + conv.bias_param).flatten(1) + own, attention.detach()


@pytest.mark.parametrize("residual", [False, True])
def test_simple_hgn_is_its_formula(residual: bool) -> None:
    @examples(NUM_EXAMPLES // 2)
    @given(case=typed_cases())
    def agrees(case: TypedCase) -> None:
        def make() -> SimpleHgnLayer:
            return SimpleHgnLayer(
                case.schema, IN_DIM, OUT_DIM, DEFAULT_PRODUCTS, heads=2, edge_dim=5, residual=residual
            )

        theirs, ours = make(), SecondPass(make())

        class Formula(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = theirs

        def run(x: dict[str, Tensor]) -> dict[str, Tensor]:
            rows = torch.cat(list(x.values()))
            _, earlier = by_formula(theirs, case, rows.flip(1), None)
            out, _ = by_formula(theirs, case, rows, earlier)
            return {name: case.targets_of(out, name) for name in x}

        # A type without relations has its loops, but no target here.
        case.layer.num_targets["venue"] = 0  # type: ignore[index]
        check(case, ours, Formula(), run)

    agrees()


class SecondPass(nn.Module):
    """A layer that mixes in the attention of a pass over other rows."""

    def __init__(self, conv: SimpleHgnLayer) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: dict[str, Tensor], layer: Any) -> dict[str, Tensor]:
        _, earlier = self.conv({name: rows.flip(1) for name, rows in x.items()}, layer)
        outs, _ = self.conv(x, layer, earlier)
        return dict(outs)
