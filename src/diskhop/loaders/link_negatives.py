"""Negatives of links by PyG's arguments: a NegativeSampling in any of its forms, or a ratio."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.sampler import NegativeSampling

from diskhop.config.options import require, require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.errors import ConfigError
from diskhop.loaders.link_types import EndNodes, LinkType
from diskhop.loaders.ways import times_of
from diskhop.protocols import SamplerSpec
from diskhop.sampling.negatives import Candidates, Negatives, candidates

DEGREE = "degree"
_EXAMPLE = "for example neg_sampling=dict(mode='binary', amount=1)"


def resolve_negatives(of: LinkType, sampler: SamplerSpec, neg_sampling: Any, ratio: Any) -> Negatives | None:
    """Return how negatives are drawn; None for none. Raises ConfigError.

    of: edge type of the links, whose ends are replaced by nodes of their own types.
    sampler: a sampler by times of nodes draws no negative that is later than its link.
    ratio: PyG's older argument: binary negatives per link, 0 for none.
    """
    if ratio is not None:
        is_number = isinstance(ratio, int | float | np.number) and not isinstance(ratio, bool)
        is_ratio = is_number and bool(0 <= ratio < np.inf)
        require(is_ratio, "neg_sampling_ratio", "at least 0, or None", ratio, "for example neg_sampling_ratio=1.0")
        if neg_sampling is not None:
            raise ConfigError("neg_sampling_ratio and neg_sampling say how to draw negatives; remove one of them")
        if ratio == 0:
            return None
        neg_sampling = NegativeSampling("binary", float(ratio))
    wanted = _cast(neg_sampling)
    if wanted is None:
        return None
    times = _node_times(of.dataset, sampler)
    sources = _side("src_weight", wanted.src_weight, of, of.source, times)
    if of.is_between_types or wanted.src_weight is not None or wanted.dst_weight is not None:
        destinations = _side("dst_weight", wanted.dst_weight, of, of.destination, times)
    else:
        destinations = sources
    mode: Any = wanted.mode.value
    return Negatives(mode=mode, amount=wanted.amount, sources=sources, destinations=destinations)


def _cast(given: Any) -> NegativeSampling | None:
    """Return PyG's description from any form that it takes."""
    try:
        wanted: NegativeSampling | None = NegativeSampling.cast(given)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"neg_sampling is not understood: {error}; {_EXAMPLE}") from None
    return wanted


def _side(name: str, given: Any, of: LinkType, nodes: EndNodes, merged_times: NDArray[np.int64] | None) -> Candidates:
    """Return the candidates of one end: all nodes of its type, or by in-degree, or by weights in the order of ids."""
    num_nodes, first_row = nodes.num_nodes, nodes.first_row
    times = None if merged_times is None else merged_times[first_row:][:num_nodes]
    if given is None:
        return replace(candidates(num_nodes, times=times), first_row=first_row)
    if isinstance(given, str):
        require_known(f"{name} of neg_sampling", given, (DEGREE,))
        edges = of.edges
        if edges is None or (of.is_between_types and nodes is of.source):
            raise ConfigError(
                f"{name} of neg_sampling '{DEGREE}' is by in-degree, which the sources of {of.ends} do not have; pass "
                "a weight per node"
            )
        # The starts of the neighbour lists are the running sums of in-degrees.
        sums = map_array(edges.topology.indptr_path, np.int64, num_nodes + 1)
        return replace(candidates(num_nodes, cumulative=sums, times=times), first_row=first_row)
    weights = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    is_fit = weights.shape == (num_nodes,) and weights.dtype.kind in "iuf"
    got = f"{weights.dtype} of shape {weights.shape}"
    require(is_fit, f"{name} of neg_sampling", f"{num_nodes} numbers, one per node", got, "pass one weight per node")
    positions = nodes.ids.positions()
    by_row = weights if positions is None else weights[positions]
    return replace(candidates(num_nodes, weights=by_row.astype(np.float64), times=times), first_row=first_row)


def _node_times(dataset: Dataset, sampler: SamplerSpec) -> NDArray[np.int64] | None:
    """Return the times of nodes that neighbours are drawn by, by row; None without."""
    file = times_of(dataset, sampler)
    if file is None or file.of != "nodes":
        return None
    return map_array(file.path, file.dtype, file.num_values).astype(np.int64)
