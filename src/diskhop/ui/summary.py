"""What was imported or generated, and what a run found, in a few lines for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.runs.result import describe_protocol

_DELIMITER_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
_SHOWN_COLUMNS = 8


def summarize_dataset(
    dataset: Dataset, made: str = "imported", found: Mapping[str, Any] | None = None
) -> list[tuple[str, str]]:
    """Name and text of each line; `diskhop inspect` has more. made: how it came to be. found: by the import."""
    rows = [(made, f"{dataset.name} to {dataset.path}")]
    found = found or {}
    if "rows" in found:
        rows.append(("rows", f"{found['rows']:,} of {found['ids']} ids{_text_layout(found)}"))
    for what, roles in found.get("columns", {}).items():
        told = [f"{role} {_shown_columns(names)}" for role, names in roles.items() if names]
        left = found["not_taken"][what]
        rows.append((f"columns of {what}", "; ".join(told) + (f"; not taken: {_shown_columns(left)}" if left else "")))
    if found.get("left_out"):
        rows.append(("left out", ", ".join(found["left_out"])))
    if "dropped" in found:
        for name in ("self_loops", "duplicates"):
            what = "dropped" if name in found["dropped"] else "kept"
            rows.append((name.replace("_", "-"), f"{found[name]:,}" + (f", {what}" if found[name] else "")))
    for name, nodes in dataset.nodes.items():
        facts = [f"{nodes.num_nodes:,}"]
        if nodes.feature_dim:
            facts.append(f"{nodes.feature_dim} features of {nodes.feature_dtype}")
        if nodes.num_classes or nodes.num_tasks:
            facts.append(f"{nodes.num_classes} classes" if nodes.num_classes else f"{nodes.num_tasks} tasks")
        if nodes.num_splits:
            facts.append("1 split" if nodes.num_splits == 1 else f"{nodes.num_splits} splits")
        rows.append((f"nodes '{name}'", ", ".join(facts)))
    rows += [(f"edges '{name}'", f"{edges.num_edges:,}") for name, edges in dataset.edges.items()]
    path = shlex.quote(str(dataset.path))
    can_train = any(nodes.num_classes or nodes.num_tasks for nodes in dataset.nodes.values())
    rows.append(("next", f"diskhop inspect {path}" + (f", or diskhop train {path}" if can_train else "")))
    return rows


def _text_layout(found: Mapping[str, Any]) -> str:
    if "delimiter" not in found:
        return ""
    between = _DELIMITER_NAMES.get(found["delimiter"], found["delimiter"])
    header = "no header" if found["header"] is None else f"header '{found['header']}'"
    return f", {between} between columns, {header}"


def _shown_columns(names: str | list[str]) -> str:
    if isinstance(names, str):
        return names
    return ", ".join(names[:_SHOWN_COLUMNS]) + (
        f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    )


def summarize(result: Mapping[str, Any], out: Path | None) -> list[tuple[str, str]]:
    """Name and text of each line, from the content of result.json."""
    epochs = result["epochs"]
    plan = result["plan"]

    def total(name: str) -> Any:
        return sum(epoch.get(name, 0) for epoch in epochs)

    rows = [
        (name.replace("_", " "), f"{result[name]:.4f} {result['metric']}")
        for name in ("best_valid", "test")
        if result.get(name) is not None
    ]
    seconds = total("seconds")
    rows.append(("epochs", f"{len(epochs)} in {seconds:.1f} s, waiting for data {total('stall_seconds'):.1f} s"))
    if epochs and "predicted_epoch_seconds" in plan:
        took = f"{seconds / len(epochs):.3g} s, predicted {plan['predicted_epoch_seconds']:.3g} s"
        rows.append(("an epoch", f"{took} ({plan.get('store') or plan['placement']})"))
    requested = total("rows_requested")
    if requested:
        needed, read = total("bytes_needed"), total("bytes_read")
        if plan.get("store") == "mapped":
            rows.append(
                ("rows", f"{requested:,} requested, {format_bytes(needed)}; reads are the page cache's, uncounted")
            )
        else:
            in_memory = total("rows_hit") + total("rows_shared")
            from_disk = (requested - in_memory + total("rows_filled")) / requested
            rows.append(("rows", f"{requested:,} requested, {from_disk:.0%} from disk"))
            reads = f"{total('reads'):,} reads"
            rows.append(("bytes", f"{format_bytes(needed)} needed, {format_bytes(read)} read in {reads}"))
    reserved = ", ".join(
        f"{name} {format_bytes(num_bytes)}" for name, num_bytes in plan["reserved"].items() if num_bytes
    )
    rows.append(("budget", f"{format_bytes(plan['memory_bytes'])}: {reserved}"))
    peak, overhead = format_bytes(result["peak_rss_bytes"]), format_bytes(result["overhead_bytes"])
    rows.append(("peak memory", f"{peak}, of it {overhead} for the program, parameters and activations"))
    if out is not None:
        rows.append(("written to", str(out)))
    return rows


def summarize_ranking(part: str, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and text of each line: ranks of a part's edges, and the protocol that they go by."""
    hits = ", ".join(f"{found[f'hits_at_{k}']:.3f} at {k}" for k in (1, 3, 10))
    ranks = f"MRR {found['mrr']:.4f}, mean rank {found['mean_rank']:.1f}, hits {hits}, AUC {found['auc']:.4f}"
    return [(part, ranks), ("protocol", describe_protocol(found["protocol"]))]


def summarize_embedding(result: Mapping[str, Any], out: Path) -> list[tuple[str, str]]:
    """Name and text of each line, from the content of result.json of a run of embeddings."""
    epochs, plan, rows = result["epochs"], result["plan"], []
    if "test" in result:
        rows += summarize_ranking("test", result["test"])
    seconds = sum(epoch["seconds"] for epoch in epochs)
    stalled = sum(epoch["stall_seconds"] for epoch in epochs)
    rate = result["num_edges"] * len(epochs) / seconds if seconds else 0
    rows.append(("epochs", f"{len(epochs)} in {seconds:.1f} s, {rate:,.0f} edges/s, waiting for data {stalled:.1f} s"))
    if epochs and "predicted_epoch_seconds" in plan:
        took = f"{seconds / len(epochs):.3g} s, predicted {plan['predicted_epoch_seconds']:.3g} s"
        rows.append(("an epoch", f"{took} ({plan['num_partitions']} partitions)"))
    read, written = (sum(epoch[name] for epoch in epochs) for name in ("bytes_read", "bytes_written"))
    rows.append(("bytes", f"{format_bytes(read)} of partitions read, {format_bytes(written)} written"))
    reserved = ", ".join(
        f"{name} {format_bytes(num_bytes)}" for name, num_bytes in plan["reserved"].items() if num_bytes
    )
    rows.append(("budget", f"{format_bytes(plan['memory_bytes'])}: {reserved}"))
    peak, overhead = format_bytes(result["peak_rss_bytes"]), format_bytes(result["overhead_bytes"])
    rows.append(("peak memory", f"{peak}, of it {overhead} for the program"))
    rows.append(("written to", str(out)))
    return rows
