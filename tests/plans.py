"""Plans that differ from the planner's in what their store gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diskhop.plans import SampledPlan


def with_share(plan: SampledPlan, **changes: Any) -> SampledPlan:
    """A plan with changes to its store's share."""
    return replace(plan, share=replace(plan.share, **changes))
