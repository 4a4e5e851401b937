"""Decoders score a pair as they score it in a table of all pairs; losses are what their formulas say."""

from __future__ import annotations

import math

import pytest
import torch

from diskhop.errors import ConfigError
from diskhop.nn.decoders.decoders import DECODERS, make_decoder
from diskhop.nn.decoders.losses import LINK_LOSSES, find_loss

DIM = 8


def embeddings(num_rows: int, seed: int) -> torch.Tensor:
    return torch.randn(num_rows, DIM, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", DECODERS)
def test_the_table_of_pairs_has_the_scores_of_pairs(name: str) -> None:
    torch.manual_seed(0)
    decoder = make_decoder(name, DIM)
    nodes, candidates = embeddings(5, 1), embeddings(7, 2)
    table = decoder.matrix(nodes, candidates)
    pairs = decoder(nodes.repeat_interleave(7, 0), candidates.repeat(5, 1)).view(5, 7)
    torch.testing.assert_close(table, pairs)
    torch.testing.assert_close(decoder.matrix(candidates, nodes).t(), table)


@pytest.mark.parametrize("name", DECODERS)
def test_scores_have_gradients(name: str) -> None:
    decoder = make_decoder(name, DIM)
    nodes = embeddings(4, 1).requires_grad_()
    decoder(nodes, embeddings(4, 2)).sum().backward()
    assert nodes.grad is not None
    assert nodes.grad.abs().sum() > 0
    assert all(parameter.grad is not None for parameter in decoder.parameters())


def test_an_unknown_decoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown decoder 'magic'; the known ones are dot, cosine, distmult, mlp"):
        make_decoder("magic", DIM)
    with pytest.raises(ConfigError, match="unknown loss 'magic'"):
        find_loss("magic")


def test_losses_are_their_formulas() -> None:
    positives, negatives = torch.tensor([2.0, -1.0]), torch.tensor([[0.5, 1.0], [-2.0, 0.0]])
    pairs = [(2.0, [0.5, 1.0]), (-1.0, [-2.0, 0.0])]
    logs = [math.log1p(math.exp(-own)) for own, _ in pairs] + [math.log1p(math.exp(n)) for _, ns in pairs for n in ns]
    wanted = {
        "cross-entropy": sum(logs) / 6,
        "contrastive": sum(-own + math.log(sum(map(math.exp, [own, *ns]))) for own, ns in pairs) / 2,
        "margin": sum(max(0.0, 1.0 - own + n) for own, ns in pairs for n in ns) / 4,
    }
    assert wanted.keys() == LINK_LOSSES.keys()
    for name, value in wanted.items():
        assert float(find_loss(name)(positives, negatives, 1.0)) == pytest.approx(value)
