"""The process that a run has to itself: torch's state, memory, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.system.machine import _version
from diskhop.system.memory import resident_bytes


def describe_run(dataset: Dataset, model: str, seed: int) -> dict[str, Any]:
    """What a result begins with, by the names of result.json."""
    return {
        "version": _version(),
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "model": model,
        "seed": seed,
    }


def measure_memory(before_bytes: int, budget: Budget) -> dict[str, int]:
    """Memory by the names of result.json. before_bytes: that this process had resident before anything was held.

    peak_rss_bytes is the most that it had. overhead_bytes, all that is not graph data, is the peak less what was
    reserved of the budget at once; and at least before_bytes, for what is reserved need not be resident.
    """
    peak_bytes = resident_bytes("VmHWM")
    return {
        "peak_rss_bytes": peak_bytes,
        "resident_before_bytes": before_bytes,
        "overhead_bytes": max(before_bytes, peak_bytes - budget.peak_bytes),
    }


def describe_protocol(protocol: Mapping[str, Any]) -> str:
    """How edges were ranked, in a line: figures with different ones are not to be compared."""
    candidates = f"{'filtered' if protocol['filtered'] else 'raw'}, {protocol['candidates']} candidates"
    sides = "both sides" if protocol["sides"] == "both" else f"the {protocol['sides']}"
    return f"{protocol['edges']} edges, {sides}, {candidates}, ties {protocol['ties']}"
