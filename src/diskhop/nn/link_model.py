"""A link model: an encoder of nodes, and a decoder of pairs of them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from diskhop.config.link import LinkConfig
from diskhop.nn.decoders.decoders import Decoder, make_decoder
from diskhop.nn.layers.aggregate import Block
from diskhop.nn.layers.network import Network
from diskhop.nn.matmul.products import Products
from diskhop.nn.models import build_model

_ENCODER, _DECODER = "encoder.", "decoder."


class LinkModel(nn.Module):
    """A network whose outputs are embeddings, and a decoder that scores pairs of them.

    encoder: maps features and a block to embeddings, float32 (seeds, dim).
    decoder: scores pairs.
    """

    def __init__(self, encoder: Network, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @property
    def uses_degrees(self) -> bool:
        """Whether the whole graph's degrees change the result."""
        return self.encoder.uses_degrees

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Return the embeddings of the block's seeds; see Network."""
        out: Tensor = self.encoder(x, block)
        return out


def build_link_model(config: LinkConfig, in_dim: int) -> LinkModel:
    """Make the model that a configuration names, with random parameters from torch's generator."""
    encoder = build_model(config, in_dim, config.dim)
    return LinkModel(encoder, decoder_of(config))


def split_parameters(parameters: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters of the encoder and of the decoder, each by its own names."""
    encoder, decoder = (
        {name.removeprefix(prefix): tensor for name, tensor in parameters.items() if name.startswith(prefix)}
        for prefix in (_ENCODER, _DECODER)
    )
    return encoder, decoder


def decoder_of(config: LinkConfig) -> Decoder:
    """Make the decoder that a configuration names."""
    return make_decoder(config.decoder, config.dim, Products(config.matmul, config.precision))
