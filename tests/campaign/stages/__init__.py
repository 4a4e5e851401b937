"""The stages that processes are killed in."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.stage import Stage
from tests.campaign.stages import derived, imports, runs

STAGES: Sequence[Stage] = (*imports.STAGES, *derived.STAGES, *runs.STAGES)
