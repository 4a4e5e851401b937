"""HGTLoader: PyTorch Geometric's loader for graphs with types, with features read from disk within a memory budget.

loader = diskhop.HGTLoader(dataset, [512, 512], input_nodes=("paper", "train"), batch_size=128, memory="2GB")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.loaders.checks import whole_numbers
from diskhop.loaders.neighbor import NeighborLoader
from diskhop.loaders.shares import made_together
from diskhop.protocols import SamplerSpec
from diskhop.sampling.hgt import hgt_spec

_EXAMPLE = "[512, 512]"


class HGTLoader(NeighborLoader):
    """Mini-batches of the Heterogeneous Graph Transformer (Hu et al., 2020), with the interface of PyTorch Geometric.

    In each hop, a number of nodes of every type joins the batch. They are drawn without replacement among the nodes
    that have edges to the batch, in proportion to the square of how much of its nodes' neighbourhoods they are. A batch
    has all edges of the graph among its nodes.

    data: a Dataset or its path.
    num_samples: nodes of every node type per hop, -1 for all; or a dict of them by node type, which names all types.
    input_nodes: seed nodes as 'type' or ('type', nodes), see NeighborLoader.
    transform: called with each batch; its result is delivered.
    arguments: those of NeighborLoader, apart from its ways to draw.

    Draws are keyed: the same seed gives the same batches, bit for bit, from every store and within any memory. Raises
    ConfigError for unsupported arguments, and BudgetError with the smallest memory that works.

    >>> with diskhop.HGTLoader(
    ...     "typed-graph", [64, 64], input_nodes="user", batch_size=16, memory="200MB", seed=0
    ... ) as loader:
    ...     batch = next(iter(loader))
    >>> batch["user"].batch_size
    16
    """

    _class_name = "HGTLoader"

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: Any = None,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        **arguments: Any,
    ) -> None:
        dataset = as_dataset(data)
        super().__init__(
            dataset,
            resolve_samples(num_samples, list(dataset.nodes)),
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            is_sorted=is_sorted,
            filter_per_worker=filter_per_worker,
            **arguments,
        )

    def __repr__(self) -> str:
        return f"{self._class_name}()"


def resolve_samples(num_samples: Any, node_types: Sequence[str]) -> SamplerSpec:
    """Return the sampler of numbers of nodes per hop, for all types or by type. Raises ConfigError."""
    if not isinstance(num_samples, Mapping):
        is_list = isinstance(num_samples, Sequence) and not isinstance(num_samples, str)
        require(is_list, "num_samples", "nodes per hop, or a dict of them", num_samples, f"for example {_EXAMPLE}")
        return hgt_spec(whole_numbers("num_samples", num_samples, _EXAMPLE))
    missing = [name for name in node_types if name not in num_samples]
    unknown = [name for name in num_samples if name not in node_types]
    if missing or unknown:
        what = f"lacks '{missing[0]}'" if missing else f"has '{unknown[0]}'"
        raise ConfigError(
            f"num_samples {what}, and the node types are {', '.join(node_types)}; give each its nodes per hop, as "
            f"{{'{node_types[0]}': {_EXAMPLE}}}"
        )
    by_type = {name: whole_numbers("num_samples", counts, _EXAMPLE) for name, counts in num_samples.items()}
    num_hops = max(len(counts) for counts in by_type.values())
    return hgt_spec([1] * num_hops, by_type)
