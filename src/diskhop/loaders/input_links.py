"""Links in every form that users give them: pairs of ids, the edges of a type, or none for all edges."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.options import require
from diskhop.dataset.id_map import find_ids
from diskhop.errors import ConfigError
from diskhop.loaders.link_types import LinkType
from diskhop.loaders.node_arrays import node_array
from diskhop.protocols import SeedTimes, SourceIds
from diskhop.sampling.graph_links import GraphEnds
from diskhop.sampling.links import GivenEnds, LinkEnds

_ARGUMENT = "edge_label_index"
# Positions in order, the numbers, and the buffer of a merge.
_SORTING_BYTES = 8 + 8 + 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputLinks:
    """Links as a user gave them. A *number* is the place of a link in what was given, or of an edge in its source.

    ends: of all links, by position.
    numbers: number of the link at each position; None: positions are the numbers.
    order: position of each link in the order of numbers, int64; None: positions are in it, or it is not needed.
    labels: by number, (links, *shape); None for none.
    times: by position, int64; None for none.
    input_id: what batches give as input_id, by number; None: the number.
    """

    ends: LinkEnds
    numbers: NDArray[Any] | None = None
    order: NDArray[np.int64] | None = None
    labels: NDArray[Any] | None = None
    times: SeedTimes = None
    input_id: NDArray[np.int64] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of links, their order, labels and times."""
        num_bytes = self.ends.num_bytes if isinstance(self.ends, GivenEnds) else 0
        arrays = (self.order, self.labels, self.times, self.input_id)
        return num_bytes + sum(each.nbytes for each in arrays if each is not None)

    def numbers_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of links at some positions."""
        if self.numbers is None:
            return positions
        numbers: NDArray[np.int64] = self.numbers[positions].astype(np.int64)
        return numbers

    def in_order(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of links at some places in the order of the numbers."""
        if self.numbers is None:
            return places
        if self.order is not None:
            return self.order[places]
        found = find_ids(self.numbers, places)
        if found.min() < 0:  # Edges were added or merged at import: numbers are not those of places.
            found = np.argsort(self.numbers, kind="stable")[places]
        return found


def resolve_input_links(
    of: LinkType,
    index: Any,
    budget: Budget,
    *,
    label: Any = None,
    time: Any = None,
    input_id: Any = None,
    keeps_order: bool,
) -> InputLinks:
    """Find the links. Raises ConfigError for ends that are no nodes and for other values, BudgetError.

    of: edge type of the links. index: pairs of ids; None: all edges of the type.
    budget: for sorting all edges; the caller reserves what is kept.
    label, time, input_id: one per link; of all edges, one per edge of the source.
    keeps_order: whether links are wanted in the order of their numbers.
    """
    if index is None:
        return _all_edges(of, budget, label=label, time=time, input_id=input_id, keeps_order=keeps_order)
    ends = _pairs(of, index)
    num_links = ends.shape[1]
    return InputLinks(
        ends=GivenEnds(ends),
        labels=_labels(label, num_links, num_links),
        times=_whole_numbers("edge_label_time", time, num_links, num_links),
        input_id=_whole_numbers("input_id", input_id, num_links, num_links),
    )


def _all_edges(of: LinkType, budget: Budget, *, label: Any, time: Any, input_id: Any, keeps_order: bool) -> InputLinks:
    edges, path = of.edges, of.dataset.path
    if edges is None or edges.num_edges == 0:
        raise ConfigError(f"{_ARGUMENT} is not given, and {path} has no edges; pass pairs of ids")
    num_edges, numbers = edges.num_edges, edges.edge_ids()
    values = {"edge_label": label, "edge_label_time": time, "input_id": input_id}
    named = [name for name, value in values.items() if value is not None]
    if numbers is None and named:
        raise ConfigError(
            f"{named[0]} is one per edge of the source, and {path} does not keep their numbers; "
            f"pass {_ARGUMENT} as well, or import the graph with --edge-ids keep"
        )
    # Edges that were added or merged at import have numbers of edges of the source.
    highest = 1 + int(numbers.max()) if numbers is not None and named else num_edges
    most = num_edges if highest == num_edges else np.iinfo(np.int64).max
    times = _whole_numbers("edge_label_time", time, highest, most)
    return InputLinks(
        ends=GraphEnds(
            edges.topology,
            of.dataset.hash if of.ends is None else f"{of.dataset.hash} {'__'.join(of.ends)}",
            first_rows=(of.source.first_row, of.destination.first_row),
        ),
        numbers=numbers,
        order=_order_of(numbers, budget) if keeps_order and numbers is not None else None,
        labels=_labels(label, highest, most),
        times=None if times is None else times[numbers],
        input_id=_whole_numbers("input_id", input_id, highest, most),
    )


def _order_of(numbers: NDArray[Any], budget: Budget) -> NDArray[np.int64]:
    with budget.reserve("order of links", _SORTING_BYTES * len(numbers)):
        return np.argsort(numbers, kind="stable")


def _pairs(of: LinkType, given: Any) -> NDArray[np.int64]:
    """Return rows of sources and destinations, int64 (2, links). given: ids."""
    is_array = isinstance(given, torch.Tensor | np.ndarray)
    shape = tuple(given.shape) if is_array else tuple(len(each) for each in given) if _are_two_lists(given) else ()
    is_fit = len(shape) == 2 and (shape[0] == 2 if is_array else shape[0] == shape[1])
    example = f"pass the sources and the destinations, as {_ARGUMENT}=data.edge_index"
    if not is_fit:
        shown = f"shape {shape}" if is_array else reprlib.repr(given)
        raise ConfigError(f"{_ARGUMENT} must be ids of shape (2, links), got {shown}; {example}")
    ids = np.stack([node_array(_ARGUMENT, each) for each in given])
    if ids.dtype == np.bool_:
        raise ConfigError(f"{_ARGUMENT} must be ids of shape (2, links), got booleans; {example}")
    if ids.shape[1] == 0:
        raise ConfigError(f"{_ARGUMENT} is empty, and must have at least one link; {example}")
    if not of.is_between_types:
        rows = of.source.ids.rows(SourceIds(ids.reshape(-1)), _ARGUMENT)
        return np.ascontiguousarray(rows).reshape(2, -1) + of.source.first_row
    sides = zip((of.source, of.destination), ids, strict=True)
    return np.stack([side.ids.rows(SourceIds(each), _ARGUMENT) + side.first_row for side, each in sides])


def _are_two_lists(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and all(hasattr(each, "__len__") for each in given)


def _labels(label: Any, least: int, most: int) -> NDArray[Any] | None:
    if label is None:
        return None
    if isinstance(label, torch.Tensor):
        is_dense = label.layout == torch.strided and label.dtype != torch.bfloat16
        hint = "pass label.float()"
        require(is_dense, "edge_label", "a dense tensor of a dtype that NumPy has", f"{label.dtype}", hint)
        label = label.detach().cpu().numpy()
    labels = np.array(label)
    is_fit = labels.dtype.kind in "biuf" and labels.ndim > 0 and least <= len(labels) <= most
    got = f"{labels.dtype} of shape {labels.shape}"
    require(is_fit, "edge_label", f"{_count(least, most)} numbers, one per link", got, "pass one label per link")
    return labels


def _whole_numbers(name: str, given: Any, least: int, most: int) -> NDArray[np.int64] | None:
    if given is None:
        return None
    values = node_array(name, given)
    is_fit = values.dtype != np.bool_ and least <= len(values) <= most
    got = f"{values.dtype} of shape {values.shape}"
    require(is_fit, name, f"{_count(least, most)} whole numbers, one per link", got, "pass one per link")
    return np.array(values, np.int64)


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"at least {least}"
