"""The model of a run: embeddings of the nodes at both ends of an edge type, and a decoder that scores pairs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.nn.decoders.decoders import Decoder
from diskhop.nn.link_model import decoder_of
from diskhop.runs.typed.model import TypedModel, make_typed
from diskhop.sampling.edge_split.target import SplitTarget


class TypedLinkModel(nn.Module):
    """An encoder of two node types, or of one, and a decoder.

    encoder: maps rows by type to embeddings of the seeds by type.
    decoder: scores pairs.
    """

    def __init__(self, encoder: TypedModel, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @property
    def held(self) -> Mapping[str, int]:
        """Bytes of the budget that learned rows take, by name."""
        return self.encoder.held

    def forward(self, x: Mapping[str, Tensor], inputs: Any) -> Tensor:
        """Return the embeddings of the seeds, float32 (seeds, dim). inputs: a TypedInputs.

        Seeds are in the order of merged rows, so those of the first type come first.
        """
        outputs = self.encoder.outputs(x, inputs)
        parts = [rows[: inputs.parts[name].num_sampled_nodes[0]] for name, rows in outputs.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def step_rows(self, factor: float, weight: float) -> None:
        """See StepsRows."""
        self.encoder.step_rows(factor, weight)


def make_link_model(merged: Dataset, config: TypedLinkConfig, target: SplitTarget) -> TypedLinkModel:
    """Make the model of a configuration, with random parameters from torch's generator."""
    ends = dict.fromkeys((target.ends[0], target.ends[-1]))
    return TypedLinkModel(make_typed(merged, config, tuple(ends), config.dim), decoder_of(config))
