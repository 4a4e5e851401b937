"""Ways to run, side by side: what each would cost, which is taken, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from diskhop.budget import format_bytes
from diskhop.plans import Prediction, Rejected, RunPlan

PlanT = TypeVar("PlanT", bound=RunPlan)

# Predictions that are this near are of options as good as each other: the simpler one is taken.
AS_GOOD = 1.03
OPTION_COLUMNS = ["option", "run", "epoch", "before", "disk", "cores", "hits", "reads", "read", "written", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option(Generic[PlanT]):
    """A way to run. plan and predicted: None where it cannot, and then the reason says why.

    simplicity: of options that are as good as each other the one with the lowest is taken. is_bounded: whether the
    budget bounds all that it takes; one that it does not is shown, and never taken.
    """

    name: str
    plan: PlanT | None = None
    predicted: Prediction | None = None
    reason: str = ""
    simplicity: int = 0
    is_bounded: bool = True

    def seconds(self, epochs: int) -> float:
        """Of a run of so many epochs, predicted."""
        assert self.predicted is not None, "it can run"
        return self.predicted.run_seconds(epochs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is not known is absent."""
        known = {"predicted": self.predicted, "plan": self.plan}
        return {
            "option": self.name,
            "reason": self.reason,
            **{name: each.to_dict() for name, each in known.items() if each is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking(Generic[PlanT]):
    """Options: the one to take first, then others by their seconds, then those that cannot be taken."""

    options: tuple[Option[PlanT], ...]
    epochs: int

    @property
    def best(self) -> PlanT:
        """The plan to take, with what was not taken."""
        best = self.options[0]
        assert best.plan is not None, "there is an option that runs"
        rejected = tuple(
            Rejected(option=option.name, reason=option.reason, predicted=option.predicted)
            for option in self.options[1:]
        )
        reasons = (best.reason, *best.plan.reasons)
        return replace(best.plan, reasons=reasons, predicted=best.predicted, rejected=rejected)

    def rows(self) -> Iterator[list[str]]:
        """One for each option that runs, for people, by OPTION_COLUMNS."""
        for option in self.options:
            if option.predicted is None or option.plan is None:
                continue
            predicted, reserved = option.predicted, sum(option.plan.reserved.values())
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


def rank(found: Sequence[Option[PlanT]], refused: Mapping[str, str], epochs: int, what: str) -> Ranking[PlanT]:
    """Put options in order. found: those that run, one bounded among them; refused: why others cannot, by name.

    what: they are ways to do, for the reason that is told.
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
    parts = f"{_show(predicted.io_seconds)} of the disk beside {_show(predicted.cores_seconds)} of the cores"
    text = f"{best.name}: {_show(predicted.epoch_seconds)} an epoch predicted, {parts}"
    if not others:
        return text
    ratio = others[0].seconds(epochs) / best.seconds(epochs)
    than = f"takes {ratio:.2f} times as long" if ratio > AS_GOOD else "is as fast, and less simple"
    return f"{text}; the next best, {others[0].name}, {than}"


def _why_not(option: Option[PlanT], best: Option[PlanT], epochs: int) -> str:
    """Of an option that could be taken."""
    predicted = option.predicted
    assert predicted is not None
    ratio = option.seconds(epochs) / best.seconds(epochs)
    if ratio <= AS_GOOD:
        return f"as fast as {best.name}, which is simpler"
    if predicted.seconds_before > epochs * predicted.epoch_seconds:
        why = f"{_show(predicted.seconds_before)} before the first epoch"
    elif predicted.io_seconds > predicted.cores_seconds:
        why = f"the disk takes {_show(predicted.io_seconds)} an epoch, {predicted.hit_rate:.0%} of the rows from memory"
    else:
        why = f"the cores take {_show(predicted.cores_seconds)} an epoch"
    return f"{ratio:.2f} times as long: {why}"


def _show(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
