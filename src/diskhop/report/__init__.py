"""Pages that show what runs did: one that opens in any browser, without a network."""

from __future__ import annotations

from diskhop.report.page import write_report

__all__ = ["write_report"]
