"""The choice of a feature store: plan each one, simulate it on a short trace, and take the fastest.

An *option* is a store with one way to divide the budget. Sizes of batches, the disk, a training step and a copied row
are measured first. The rest is arithmetic: see diskhop/stores/costs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diskhop.budget import Budget
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, ConfigError
from diskhop.planning.options import Option, Ranking, rank, waiting_for_disk
from diskhop.planning.simulation import NoRoomError, Simulation
from diskhop.planning.store_plan import plan_store
from diskhop.planning.workload import Workload, for_store, require_served, store_wishes
from diskhop.plans import SampledPlan
from diskhop.stores.kind import StoreKind
from diskhop.stores.stores import STORES, store_kind

# Runs on a graph without features have no rows to fetch, so any store will do.
_WITHOUT_FEATURES = "direct"


def choose_plan(dataset: Dataset, workload: Workload, budget: Budget, disk: DiskModel | None = None) -> SampledPlan:
    """Plan the named store, or for 'auto' the one with the fewest predicted seconds.

    disk: cost of reads; default: measured on the disk of the features.

    Raises ConfigError for an unknown store or engine, and for options without effect. Raises BudgetError, naming the
    smallest budget that works, before anything is opened or measured.
    """
    store = workload.store or AUTO
    require_served(dataset, workload, store)
    if store != AUTO:
        return plan_store(dataset, workload, store, budget, disk)
    if dataset.feature_table() is None:
        plan = plan_store(dataset, workload, _WITHOUT_FEATURES, budget, disk)
        return replace(plan, reasons=(f"store {_WITHOUT_FEATURES}: the graph has no features to fetch", *plan.reasons))
    try:
        return rank_options(dataset, workload, budget, disk).best
    except NoRoomError as error:
        return _first_that_fits(dataset, workload, budget, disk, str(error))


def _first_that_fits(
    dataset: Dataset, workload: Workload, budget: Budget, disk: DiskModel | None, why: str
) -> SampledPlan:
    """Plan the simplest store that fits the budget, if nothing can be compared. Raises BudgetError."""
    too_small: list[BudgetError] = []
    kinds = (store_kind(name, dataset.feature_table()) for name in STORES)
    for kind in sorted(kinds, key=lambda kind: kind.simplicity):
        if not kind.is_bounded or _refusal(dataset, workload, kind):
            continue
        try:
            plan = plan_store(dataset, for_store(workload, kind), kind.name, budget, disk)
        except BudgetError as error:
            too_small.append(error)
            continue
        return replace(plan, reasons=(f"store {kind.name}: {why}", *plan.reasons))
    raise _smallest(too_small)


def _smallest(errors: Sequence[BudgetError]) -> BudgetError:
    """Return the error that asks for the fewest bytes."""
    return min(errors, key=lambda error: error.smallest_bytes or 0)


def predict_plan(
    dataset: Dataset, workload: Workload, plan: SampledPlan, budget: Budget, disk: DiskModel | None = None
) -> SampledPlan:
    """Add a prediction to a plan, if the budget has room for simulating it.

    More batches are in flight, or its lists and cached rows have the same memory in turn, where that is predicted to be
    faster.
    """
    if dataset.feature_table() is None:
        return plan
    try:
        with Simulation(dataset, workload, budget, disk) as simulation:
            predicted = simulation.predict(plan, workload)
            kind = store_kind(plan.store, dataset.feature_table())
            deeper = simulation.plan_deeper(kind, workload, plan, predicted)
            seconds = predicted.run_seconds(workload.epochs) if deeper is None else deeper.seconds(workload.epochs)
            best = simulation.plan_in_turn(kind, workload, seconds) or deeper
            if best is not None and best.plan is not None and best.predicted is not None:
                plan, predicted = best.plan, best.predicted
            reasons = (*plan.reasons, *waiting_for_disk(plan, predicted))
            return replace(plan, predicted=predicted, reasons=reasons)
    except BudgetError:
        return plan


def choose_predicted_plan(dataset: Dataset, workload: Workload, budget: Budget) -> SampledPlan:
    """Choose a plan, and add a prediction to that of a named store. Raises as choose_plan()."""
    plan = choose_plan(dataset, workload, budget)
    return plan if plan.predicted is not None else predict_plan(dataset, workload, plan, budget)


def rank_options(
    dataset: Dataset, workload: Workload, budget: Budget, disk: DiskModel | None = None
) -> Ranking[SampledPlan]:
    """Rank all stores on a workload, each with its best division of the budget. Ignores workload.store.

    Raises BudgetError if no store fits.
    """
    refused: dict[str, str] = {}
    too_small: list[BudgetError] = []
    found: list[Option[SampledPlan]] = []
    with Simulation(dataset, workload, budget, disk) as simulation:
        for name in STORES:
            kind = store_kind(name, dataset.feature_table())
            if reason := _refusal(dataset, workload, kind):
                refused[kind.name] = reason
                continue
            try:
                options = simulation.plans(kind)
            except BudgetError as error:
                refused[kind.name] = str(error)
                too_small.append(error)
            except ConfigError as error:
                refused[kind.name] = str(error)
            else:
                found.append(min(options, key=lambda option: option.seconds(workload.epochs)))
    if not any(option.is_bounded for option in found):
        raise _smallest(too_small) if too_small else ConfigError(next(iter(refused.values())))
    return rank(found, refused, workload.epochs, "store")


def _refusal(dataset: Dataset, workload: Workload, kind: StoreKind) -> str:
    """Return why a store cannot serve a workload. Options without effect are left out, not refused."""
    table = dataset.feature_table()
    assert table is not None
    return kind.refuses(table, store_wishes(dataset, workload, kind))
