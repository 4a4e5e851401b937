"""The edge type that a run learns, and its split."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.budget import Budget
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merged import merged_spec, merged_types
from diskhop.errors import ConfigError
from diskhop.runs.links.task import LinkTask, link_task
from diskhop.runs.typed.target import reversed_types
from diskhop.sampling.edge_split.split import plan_split
from diskhop.sampling.edge_split.target import SplitTarget, split_target

_SHOWN = 5


def find_edge_type(dataset: Dataset, wanted: str | None) -> str:
    """Return the edge type to learn, as user,buys,item. Raises ConfigError for none, an unknown one, or an unclear one.

    wanted: the option, if it is given: the three parts of its name, or the types of its ends, with commas or '__'.
    """
    known = [edges.ends for edges in dataset.edges.values()]
    spelled = [",".join(ends) for ends in known]
    shown = ", ".join(spelled[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    if not known:
        raise ConfigError(f"{dataset.path}: has no edges, which --task link learns; choose a graph with edges")
    if wanted is None:
        if len(known) == 1:
            return spelled[0]
        raise ConfigError(
            f"{dataset.path}: has {len(known)} edge types, {shown}, and --task link learns one: add --target "
            f"{spelled[0]}"
        )
    parts = tuple(wanted.replace("__", ",").split(","))
    fitting = [ends for ends in known if parts in (ends, (ends[0], ends[-1]))]
    if len(fitting) == 1:
        return ",".join(fitting[0])
    if len(parts) == 1 and wanted in dataset.nodes:
        example = next((each for each, ends in zip(spelled, known, strict=True) if wanted in ends), spelled[0])
        raise ConfigError(
            f"--target {wanted} is a node type, and --task link learns an edge type: use --target {example}"
        )
    what = f"is several edge types of {dataset.path}" if fitting else f"is no edge type of {dataset.path}"
    example = ",".join(fitting[0]) if fitting else spelled[0]
    raise ConfigError(f"--target {wanted} {what}; it has {shown}: use --target {example}")


def edge_target(dataset: Dataset, target: str, reverse: Sequence[str]) -> SplitTarget:
    """Return the edge type of a configuration as what is split. reverse: the types whose opposites are added."""
    types = merged_types(dataset, merged_spec(dataset, reverse))
    number = next(place for place, edges in enumerate(types.edges) if ",".join(edges.ends) == target)
    return split_target(dataset, types, number)


def read_typed_task(dataset: Dataset, config: TypedLinkConfig) -> LinkTask:
    """Draw or read the split of a run. Raises as plan_split()."""
    return draw_task(
        dataset,
        edge_target(dataset, config.target, reversed_types(config.reverse)),
        config.link_split,
        config.split,
        evaluate=config.evaluate,
        memory_bytes=config.memory_bytes,
    )


def draw_task(
    dataset: Dataset, target: SplitTarget, link_split: str, number: int, *, evaluate: bool, memory_bytes: int
) -> LinkTask:
    """Draw or read the split of an edge type; see read_link_task()."""
    split = plan_split(dataset, link_split, number, Budget(memory_bytes), target)
    num_nodes = max(target.nodes_of(side)[0] for side in (0, -1))
    return link_task(split, num_nodes, evaluate=evaluate)


def target_of(task: LinkTask) -> SplitTarget:
    """Return the edge type of a task."""
    target = task.split.target
    assert target is not None, "a task of a graph with types has one"
    return target
