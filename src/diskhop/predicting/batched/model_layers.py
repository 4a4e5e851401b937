"""The layers of a model as sources of rows (layer_rows.py), in this process and in others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from diskhop.nn.layers.network import Network
from diskhop.predicting.batched.blocks import InputBlock
from diskhop.predicting.batched.degrees import SelfLoops
from diskhop.predicting.batched.layer_rows import ComputeRows
from diskhop.predicting.batched.modules import Layer
from diskhop.predicting.batched.unroll import unroll
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.runtime.jobs import Share


@dataclass(frozen=True, slots=True, eq=False)
class ModelLayer:
    """A layer of a model (see LayerSource).

    layer: the layer.
    loops: self-loops of all nodes, if it uses degrees without weights.
    network: the whole model, if other processes can build it.
    """

    layer: Layer
    loops: SelfLoops | None
    network: SharedNetwork[Network] | None

    def open(self) -> ComputeRows:
        """See LayerSource."""
        twin, loops = self.layer.open(), self.loops
        return lambda batch: twin.run(batch.x, InputBlock.of(batch.sampled, batch.in_degrees, loops, batch.prepared))

    def for_workers(self, _share: Share) -> partial[ModelLayer]:
        """See jobs.py."""
        if self.network is None:
            raise TypeError("a layer of a user's model")
        return partial(_open_again, self.network, self.layer.number, self.loops)


def _open_again(network: SharedNetwork[Network], number: int, loops: SelfLoops | None) -> ModelLayer:
    return ModelLayer(unroll(network.network).layers[number - 1], loops, network)
