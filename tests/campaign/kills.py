"""Processes that end at random moments, by SIGKILL or by a power cut."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.cases import Case

CASES: Sequence[Case] = ()
