"""The page about a plan: `diskhop plan DATASET --html FILE`, or `diskhop plan RUN --task predict --html FILE`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.budget import format_bytes
from diskhop.planning.options import OPTION_COLUMNS, Option, Ranking
from diskhop.plans import Prediction, StepPlan
from diskhop.reporting.figures import Figure
from diskhop.reporting.html import plotly_for, render_page
from diskhop.reporting.palette import BLUE, GRAY, GREEN, VERMILION
from diskhop.reporting.values import Table
from diskhop.runs.predict.plan import STEP_COLUMNS, PredictionPlan

# Bars of a chart.
_MOST_BARS = 40

# Title, note and table.
Listing = tuple[str, str, Table]


class _Memory(NamedTuple):
    """Memory of a plan.

    budget: bytes of --memory.
    reserved: bytes by name, as one process has them.
    shared: names of the reserved data of which the processes have one copy.
    num_processes: processes that share the budget.
    """

    budget: int
    reserved: Mapping[str, int]
    shared: Collection[str]
    num_processes: int

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of all processes together by name, the largest first; those of nothing are left out."""
        found = {
            name: num_bytes * (1 if name in self.shared else self.num_processes)
            for name, num_bytes in self.reserved.items()
            if num_bytes
        }
        return dict(sorted(found.items(), key=lambda each: -each[1]))


def render_plan(path: Path | str, planned: Ranking[Any] | PredictionPlan) -> str:
    """Return the page. path: the dataset; of a prediction, the run."""
    return _prediction_page(path, planned) if isinstance(planned, PredictionPlan) else _ranking_page(path, planned)


def _ranking_page(path: Path | str, ranking: Ranking[Any]) -> str:
    best = ranking.best
    chosen = ranking.options[0]
    predicted = [(option.name, option.predicted) for option in ranking.options if option.predicted is not None]
    memory = _Memory(best.memory_bytes, best.reserved, best.shared, best.num_processes)
    reasons = [[option.name, option.reason] for option in ranking.options]
    return _page(
        f"Plan for {_name(path)}",
        {
            "dataset": str(path),
            "chosen": chosen.name,
            "predicted": f"{chosen.seconds(ranking.epochs):.3g} s for {ranking.epochs:,} epochs",
        },
        best.reasons,
        memory,
        [
            (
                "Options",
                "predicted, nothing was trained; the chosen one first",
                Table(OPTION_COLUMNS, list(ranking.rows())),
            ),
            ("Reasons", "why an option is taken, is not taken, or cannot run", Table(["option", "why"], reasons)),
        ],
        [
            _bars("Time of an epoch", "predicted; disk and CPU overlap", "seconds", _SECONDS, predicted),
            _bars("Disk traffic of an epoch", "predicted", "bytes", _BYTES, predicted),
        ],
        ranking.options,
    )


def _prediction_page(path: Path | str, planned: PredictionPlan) -> str:
    outputs = planned.outputs
    steps = [(each.name, each) for each in outputs.steps]
    return _page(
        f"Plan of predictions by {_name(path)}",
        {
            "run": str(path),
            **{name: text for name, text in planned.facts() if name in ("model", "time", "I/O", "disk")},
        },
        outputs.reasons,
        _Memory(planned.memory_bytes, outputs.reserved, outputs.shared, outputs.num_processes),
        [("Steps", "predicted, nothing was computed", Table(STEP_COLUMNS, planned.step_rows()))],
        [
            _bars("Time of each step", "predicted", "seconds", _STEP_SECONDS, steps),
            _bars("Disk traffic of each step", "predicted", "bytes", _BYTES, steps),
        ],
    )


def _name(path: Path | str) -> str:
    return Path(path).resolve().name


def _page(
    title: str,
    overview: Mapping[str, str],
    reasons: Sequence[str],
    memory: _Memory,
    tables: Sequence[Listing],
    figures: Sequence[Figure | None],
    options: Sequence[Option[Any]] = (),
) -> str:
    drawn = [each for each in (*figures, _memory_figure(memory)) if each is not None]
    return render_page(
        "plan.html",
        title=title,
        overview={**overview, **_budget(memory)},
        reasons=list(reasons),
        tables=[*tables, _memory_table(memory)],
        figures=drawn,
        options=[(option.name, option.facts()) for option in options if option.plan is not None],
        plotly=plotly_for(drawn),
    )


def _budget(memory: _Memory) -> dict[str, str]:
    found = {"memory": f"{format_bytes(sum(memory.parts.values()))} of {format_bytes(memory.budget)}"}
    return found if memory.num_processes == 1 else {**found, "processes": str(memory.num_processes)}


def _memory_table(memory: _Memory) -> Listing:
    whose = dict.fromkeys(memory.parts, f"each of {memory.num_processes} processes" if memory.num_processes > 1 else "")
    whose |= dict.fromkeys(memory.shared, "one copy for all processes")
    rows = [
        [name, format_bytes(each), _share(each / memory.budget), whose[name]] for name, each in memory.parts.items()
    ]
    columns = ["reserved for", "bytes", "share of the budget", "whose"]
    if memory.num_processes == 1:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return f"Memory: budget of {format_bytes(memory.budget)}", "of the chosen option", Table(columns, rows)


def _share(part: float) -> str:
    return "under 0.1%" if part < 0.001 else f"{part:.1%}"


def _memory_figure(memory: _Memory) -> Figure | None:
    """Return bars of what is reserved, and of what is left of the budget; None for a single part."""
    parts = memory.parts
    if len(parts) < 2:
        return None
    shown = dict(list(parts.items())[:_MOST_BARS])
    left = memory.budget - sum(parts.values())
    note = f"the division of the budget; {format_bytes(left)} of it are not reserved"
    names, values, colors = [*shown], [*shown.values()], [BLUE] * len(shown)
    # A large rest would press the others flat.
    if 0 < left < 3 * values[0]:
        names, values, colors = [*names, "not reserved"], [*values, left], [*colors, GRAY]
    bars = {"type": "bar", "orientation": "h", "x": values, "y": names, "marker": {"color": colors}}
    layout = {
        "xaxis": {"title": "bytes"},
        "yaxis": {"title": "", "type": "category", "autorange": "reversed"},
        "height": 110 + 24 * len(names),
    }
    return Figure("Memory", note, [bars], layout)


class _Part(NamedTuple):
    """A bar of every option or step: its name, its colour, and its height."""

    name: str
    color: str
    value: Callable[[Any], float]


_SECONDS = (
    _Part("epoch", GREEN, lambda each: each.epoch_seconds),
    _Part("disk", BLUE, lambda each: each.io_seconds),
    _Part("CPU", VERMILION, lambda each: each.cores_seconds),
)
_BYTES = (
    _Part("read", BLUE, lambda each: each.bytes_read),
    _Part("written", VERMILION, lambda each: each.bytes_written),
)
_STEP_SECONDS = (_Part("seconds", GREEN, lambda each: each.seconds),)


def _bars(
    title: str, note: str, unit: str, parts: Sequence[_Part], found: Sequence[tuple[str, Prediction | StepPlan]]
) -> Figure | None:
    """Return groups of bars, one for each option or step; None for fewer than two of them, and without values."""
    shown = found[:_MOST_BARS]
    x = [name for name, _ in shown]
    data = []
    for part in parts:
        values = [part.value(each) for _, each in shown]
        if any(values):
            data.append({"type": "bar", "name": part.name, "x": x, "y": values, "marker": {"color": part.color}})
    if len(shown) < 2 or not data:
        return None
    if len(found) > len(shown):
        note += f"; the first {len(shown)} of {len(found)}"
    layout = {"barmode": "group", "xaxis": {"title": "", "type": "category"}, "yaxis": {"title": unit}}
    return Figure(title, note, data, layout)
