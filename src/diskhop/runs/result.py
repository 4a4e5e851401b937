"""The content of result.json, and the memory that a run took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.plans import RunPlan
from diskhop.runs.better import best_value
from diskhop.system.machine import diskhop_version
from diskhop.system.memory import SharedPages, resident_bytes, shared_pages

if TYPE_CHECKING:
    # Results are shown by commands that do not load torch.
    from diskhop.planning.overhead import Overhead
    from diskhop.runs.distributed import Group


def make_result(
    described: Mapping[str, Any],
    plan: RunPlan,
    budget: Budget,
    history: Sequence[Mapping[str, Any]],
    *,
    before_bytes: int,
    epochs: int,
    metric: str,
    test: Mapping[str, Any] | None,
    preparation: Mapping[str, Any],
    overhead: Overhead | None = None,
) -> dict[str, Any]:
    """Return the content of result.json, which has the same shape for every kind of run.

    described: the first entries; see describe_run(). before_bytes: see measure_memory(). epochs: the maximum number.
    metric: the name of the value that validation selects by. test: test values by name; None without a test.
    preparation: entries about work done before training. overhead: as it was predicted; None if it was not.
    """
    validations = [record["valid"] for record in history if record.get("valid") is not None]
    return {
        **described,
        **measure_memory(before_bytes, budget),
        **({} if overhead is None else {"predicted_overhead_bytes": overhead.num_bytes}),
        "plan": {**plan.to_dict(), "reserved": budget.table()},
        **preparation,
        "epochs": history,
        "stopped_early": len(history) < epochs,
        "metric": metric,
        **({"best_valid": best_value(metric, validations)} if validations else {}),
        **({} if test is None else {"test": test}),
    }


def describe_run(kind: str, dataset: Dataset, model: str, seed: int) -> dict[str, Any]:
    """Return the entries that every result begins with, by the names of result.json."""
    return {
        "version": diskhop_version(),
        "kind": kind,
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "model": model,
        "seed": seed,
    }


def measure_memory(before_bytes: int, budget: Budget) -> dict[str, int]:
    """Return the memory of this process, by the names of result.json.

    peak_rss_bytes is its peak. overhead_bytes is everything that is not graph data: the peak minus the most reserved at
    once, and at least before_bytes, since reserved memory need not be resident. before_bytes: resident memory before
    any graph data was read.
    """
    peak_bytes = resident_bytes("VmHWM")
    return {
        "peak_rss_bytes": peak_bytes,
        "resident_before_bytes": before_bytes,
        "overhead_bytes": max(before_bytes, peak_bytes - budget.peak_bytes),
    }


def merged_records(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of a pass that ranks shared: counts are added up, seconds are those of the slowest."""
    return {
        name: max(record.get(name, 0) for record in records)
        if name.endswith("seconds")
        else sum(record.get(name, 0) for record in records)
        for name in dict.fromkeys(name for record in records for name in record)
    }


def added_records(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of a pass from those of its parts, one after the other."""
    names = dict.fromkeys(name for record in records for name in record)
    return {name: sum(record.get(name, 0) for record in records) for name in names}


def measure_shared(group: Group) -> SharedPages:
    """Measure the pages that this rank shares with others, at the same time as they do; nothing with one rank."""
    if group.is_alone:
        return SharedPages()
    group.wait()
    found = shared_pages()
    # Until then, all have their data.
    group.wait()
    return found


def memory_of_ranks(result: Mapping[str, Any], shared: SharedPages, group: Group) -> dict[str, Any]:
    """Return the entries of result.json about the memory of several ranks: of all together, and of each.

    Of all together, each page counts once. result, shared: those of this rank.
    """
    if group.is_alone:
        return {}
    names = ("peak_rss_bytes", "resident_before_bytes", "overhead_bytes")
    found = group.gather(({name: result[name] for name in names}, shared))
    program = sum(each.program for _, each in found)
    # What is not data of the graph has no segments.
    twice = dict.fromkeys(names, program) | {"peak_rss_bytes": program + sum(each.data for _, each in found)}
    totals = {name: sum(own[name] for own, _ in found) - twice[name] for name in names}
    per_rank = [{**own, "shared_bytes": each.program + each.data} for own, each in found]
    return {**totals, "ranks": {"count": len(per_rank), "per_rank": per_rank}}


def describe_protocol(protocol: Mapping[str, Any]) -> str:
    """Return one line about how edges were ranked; only values of the same protocol can be compared."""
    candidates = f"{'filtered' if protocol['filtered'] else 'raw'}, {protocol['candidates']} candidates"
    sides = "both sides" if protocol["sides"] == "both" else f"the {protocol['sides']}"
    return f"{protocol['edges']} edges, {sides}, {candidates}, ties {protocol['ties']}"
