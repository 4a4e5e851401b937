"""Arguments of PyTorch Geometric's loaders: each is supported, has no effect here, or is refused with the reason.

Arguments without effect set up worker processes, or choose between ways to the same batches. diskhop has threads of its
own, whose number changes no batch.
"""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch_geometric.sampler import NumNeighbors

from diskhop.config.options import require
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.config.sampler import ARRANGING
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.type_map import EdgeEnds
from diskhop.errors import ConfigError
from diskhop.loaders.checks import require_flags, whole_numbers
from diskhop.protocols import SamplerSpec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.type_fanouts import with_fanouts

# Values that change nothing, and the reason to refuse any other.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "transform_sampler_output": ((None,), "rows are fetched by then; use transform, which gets the finished batch"),
    "neighbor_sampler": ((None,), "pass a SamplerSpec as num_neighbors"),
    "batch_sampler": ((None,), "pass the order as sampler, and a batch_size"),
    "worker_init_fn": ((None,), "there are no worker processes to call it in"),
    "timeout": ((0,), "errors of a stage are raised at once; leave it at 0"),
}


@dataclass(frozen=True, slots=True, eq=False)
class TorchArguments:
    """Arguments of torch's DataLoader that have an effect.

    order: positions of the seeds of each pass; None: in order, or shuffled by the loader.
    generator: draws the seed of the loader; None: the argument seed.
    pin_memory: batches are delivered in pinned memory, where there is a GPU.
    in_order: batches arrive in order, whatever the store.
    num_replicas, rank: as torch's DistributedSampler has them; None: those of the process group.
    """

    order: Iterable[int] | None = None
    generator: torch.Generator | None = None
    pin_memory: bool = False
    in_order: bool = False
    num_replicas: Any = None
    rank: Any = None


def refuse_unsupported(loader: str, arguments: dict[str, Any]) -> None:
    """Raise ConfigError for an argument with a value that would change the batches. loader: name of the class."""
    for name, value in arguments.items():
        allowed, reason = _REFUSED[name]
        plain = value.value if isinstance(value, Enum) else value
        if not any(plain is each or (type(plain) is type(each) and plain == each) for each in allowed):
            raise ConfigError(f"{loader} cannot take {name}={reprlib.repr(value)}: {reason}")


def torch_arguments(loader: str, given: dict[str, Any], inputs: str = "input_nodes") -> TorchArguments:
    """Check the arguments of torch's DataLoader. Raises ConfigError for unknown and refused ones.

    inputs: argument that a sampler has positions in.
    """
    effects = dict(given)
    for name, check in _WITHOUT_EFFECT.items():
        if name in effects:
            check(name, effects.pop(name))
    refuse_unsupported(loader, {name: effects.pop(name) for name in [*effects] if name in _REFUSED})
    order, generator = effects.pop("sampler", None), effects.pop("generator", None)
    pin_memory, in_order = effects.pop("pin_memory", False), effects.pop("in_order", False)
    num_replicas, rank = effects.pop("num_replicas", None), effects.pop("rank", None)
    for name in effects:
        raise ConfigError(f"{loader} has no argument '{name}'")
    require_flags(pin_memory=pin_memory, in_order=in_order)
    is_generator = generator is None or isinstance(generator, torch.Generator)
    require(is_generator, "generator", "a torch.Generator", generator, "pass seed=0 in its place")
    require(
        order is None or _is_order(order),
        "sampler",
        f"positions in {inputs} with a length",
        order,
        "pass a torch.utils.data.Sampler",
    )
    return TorchArguments(order, generator, bool(pin_memory), bool(in_order), num_replicas, rank)


def _is_order(order: Any) -> bool:
    try:
        iter(order), len(order)
    except TypeError:
        return False
    return not isinstance(order, str | bytes)


def seed_of(seed: int, generator: torch.Generator | None) -> int:
    """Return the seed of a loader; a generator draws it, and so determines the order and the draws."""
    if generator is None:
        return seed
    require(seed == 0, "seed", "left out where there is a generator", seed, "remove one of them")
    return int(torch.empty((), dtype=torch.int64, device=generator.device).random_(generator=generator))


def resolve_sampler(num_neighbors: Any, ways: NeighborWays, edge_types: Sequence[EdgeEnds] = ()) -> SamplerSpec:
    """Return the sampler of fan-outs, or the sampler given.

    ways: how neighbours are drawn.
    edge_types: types of the edges, whose fan-outs may be in a dict; empty: edges have no type.
    """
    num_neighbors = _fanouts_of_types(num_neighbors, edge_types)
    if isinstance(num_neighbors, SamplerSpec):
        if num_neighbors.kind in ARRANGING:
            raise ConfigError(
                f"the sampler '{num_neighbors.kind}' arranges batches of its own, and this loader begins at seed "
                "nodes; use diskhop.GraphSAINTRandomWalkSampler and the like, diskhop.ClusterLoader, or train"
            )
        whole_numbers("num_neighbors", num_neighbors.fanouts, "[10, 10]")
        if ways != NeighborWays():
            given = ", ".join(name for name, _ in ways.parameters())
            raise ConfigError(f"num_neighbors is a SamplerSpec, which says itself how to draw; set {given} in it")
        return num_neighbors
    if edge_types and isinstance(num_neighbors, dict):
        # Every type has fan-outs of its own, so that those of the spec only tell the number of hops.
        most = [ALL_NEIGHBORS if min(hop) < 0 else max(1, *hop) for hop in zip(*num_neighbors.values(), strict=True)]
        return with_fanouts(ways.spec(most), num_neighbors)
    if isinstance(num_neighbors, str | dict) or not isinstance(num_neighbors, Sequence):
        shown = reprlib.repr(num_neighbors)
        raise ConfigError(f"num_neighbors must be a list with one count per hop, got {shown}; pass [10, 10]")
    return ways.spec(whole_numbers("num_neighbors", num_neighbors, "[10, 10]"))


def edge_types_of(dataset: Dataset) -> list[EdgeEnds]:
    """Return the edge types of a graph as PyG names them; none if edges have no type."""
    return [edges.ends for edges in dataset.edges.values()] if dataset.is_typed else []


def _fanouts_of_types(num_neighbors: Any, edge_types: Sequence[EdgeEnds]) -> Any:
    """Return the fan-outs by edge type, which PyG takes in a dict or in NumNeighbors; a list if all types have it."""
    if isinstance(num_neighbors, NumNeighbors) and not edge_types:
        return num_neighbors.values
    if not edge_types or not isinstance(num_neighbors, dict | NumNeighbors):
        return num_neighbors
    try:
        given = NumNeighbors(num_neighbors) if isinstance(num_neighbors, dict) else num_neighbors
        values = NumNeighbors(given.values, given.default).get_values(list(edge_types))
    except (ValueError, TypeError, AssertionError) as error:
        example = f"num_neighbors={{{edge_types[0]}: [10, 10]}}"
        raise ConfigError(
            f"num_neighbors must be a list, or one per type, of the edge types {', '.join(map(str, edge_types))}, got "
            f"{reprlib.repr(num_neighbors)} ({error}); pass {example}"
        ) from None
    by_type = {ends: whole_numbers("num_neighbors", each, "[10, 10]") for ends, each in values.items()}
    fanouts = list(by_type.values())
    return fanouts[0] if all(each == fanouts[0] for each in fanouts) else by_type


def _anything(_name: str, _value: Any) -> None:
    """PyG does not use it either."""


def _whole(name: str, value: Any) -> None:
    is_whole = isinstance(value, numbers.Integral) and value is not True and value is not False
    is_count = value is None or (is_whole and int(value) >= 0)
    require(is_count, name, "a whole number", value, f"for example {name}=2; it changes no batch here")


def _flag(name: str, value: Any) -> None:
    if value is not None:
        require_flags(**{name: value})


def _text(name: str, value: Any) -> None:
    require(value is None or isinstance(value, str), name, "text", value, f"leave {name} out; it has no effect here")


# PyG pops the last two itself.
_WITHOUT_EFFECT: dict[str, Callable[[str, Any], None]] = {
    "num_workers": _whole,
    "prefetch_factor": _whole,
    "persistent_workers": _flag,
    "filter_per_worker": _flag,
    "is_sorted": _flag,
    "pin_memory_device": _text,
    "multiprocessing_context": _anything,
    "collate_fn": _anything,
    "dataset": _anything,
}
