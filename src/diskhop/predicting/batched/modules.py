"""How a user's layer is called on a block: layer(x, edge_index), or as the annotations of its `forward` say.

x has a row for each source, the destinations first; the first rows of the result are kept. A module whose `forward`
takes a pair gets (x_source, x_target), as PyG's SAGEConv, GATConv and GINConv. One that takes a LayerBlock is
diskhop's own.

Modules are never changed. Each thread runs a *twin*: another module with the same parameters, in eval mode.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from diskhop.errors import ConfigError
from diskhop.nn.layers.aggregate import LayerBlock
from diskhop.predicting.batched.blocks import InputBlock
from diskhop.predicting.batched.degrees import normalized_edges
from diskhop.predicting.batched.pyg import is_normalizing

Form = Literal["plain", "pair", "own"]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer of a model.

    number: its number, from 1.
    module: the user's module.
    after: row-wise function of its result, such as a norm and an activation; None: none.
    """

    number: int
    module: nn.Module
    after: nn.Module | None = None

    @property
    def label(self) -> str:
        """Name for messages."""
        module = _plain(self.module)
        return f"layer {self.number} ({getattr(module, 'shown', type(module).__name__)})"

    @property
    def node_type(self) -> None:
        """See RowLayer."""

    @property
    def form(self) -> Form:
        """Form of its arguments."""
        return _form_of(_plain(self.module))

    @property
    def uses_degrees(self) -> bool:
        """Whether it needs degrees of the whole graph."""
        modules = _plain(self.module).modules()
        return any(is_normalizing(each) or getattr(each, "uses_degrees", False) for each in modules)

    def open(self) -> LayerTwin:
        """Make a twin for one thread."""
        return LayerTwin(self)


class LayerTwin:
    """A layer to run in one thread; see Layer."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._form = layer.form
        twins: dict[int, nn.Module] = {}
        self._module = twin_of(layer.module, twins)
        self._after = None if layer.after is None else twin_of(layer.after, twins)
        self._block: InputBlock | None = None
        self._edges: Tensor | None = None
        first = next((each for each in layer.module.parameters() if each.is_floating_point()), None)
        self._device = torch.device("cpu") if first is None else first.device
        self._dtype = torch.float32 if first is None else first.dtype
        for each in self._module.modules():
            if is_normalizing(each):
                each.__dict__["normalize"] = False
                each.register_forward_pre_hook(self._give_weights, with_kwargs=True)

    def run(self, x: Tensor, block: InputBlock) -> Tensor:
        """Compute the destinations' rows from those of the sources: float32 (destinations, columns) in new memory.

        x: (sources, columns) of any floating dtype. Raises ConfigError for a result that is not such a tensor.
        """
        self._block = block
        with torch.no_grad():
            out = self._checked(self._call(x, block), block)[: block.num_rows]
            if self._after is not None:
                out = self._after(out)
            return out.to("cpu", torch.float32, copy=True)

    def _call(self, x: Tensor, block: InputBlock) -> Any:
        if self._form == "own":
            return self._module(x, block.for_own_layer())
        x, edges = x.to(self._device, self._dtype), block.edge_index.to(self._device)
        self._edges = edges
        if self._form == "pair":
            return self._module((x, x[: block.num_rows]), edges)
        return self._module(x, edges)

    def _checked(self, out: Any, block: InputBlock) -> Tensor:
        label = self._layer.label
        if not isinstance(out, Tensor):
            raise ConfigError(
                f"{label} returned a {type(out).__name__}; wrap it in a module that returns one tensor (nodes, columns)"
            )
        if not out.is_floating_point():
            raise ConfigError(f"{label} returned {out.dtype}; wrap it in a module that returns floating numbers")
        lengths = {block.num_rows} if self._form == "pair" else {block.num_rows, block.num_sources}
        if out.dim() != 2 or len(out) not in lengths or out.shape[1] == 0:
            raise ConfigError(
                f"{label} returned shape {tuple(out.shape)} for {block.num_sources} nodes, {block.num_rows} of them "
                f"destinations; it must return one row per node: ({max(lengths)}, columns)"
            )
        return out

    def _give_weights(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace a convolution's edges by those that the whole graph's degrees normalise."""
        names = ("x", "edge_index", "edge_weight")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        block = self._block
        assert block is not None, "a block is being computed"
        assert block.degrees is not None, "degrees were asked for"
        if given["edge_index"] is not self._edges:
            reason = "gets other edges than the layer"
        elif given.get("edge_weight") is not None:
            reason = "gets edge weights"
        else:
            adds_loops = bool(getattr(module, "add_self_loops", False))
            edges, weights = normalized_edges(
                block.edge_index, block.num_rows, block.degrees, adds_loops=adds_loops, dtype=given["x"].dtype
            )
            return (given["x"], edges.to(self._device), weights.to(self._device)), {}
        raise ConfigError(
            f"{self._layer.label}: its {type(module).__name__} {reason}, whose degrees in the whole graph are not "
            "known; normalise them yourself and set normalize=False"
        )


def _plain(module: nn.Module) -> nn.Module:
    """Return the module behind torch.compile()."""
    return getattr(module, "_orig_mod", module)


def twin_of(module: nn.Module, twins: dict[int, nn.Module] | None = None) -> nn.Module:
    """Return another module with the same parameters, in eval mode. twins: those that exist, by the id of the module.

    A copy of the object and of its own containers, so that neither its mode, its hooks nor values that it keeps between
    calls are those of the user's module.
    """
    return _copied(module, {} if twins is None else twins).eval()


def _copied(module: nn.Module, twins: dict[int, nn.Module]) -> nn.Module:
    module = _plain(module)
    if id(module) in twins:
        return twins[id(module)]
    twin = twins[id(module)] = module.__class__.__new__(module.__class__)
    attributes: dict[str, Any] = {}
    for name, value in module.__dict__.items():
        if isinstance(value, MethodType) and value.__self__ is module:
            attributes[name] = MethodType(value.__func__, twin)
        else:
            attributes[name] = copy.copy(value) if isinstance(value, dict | list | set) else value
    twin.__dict__.update(attributes)
    for name, child in module._modules.items():
        twin._modules[name] = None if child is None else _copied(child, twins)
    return twin


def _form_of(module: nn.Module) -> Form:
    try:
        hints = typing.get_type_hints(module.forward)
        parameters = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError, NameError, AttributeError):
        return "plain"
    if len(parameters) > 1 and hints.get(parameters[1]) is LayerBlock:
        return "own"
    return "pair" if parameters and any(map(_is_pair, _choices(hints.get(parameters[0])))) else "plain"


def _choices(hint: Any) -> Iterator[Any]:
    """Yield a type, and those of a union."""
    yield hint
    if typing.get_origin(hint) is not tuple:
        yield from typing.get_args(hint)


def _is_pair(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple and len(typing.get_args(hint)) == 2


def require_modules(layers: Any) -> None:
    """Raise ConfigError unless every layer is a module of torch that can be run.

    Functions are refused: the modules that they call could be neither inspected nor switched to eval mode.
    """
    for number, layer in enumerate(layers, start=1):
        if not isinstance(layer, nn.Module):
            raise ConfigError(
                f"layer {number} is a {type(layer).__name__}, must be a torch.nn.Module; wrap it in a module whose "
                "forward(x, edge_index) calls it"
            )
        if any(isinstance(each, torch.jit.ScriptModule) for each in layer.modules()):
            raise ConfigError(f"layer {number} is a ScriptModule; pass the module that it was scripted from")
        if any(isinstance(each, nn.parameter.UninitializedParameter) for each in layer.parameters()):
            raise ConfigError(
                f"layer {number} ({type(layer).__name__}) has parameters without values; load its state dict first"
            )
