"""Hop models by the formulas of their papers, node by node, in the number type of the given rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.hop.hoga import Hoga
from diskhop.nn.hop.sign import Sign


def sign_by_formula(sign: Sign, x: Tensor) -> Tensor:
    """A linear layer per hop, then a perceptron over all, without norms: (tables, rows, in_dim) -> (rows, out_dim)."""
    hops = [functional.relu(_linear(layer, rows)) for layer, rows in zip(sign.hops, x, strict=True)]
    return _perceptron(sign.mlp, torch.cat(hops, dim=1))


def hoga_by_formula(hoga: Hoga, x: Tensor, heads: int) -> Tensor:
    """Node by node and head by head, as the docstring of hoga.py has it, without other norms than that of the hops."""

    def of_node(tokens: Tensor) -> Tensor:
        embedded = functional.relu(
            torch.stack([_linear(hop, token) for hop, token in zip(hoga.hops, tokens, strict=True)])
        )
        queries, keys, values, gates = _linear(hoga.projections, embedded).chunk(4, dim=1)
        attended = torch.cat(
            [
                torch.softmax(q @ k.T / k.shape[1] ** 0.5, dim=1) @ v
                for q, k, v in zip(*(part.chunk(heads, dim=1) for part in (queries, keys, values)), strict=True)
            ],
            dim=1,
        )
        norm = hoga.norm.weight.to(x.dtype), hoga.norm.bias.to(x.dtype)
        hops = functional.relu(functional.layer_norm(gates * attended, gates.shape[1:], *norm))
        weights = torch.softmax(hops[1:] @ hoga.readout.to(x.dtype), dim=0)
        return hops[0] + weights @ hops[1:]

    return _perceptron(hoga.mlp, torch.vmap(of_node, chunk_size=4096)(x.transpose(0, 1)))


def _perceptron(layers: nn.Module, x: Tensor) -> Tensor:
    *hidden, last = layers.children()
    for layer in hidden:
        x = functional.relu(_linear(layer, x))
    return _linear(last, x)


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    """The only linear map of a layer without a norm."""
    weight, bias = (parameter.to(x.dtype) for parameter in layer.parameters())
    return functional.linear(x, weight, bias)
