"""Summaries for people: of a dataset that was imported or generated, and of a finished run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.dataset import Dataset
from diskhop.run_files import EMBEDDING, HOP, LINK_RUN, NODE, TYPED, TYPED_HOP, TYPED_LINK
from diskhop.runs.result import describe_protocol

_DELIMITER_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
_SHOWN_COLUMNS = 8
# Numbers next to the metrics of links.
_COUNTS = ("edges", "random_pairs")

Row = tuple[str, str]


def summarize_dataset(dataset: Dataset, made: str = "imported", found: Mapping[str, Any] | None = None) -> list[Row]:
    """Return names and texts of a dataset's lines. made: how it was made. found: facts of the import."""
    rows = [(made, f"{dataset.name} to {dataset.path}"), *_import_rows(found or {})]
    for name, nodes in dataset.nodes.items():
        facts = [f"{nodes.num_nodes:,}"]
        if nodes.feature_dim:
            facts.append(f"{nodes.feature_dim} {nodes.feature_dtype} features")
        if nodes.num_outputs:
            facts.append(f"{nodes.num_outputs} {nodes.label_kind}")
        if nodes.num_splits:
            facts.append("1 split" if nodes.num_splits == 1 else f"{nodes.num_splits} splits")
        facts += _attributes(nodes.attributes)
        rows.append((f"nodes '{name}'", ", ".join(facts)))
    for name, edges in dataset.edges.items():
        rows.append((f"edges '{name}'", ", ".join([f"{edges.num_edges:,}", *_attributes(edges.attributes)])))
    path = shlex.quote(str(dataset.path))
    is_one_type = len(dataset.nodes) == 1 and len(dataset.edges) == 1
    can_train = is_one_type and any(nodes.num_outputs for nodes in dataset.nodes.values())
    return [*rows, ("next", f"diskhop inspect {path}"), *([("", f"diskhop train {path}")] if can_train else [])]


def _attributes(attributes: Mapping[str, AttributeInfo]) -> list[str]:
    """List the attributes that have values of their own."""
    names = [name for name, info in attributes.items() if not info.stored_as]
    return [f"attributes {_shown_columns(names)}"] if names else []


def _import_rows(found: Mapping[str, Any]) -> Iterator[Row]:
    if "rows" in found:
        yield "rows", f"{found['rows']:,} with {found['ids']} ids{_text_layout(found)}"
    if "balance" in found:
        yield "lines", _shown_balance(found["balance"])
    if found.get("passed_over"):
        yield "not imported", _shown_columns(found["passed_over"])
    for what, roles in found.get("columns", {}).items():
        used = [f"{role} {_shown_columns(names)}" for role, names in roles.items() if names]
        unused = found["not_taken"][what]
        yield f"columns of {what}", "; ".join(used) + (f"; unused: {_shown_columns(unused)}" if unused else "")
    if found.get("left_out"):
        yield "left out", ", ".join(found["left_out"])
    if "with_embedding" in found:
        without = found["without_embedding"]
        rest = f", {without:,} without have zeros" if without else ""
        yield "embeddings", f"of {found['with_embedding']:,} nodes{rest}"
    if "edge_ids" in found:
        ids = found["edge_ids"]
        cost = f"{format_bytes(ids['bytes_if_kept'])} at {ids['bytes_per_edge']} bytes per edge"
        if ids["kept"]:
            yield "edge ids", f"kept as e_id of batches, {cost}"
        else:
            yield "edge ids", f"dropped, batches have no e_id (--edge-ids keep takes {cost})"
    if "dropped" in found:
        for name in ("self_loops", "duplicates"):
            what = "dropped" if name in found["dropped"] else "kept"
            yield name.replace("_", "-"), f"{found[name]:,}" + (f", {what}" if found[name] else "")


def _shown_balance(balance: Mapping[str, int]) -> str:
    parts = [f"{number:,} {name}" for name, number in balance.items() if name != "lines" and number]
    return f"{balance['lines']:,} = {' + '.join(parts)}"


def _text_layout(found: Mapping[str, Any]) -> str:
    if "delimiter" not in found:
        return ""
    delimiter = _DELIMITER_NAMES.get(found["delimiter"], found["delimiter"])
    header = "no header" if found["header"] is None else f"header '{found['header']}'"
    return f", {delimiter} between columns, {header}"


def _shown_columns(names: str | list[str]) -> str:
    if isinstance(names, str):
        return names
    more = f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    return ", ".join(names[:_SHOWN_COLUMNS]) + more


def summarize(result: Mapping[str, Any], out: Path | None) -> list[Row]:
    """Return names and texts of a finished run's lines. result: the content of result.json. out: the RUN folder."""
    epochs, plan = result["epochs"], result["plan"]
    rows = [] if "best_valid" not in result else [("best valid", f"{result['best_valid']:.4f} {result['metric']}")]
    if "test" in result:
        rows += summarize_measured("test", result["test"])
    seconds, stalled = _total(epochs, "seconds"), _total(epochs, "stall_seconds")
    early = " (stopped early)" if result["stopped_early"] else ""
    rows.append(("epochs", f"{len(epochs)} in {seconds:.1f} s{early}, {stalled:.1f} s waiting for data"))
    if epochs and "predicted_epoch_seconds" in plan:
        strategy = plan.get("store") or plan.get("placement") or f"{plan['num_partitions']} partitions"
        took = f"{seconds / len(epochs):.3g} s, predicted {plan['predicted_epoch_seconds']:.3g} s"
        rows.append(("time per epoch", f"{took} ({strategy})"))
    if copied := sum(epoch.get("transfer_seconds", 0.0) for epoch in epochs):
        rows.append(("transfer", f"{copied / len(epochs):.3g} s per epoch of copies to the device, next to training"))
    rows += _TRAFFIC[result["kind"]](result)
    rows.append(("budget", f"{format_bytes(plan['memory_bytes'])}: {_shown_reserved(plan)}"))
    peak, overhead = format_bytes(result["peak_rss_bytes"]), format_bytes(result["overhead_bytes"])
    outside = f"{overhead} outside the budget: Python, model, activations"
    if "predicted_overhead_bytes" in result:
        outside += f"; predicted {format_bytes(result['predicted_overhead_bytes'])}"
    rows.append(("peak memory", f"{peak} ({outside})"))
    if out is not None:
        rows += [("written to", str(out)), ("next", f"diskhop report {shlex.quote(str(out))}")]
    return rows


def _shown_reserved(plan: Mapping[str, Any]) -> str:
    """Return the reserved bytes by name; of several processes, first those that they have in one copy."""
    shared = plan.get("shared", ())
    once, each = (
        ", ".join(
            f"{name} {format_bytes(num_bytes)}"
            for name, num_bytes in plan["reserved"].items()
            if num_bytes and (name in shared) == is_shared
        )
        for is_shared in (True, False)
    )
    return f"shared {once}; for each of {plan['num_processes']} processes {each}" if shared else each


def summarize_ranking(part: str, found: Mapping[str, Any]) -> list[Row]:
    """Return names and texts of lines about ranked edges: values and their protocol."""
    hits = ", ".join(f"{found[f'hits_at_{k}']:.3f} at {k}" for k in (1, 3, 10))
    ranks = f"MRR {found['mrr']:.4f}, mean rank {found['mean_rank']:.1f}, hits {hits}, AUC {found['auc']:.4f}"
    return [(part, ranks), ("protocol", describe_protocol(found["protocol"]))]


def summarize_measured(part: str, found: Mapping[str, Any]) -> list[Row]:
    """Return names and texts of lines about a part's metrics, and their protocol, if there is one."""
    if "mrr" in found:
        return summarize_ranking(part, found)
    values = ", ".join(f"{value:.4f} {name}" for name, value in found.items() if name not in _COUNTS)
    if _COUNTS[1] not in found:
        return [(part, values)]
    edges, pairs = (found[name] for name in _COUNTS)
    return [(part, values), ("protocol", f"{edges:,} edges against {pairs:,} random pairs")]


def _row_traffic(result: Mapping[str, Any]) -> list[Row]:
    """Return lines about the rows that batches requested."""
    epochs = result["epochs"]
    requested = _total(epochs, "rows_requested")
    if not requested:
        return []
    needed, read = _total(epochs, "bytes_needed"), _total(epochs, "bytes_read")
    if result["plan"].get("store") == "mapped":
        unknown = "reads by the OS page cache are not counted"
        return [("rows", f"{requested:,} requested, {format_bytes(needed)}; {unknown}")]
    in_memory = _total(epochs, "rows_hit") + _total(epochs, "rows_shared")
    from_disk = (requested - in_memory + _total(epochs, "rows_filled")) / requested
    reads = f"{_total(epochs, 'reads'):,} reads"
    return [
        ("rows", f"{requested:,} requested, {from_disk:.0%} from disk"),
        ("bytes", f"{format_bytes(needed)} needed, {format_bytes(read)} read in {reads}"),
    ]


def _partition_traffic(result: Mapping[str, Any]) -> list[Row]:
    """Return lines about edges, and about partitions moved between disk and memory."""
    epochs = result["epochs"]
    seconds = _total(epochs, "seconds")
    rate = result["num_edges"] * len(epochs) / seconds if seconds else 0
    read, written = format_bytes(_total(epochs, "bytes_read")), format_bytes(_total(epochs, "bytes_written"))
    return [
        ("edges", f"{result['num_edges']:,} per epoch, {rate:,.0f} per second"),
        ("partitions", f"{read} read, {written} written"),
    ]


# Lines on data traffic, by kind of run.
_TRAFFIC: dict[str, Callable[[Mapping[str, Any]], list[Row]]] = {
    NODE: _row_traffic,
    HOP: _row_traffic,
    TYPED: _row_traffic,
    TYPED_HOP: _row_traffic,
    LINK_RUN: _row_traffic,
    TYPED_LINK: _row_traffic,
    EMBEDDING: _partition_traffic,
}


def _total(epochs: list[Mapping[str, Any]], name: str) -> Any:
    return sum(epoch.get(name, 0) for epoch in epochs)
