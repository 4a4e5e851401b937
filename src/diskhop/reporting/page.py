"""Runs as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes
from diskhop.errors import ConfigError, DiskhopError
from diskhop.reporting.batch_times import batch_figure
from diskhop.reporting.courses import course_figures, time_figure
from diskhop.reporting.evaluation import confusion_figure, evaluation_figures, evaluation_table
from diskhop.reporting.figures import Figure, map_figure, run_figures
from diskhop.reporting.groups import comparison_table, group_runs
from diskhop.reporting.html import plotly_for, render_page, require_page, write_page
from diskhop.reporting.predictions import (
    PredictionRecord,
    is_predictions,
    prediction_facts,
    prediction_figures,
    read_predictions,
)
from diskhop.reporting.records import RunRecord, read_run
from diskhop.reporting.values import Table, shown_value

_MAP_NODES = 2000


def write_report(runs: Sequence[Path | str], out: Path | str | None = None, *, overwrite: bool = False) -> Path:
    """Write a page about runs, compared where possible; return its path.

    runs: RUN folders, whose runs may still be training, or killed, and folders of predictions.
    out: the page; default: report.html in the folder of a single run, NAME.html next to a single folder of predictions
        NAME, or report.html in the working directory.
    overwrite: whether a file that is there is replaced.
    Raises ConfigError for a folder with neither, DestinationError.
    """
    if isinstance(runs, str | Path):
        raise ConfigError(f"runs must be a list of folders, got {str(runs)!r}; pass [{str(runs)!r}]")
    if not runs:
        raise ConfigError("a report needs at least one run: diskhop report RUN")
    paths = [Path(run) for run in runs]
    predictions = [read_predictions(path) for path in paths if is_predictions(path)]
    done = {each.path for each in predictions}
    records = [read_run(path) for path in paths if path not in done]
    path = Path(out) if out is not None else _default_page(paths, bool(predictions))
    require_page(path, "--out", overwrite=overwrite)
    return write_page(render(records, predictions), path, overwrite=overwrite)


def _default_page(paths: Sequence[Path], are_predictions: bool) -> Path:
    if len(paths) > 1:
        return Path("report.html")
    if not are_predictions:
        return paths[0] / "report.html"
    # A folder of predictions holds nothing else, so that it can be replaced.
    folder = paths[0].resolve()
    return folder.with_name(f"{folder.name}.html")


def render(records: Sequence[RunRecord], predictions: Sequence[PredictionRecord] = ()) -> str:
    """Return the page about some runs and predictions."""
    names = _names([record.path for record in records])
    of_predictions = _names([record.path for record in predictions])
    groups = group_runs(records, names)
    compared = time_figure(groups)
    courses = course_figures(groups) + ([] if compared is None else [compared])
    details = [_details(record, name) for record, name in zip(records, names, strict=True)]
    written = [
        {"name": name, "facts": prediction_facts(record), "figures": prediction_figures(record)}
        for record, name in zip(predictions, of_predictions, strict=True)
    ]
    return render_page(
        "report.html",
        title=", ".join([*(group.name for group in groups), *of_predictions]),
        overview=[_overview(record, name) for record, name in zip(records, names, strict=True)],
        comparison=comparison_table(groups),
        courses=courses,
        runs=details,
        predictions=written,
        plotly=plotly_for(
            courses,
            *(each["figures"] for each in (*details, *written)),
            *(each["evaluation_figures"] for each in details),
        ),
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """Return folder names, with as many parent folders as make them unique."""
    paths = [folder.resolve() for folder in folders]
    depth = 1
    while depth < max((len(path.parts) for path in paths), default=0):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
        depth += 1
    return [str(path) for path in paths]


def _overview(record: RunRecord, name: str) -> dict[str, str]:
    """Return a run's line in the table at the top."""
    wanted, done = record.config["epochs"], len(record.epochs)
    state = f"{done} of {wanted} epochs" + ("" if record.result else ", not done")
    if record.result and record.result.get("stopped_early"):
        state += ", stopped early"
    seconds = sum(epoch["seconds"] for epoch in record.epochs)
    test = "" if record.test is None else f"{record.test[1]:.4f} {record.test[0]}"
    valid = "" if record.best_valid is None else f"{record.best_valid:.4f} {record.valid_metric}"
    peak = format_bytes(record.result["peak_rss_bytes"]) if record.result else ""
    return {
        "run": name,
        "dataset": record.dataset,
        "model": str(record.config["model"]),
        "epochs": state,
        "time": f"{seconds:.1f} s" + (f", {seconds / done:.2f} s per epoch" if done else ""),
        "best validation": valid,
        "test": test,
        "peak memory": peak,
    }


def _details(record: RunRecord, name: str) -> dict[str, Any]:
    plan = record.plan or {}
    drawn, note = _map(record)
    evaluation = record.evaluation
    of_evaluation = [] if evaluation is None else evaluation_figures(evaluation)
    batches = [figure for figure in [batch_figure(record)] if figure is not None]
    # An evaluation has the confusion matrix of exact outputs.
    confusion = (record.result or {}).get("confusion")
    tested = [confusion_figure(confusion)] if confusion and not of_evaluation else []
    return {
        "name": name,
        "figures": run_figures(record) + batches + tested + drawn,
        "evaluation": None if evaluation is None else evaluation_table(evaluation),
        "evaluation_figures": of_evaluation,
        "note": note,
        "reasons": list(plan.get("reasons", [])),
        "options": _options(record, plan),
        "reserved": {what: num_bytes for what, num_bytes in plan.get("reserved", {}).items() if num_bytes},
        "memory_bytes": plan.get("memory_bytes", record.config["memory_bytes"]),
        "preparation": _preparation(record),
        "config": _shown(record.config),
        "machine": _shown(record.machine or {}),
    }


def _preparation(record: RunRecord) -> Table:
    """Return the steps before training, with their seconds and bytes."""
    steps = (record.result or {}).get("preparation", [])
    rows = [
        [each["step"], f"{each['seconds']:.1f}", format_bytes(each["bytes_read"]), format_bytes(each["bytes_written"])]
        for each in steps
    ]
    return Table(["step", "seconds", "read", "written"], rows)


def _options(record: RunRecord, plan: Mapping[str, Any]) -> Table:
    """Return the ways to run that were compared, the chosen one first, with the seconds its epochs took."""
    columns = ["option", "predicted", "disk", "cores", "measured", "why not"]
    predicted = plan.get("predicted")
    if predicted is None:
        return Table(columns, [])
    # The first epoch of several starts with empty caches.
    seconds = [epoch["seconds"] for epoch in record.epochs[1:] or record.epochs]
    measured = f"{sum(seconds) / len(seconds):.3g} s" if seconds else ""
    name = plan.get("store") or plan.get("placement") or f"{plan.get('num_partitions')} partitions"
    rows = [_option(name, predicted, measured, "taken")]
    rows += [_option(each["option"], each["predicted"], "", each["reason"]) for each in plan.get("rejected", [])]
    return Table(columns, rows)


def _option(name: str, predicted: Mapping[str, Any] | None, measured: str, reason: str) -> list[str]:
    columns = ("epoch_seconds", "io_seconds", "cores_seconds")
    seconds = ["", "", ""] if predicted is None else [f"{predicted[column]:.3g} s" for column in columns]
    return [name, *seconds, measured, reason]


def _map(record: RunRecord) -> tuple[list[Figure], str]:
    """Return a map of the embeddings, or the reason why there is none."""
    if not record.is_embedding:
        return [], ""
    from diskhop.runs.embedding.map import make_map  # brings PyTorch, which other reports do without

    try:
        found = make_map(record.path, nodes=_MAP_NODES)
    except DiskhopError as error:
        return [], f"No map of the embeddings: {error}."
    title = f"{found.title}; dark nodes have few edges, bright ones many"
    return [map_figure(title, found.axes.tolist(), found.names, found.colors.of_nodes)], ""


def _shown(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: shown_value(name, fact) for name, fact in facts.items()}
