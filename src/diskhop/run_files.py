"""Names of the files in a RUN folder, as training writes them and reports read them."""

from __future__ import annotations

CONFIG_FILE = "config.toml"
PLAN_FILE = "plan.json"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
