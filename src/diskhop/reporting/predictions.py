"""Written predictions in a report: what they are of, seconds by step, and how many nodes each class has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.budget import format_bytes
from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import BLUE
from diskhop.run_files import PREDICTIONS_FILE, SUCCESS_FILE

# More classes than this cannot be read on one chart.
_MOST_CLASSES = 30
_BLOCK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class PredictionRecord:
    """Predictions in a folder.

    path: the folder.
    manifest: its manifest.
    class_counts: number of nodes of each predicted class; empty if the files do not tell it quickly.
    """

    path: Path
    manifest: Mapping[str, Any]
    class_counts: Mapping[str, int]


def is_predictions(path: Path) -> bool:
    """Whether a folder has finished predictions."""
    return all((path / name).exists() for name in (SUCCESS_FILE, PREDICTIONS_FILE))


def read_predictions(path: Path) -> PredictionRecord:
    """Read the manifest of predictions and count their classes. Raises ReadError, FormatError."""
    from diskhop.predicting.output import read_predictions_manifest  # brings pyarrow, which other reports do without

    manifest = read_predictions_manifest(path)
    has_class = any(column["name"] == "class" for column in manifest["columns"])
    return PredictionRecord(path, manifest, _count_classes(path, manifest) if has_class else {})


def _count_classes(path: Path, manifest: Mapping[str, Any]) -> Counter[str]:
    """Read one column; text, whose columns cannot be read alone, is left out."""
    found: Counter[str] = Counter()
    if manifest["format"] == "parquet":
        import pyarrow.parquet as pq

        for name in manifest["files"]:
            with pq.ParquetFile(path / name) as file:
                for batch in file.iter_batches(columns=["class"]):
                    for each in batch.column(0).value_counts().to_pylist():
                        found[str(each["values"])] += each["counts"]
    elif "class.npy" in manifest["files"]:
        classes = np.load(path / "class.npy", mmap_mode="r")
        for start in range(0, len(classes), _BLOCK_VALUES):
            values, counts = np.unique(classes[start : start + _BLOCK_VALUES], return_counts=True)
            found.update({str(value): count for value, count in zip(values.tolist(), counts.tolist(), strict=True)})
    return found


def prediction_facts(record: PredictionRecord) -> dict[str, str]:
    """Return names and texts of what was predicted."""
    manifest, facts = record.manifest, record.manifest["facts"]
    num_bytes = sum(entry["bytes"] for entry in manifest["files"].values())
    dataset = str(manifest["dataset"]["name"])
    if facts.get("trained_on", manifest["dataset"]["hash"]) != manifest["dataset"]["hash"]:
        dataset += ", another dataset than the run was trained on"
    found = {
        "nodes": f"{manifest['rows']:,}",
        "columns": ", ".join(column["name"] for column in manifest["columns"]),
        "files": f"{len(manifest['files'])} of {manifest['format']}, {format_bytes(num_bytes)}",
        "dataset": dataset,
    }
    found |= {name: str(facts[name]) for name in ("run", "model") if name in facts}
    found |= {f"{part} metric": f"{value:.4f}" for part, value in facts.get("metrics", {}).items()}
    if "seconds" in facts:
        found["time"] = f"{facts['seconds']:.1f} s"
    return found


def prediction_figures(record: PredictionRecord) -> list[Figure]:
    """Return charts of the classes and of the seconds by step, as far as they are known."""
    figures = []
    if record.class_counts:
        shown = Counter(record.class_counts).most_common(_MOST_CLASSES)
        note = "nodes by predicted class"
        if len(record.class_counts) > len(shown):
            note += f"; the {len(shown)} largest of {len(record.class_counts)} classes"
        figures.append(_bars("Classes", note, dict(shown), "nodes"))
    steps = record.manifest["facts"].get("steps", [])
    if steps:
        figures.append(
            _bars("Steps", "seconds of each step", {each["step"]: each["seconds"] for each in steps}, "seconds")
        )
    return figures


def _bars(title: str, note: str, values: Mapping[str, float], unit: str) -> Figure:
    bars = {"type": "bar", "x": list(values), "y": list(values.values()), "marker": {"color": BLUE}}
    return Figure(title, note, [bars], {"xaxis": {"title": "", "type": "category"}, "yaxis": {"title": unit}})
