"""Models as layers: a list of modules, a BasicGNN of PyG with its norms and activations, or a network of diskhop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from diskhop.errors import ConfigError
from diskhop.nn.layers.aggregate import LayerBlock
from diskhop.nn.layers.network import Network
from diskhop.predicting.batched.modules import Layer, require_modules
from diskhop.predicting.batched.pyg import has_own_forward, is_basic_gnn

if TYPE_CHECKING:
    from torch_geometric.nn.models.basic_gnn import BasicGNN

Model = nn.Module | Sequence[nn.Module]


class Unrolled:
    """A model's layers.

    layers: the layers, each of one hop.
    head: row-wise module of the list of all layers' tables, whose result is a table more; None: no such table.
    """

    def __init__(self, layers: Sequence[Layer], head: nn.Module | None = None) -> None:
        self.layers = list(layers)
        self.head = head


def unroll(model: Model) -> Unrolled:
    """Return the layers of a model. Raises ConfigError for a model that has no known ones."""
    if isinstance(model, Network):
        require_modules([model])
        return Unrolled([Layer(i + 1, _NetworkLayer(model, i)) for i in range(len(model.convs))])
    if is_basic_gnn(model):
        require_modules([model])
        return _unroll_basic(model)
    if isinstance(model, nn.ModuleList):
        model = list(model)
    if isinstance(model, nn.Module) or not isinstance(model, list | tuple):
        raise ConfigError(
            f"layers must be a list of modules, one per hop, or a BasicGNN of PyG, got a {type(model).__name__}; "
            "pass for example [model.conv1, model.conv2]"
        )
    if not model:
        raise ConfigError("layers is an empty list; pass one module per hop")
    require_modules(model)
    for number, module in enumerate(model, start=1):
        if isinstance(module, Network) or is_basic_gnn(module):
            raise ConfigError(
                f"layer {number} is a whole model ({type(module).__name__}); pass the model itself, not a list"
            )
    return Unrolled([Layer(number, module) for number, module in enumerate(model, start=1)])


class _NetworkLayer(nn.Module):
    """A layer of a network of diskhop, with its norm and activation. shown: its name in messages."""

    def __init__(self, network: Network, index: int) -> None:
        super().__init__()
        self.shown = type(network.convs[index]).__name__
        self.network = network
        self.index = index

    def forward(self, x: Tensor, layer: LayerBlock) -> Tensor:
        """Compute the layer."""
        return self.network.layer(self.index, x, layer)


class _After(nn.Module):
    """Norm and activation of a BasicGNN after a convolution, and its last linear map."""

    def __init__(self, model: BasicGNN, norm: nn.Module, *, has_activation: bool, linear: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm
        self.linear = linear
        self.has_activation = has_activation
        self.is_activation_first = model.act_first
        self.activation: Callable[[Tensor], Tensor] | None = model.act

    def forward(self, x: Tensor) -> Tensor:
        """Map rows to rows."""
        if self.has_activation:
            activate = self.activation or (lambda values: values)
            x = self.norm(activate(x)) if self.is_activation_first else activate(self.norm(x))
        return x if self.linear is None else self.linear(x)


class _Head(nn.Module):
    """Jumping knowledge of a BasicGNN: the tables of all layers to one, and its linear map."""

    def __init__(self, model: BasicGNN) -> None:
        super().__init__()
        self.knowledge = model.jk
        self.linear = model.lin

    def forward(self, tables: list[Tensor]) -> Tensor:
        """Map [(rows, hidden)] to (rows, outputs)."""
        out: Tensor = self.linear(self.knowledge(tables))
        return out


def _unroll_basic(model: BasicGNN) -> Unrolled:
    if has_own_forward(model):
        raise ConfigError(
            f"{type(model).__name__} has its own forward(), so its layers are not known; "
            "pass a list of modules, one per hop"
        )
    keeps_all = hasattr(model, "jk")
    layers = []
    for i, (conv, norm) in enumerate(zip(model.convs, model.norms, strict=True)):
        is_last = i == model.num_layers - 1
        linear = model.lin if is_last and model.jk_mode == "last" else None
        has_activation = not is_last or model.jk_mode is not None
        layers.append(Layer(i + 1, conv, _After(model, norm, has_activation=has_activation, linear=linear)))
    return Unrolled(layers, _Head(model) if keeps_all else None)
