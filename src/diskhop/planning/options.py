"""Options to run, ranked by predicted cost, with the reason why one is taken and the others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from diskhop.budget import format_bytes
from diskhop.display import Display, Facts, Grid, Part, Row
from diskhop.plans import Prediction, Rejected, RunPlan

PlanT = TypeVar("PlanT", bound=RunPlan)

# Options count as equally fast if their predictions differ by less than this factor: the simpler one is taken.
AS_GOOD = 1.03
OPTION_COLUMNS = ["option", "run", "epoch", "before", "disk", "cores", "hits", "reads", "read", "written", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Option(Display, Generic[PlanT]):
    """A way to run.

    plan, predicted: None if it cannot run.
    reason: why it is taken, is not taken, or cannot run.
    simplicity: rank among equally fast options; the lowest is taken.
    is_bounded: the budget bounds all memory that it takes; otherwise the option is shown, but never taken.
    """

    name: str
    plan: PlanT | None = None
    predicted: Prediction | None = None
    reason: str = ""
    simplicity: int = 0
    is_bounded: bool = True

    def seconds(self, epochs: int) -> float:
        """Predicted seconds of a run of n epochs."""
        assert self.predicted is not None, "the option can run"
        return self.predicted.run_seconds(epochs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; unknown values are absent."""
        known = {"predicted": self.predicted, "plan": self.plan}
        return {
            "option": self.name,
            "reason": self.reason,
            **{name: each.to_dict() for name, each in known.items() if each is not None},
        }

    def facts(self) -> list[Row]:
        """Return names and texts of lines about all that is known of it."""
        rows = [("option", self.name), ("why", self.reason)]
        if self.predicted is None or self.plan is None:
            return rows
        for name, value in self.predicted.to_dict().items():
            if name.endswith("_bytes") or name.startswith("bytes_"):
                shown = format_bytes(value)
            elif name.endswith("_seconds"):
                shown = f"{value:.3g} s"
            else:
                shown = f"{value:.0%}" if name == "hit_rate" else f"{value:,}"
            rows.append((name.replace("_", " "), shown))
        rows += memory_rows(self.plan.reserved, self.plan.shared, self.plan.num_processes)
        return rows + [("plan" if number == 0 else "", reason) for number, reason in enumerate(self.plan.reasons)]

    def _title(self) -> str:
        return f"Strategy {self.name}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.facts())]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Ranking(Display, Generic[PlanT]):
    """Ranked options: first the one to take, then others by predicted seconds, then those that cannot be taken."""

    options: tuple[Option[PlanT], ...]
    epochs: int

    @property
    def best(self) -> PlanT:
        """The plan to take, with the rejected options."""
        best = self.options[0]
        assert best.plan is not None, "the first option can run"
        rejected = tuple(
            Rejected(option=option.name, reason=option.reason, predicted=option.predicted)
            for option in self.options[1:]
        )
        waiting = () if best.predicted is None else waiting_for_disk(best.plan, best.predicted)
        reasons = (best.reason, *best.plan.reasons, *waiting)
        return replace(best.plan, reasons=reasons, predicted=best.predicted, rejected=rejected)

    def rows(self) -> Iterator[list[str]]:
        """Yield one table row per option that can run, with the columns OPTION_COLUMNS."""
        for option in self.options:
            if option.predicted is None or option.plan is None:
                continue
            predicted, reserved = option.predicted, option.plan.reserved_bytes
            yield [
                option.name,
                *map(_show, (option.seconds(self.epochs), predicted.epoch_seconds, predicted.seconds_before)),
                *map(_show, (predicted.io_seconds, predicted.cores_seconds)),
                f"{predicted.hit_rate:.0%}",
                f"{predicted.reads:,}",
                format_bytes(predicted.bytes_read),
                format_bytes(predicted.bytes_written),
                format_bytes(reserved),
            ]

    def facts(self) -> list[Row]:
        """Return names and texts of lines below the table: why the best is taken, and why others are not."""
        rows = [("chosen" if number == 0 else "", reason) for number, reason in enumerate(self.best.reasons)]
        return rows + [(f"not {option.name}", option.reason) for option in self.options[1:]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"epochs": self.epochs, "options": [option.to_dict() for option in self.options]}

    def _title(self) -> str:
        return f"Plan for {self.epochs} epoch{'s' * (self.epochs != 1)}: {self.options[0].name}"

    def _parts(self) -> Sequence[Part]:
        return [Grid(OPTION_COLUMNS, list(self.rows())), Facts(self.facts())]


def memory_rows(reserved: Mapping[str, int], shared: Collection[str], num_processes: int) -> list[Row]:
    """Return a line for each name of memory that is reserved, with who has it."""
    whose = dict.fromkeys(reserved, "" if num_processes == 1 else " for each process")
    whose |= dict.fromkeys(shared, f" shared by {num_processes} processes")
    return [(f"memory for {name}", format_bytes(each) + whose[name]) for name, each in reserved.items() if each]


def waiting_for_disk(plan: RunPlan, predicted: Prediction) -> tuple[str, ...]:
    """Say in one line that the processes of a plan mostly wait for the disk; nothing if they do not."""
    if plan.num_processes == 1 or predicted.io_seconds <= predicted.cores_seconds:
        return ()
    disk, cores = _show(predicted.io_seconds), _show(predicted.cores_seconds)
    return (
        f"{plan.num_processes} processes wait for the disk: it is busy for {disk} per epoch, the CPU of each process "
        f"for {cores}; more processes would only wait longer",
    )


def describe_division(reserved: Mapping[str, int], shared: Collection[str], num_processes: int) -> str:
    """Say in one line what the processes of a machine have in one copy, and what each has."""
    once = {name: num_bytes for name, num_bytes in reserved.items() if name in shared and num_bytes}
    each_bytes = sum(reserved[name] for name in reserved if name not in once)
    parts = [f"{format_bytes(sum(once.values()))} shared ({', '.join(once)})"] if once else []
    return f"Memory of {num_processes} processes: {', '.join([*parts, f'{format_bytes(each_bytes)} for each process'])}"


def rank(found: Sequence[Option[PlanT]], refused: Mapping[str, str], epochs: int, what: str) -> Ranking[PlanT]:
    """Rank options. found: those that can run, at least one of them bounded. refused: why others cannot, by name.

    what: the kind of choice, for the reason that people read, such as 'store'.
    """
    bounded = sorted((option for option in found if option.is_bounded), key=lambda option: option.seconds(epochs))
    as_good = [option for option in bounded if option.seconds(epochs) <= AS_GOOD * bounded[0].seconds(epochs)]
    best = min(as_good, key=lambda option: option.simplicity)
    others = [option for option in bounded if option is not best]
    unbounded = [option for option in found if not option.is_bounded]
    cannot_run: list[Option[PlanT]] = [Option(name=name, reason=reason) for name, reason in refused.items()]
    return Ranking(
        options=(
            replace(best, reason=f"{what} {_why(best, others, epochs)}"),
            *(replace(option, reason=_why_not(option, best, epochs)) for option in others),
            *unbounded,
            *cannot_run,
        ),
        epochs=epochs,
    )


def _why(best: Option[PlanT], others: Sequence[Option[PlanT]], epochs: int) -> str:
    predicted = best.predicted
    assert predicted is not None
    parts = f"disk {_show(predicted.io_seconds)}, CPU {_show(predicted.cores_seconds)} (overlapped)"
    text = f"{best.name}: {_show(predicted.epoch_seconds)} per epoch predicted; {parts}"
    if not others:
        return text
    ratio = others[0].seconds(epochs) / best.seconds(epochs)
    than = f"is {ratio:.2f}x slower" if ratio > AS_GOOD else "is equally fast, but less simple"
    return f"{text}; next best, {others[0].name}, {than}"


def _why_not(option: Option[PlanT], best: Option[PlanT], epochs: int) -> str:
    predicted = option.predicted
    assert predicted is not None
    ratio = option.seconds(epochs) / best.seconds(epochs)
    if ratio <= AS_GOOD:
        return f"equally fast as {best.name}, which is simpler"
    if predicted.seconds_before > epochs * predicted.epoch_seconds:
        why = f"{_show(predicted.seconds_before)} before the first epoch"
    elif predicted.io_seconds > predicted.cores_seconds:
        why = f"disk {_show(predicted.io_seconds)} per epoch, {predicted.hit_rate:.0%} of the rows come from memory"
    else:
        why = f"CPU {_show(predicted.cores_seconds)} per epoch"
    return f"{ratio:.2f}x slower: {why}"


def _show(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
