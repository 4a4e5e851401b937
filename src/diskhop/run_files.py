"""Files in RUN folders and folders of predictions, and the kinds of runs, as they are written and reports read them."""

from __future__ import annotations

import shlex
from pathlib import Path

from diskhop.config.options import read_toml

CONFIG_FILE = "config.toml"
PLAN_FILE = "plan.json"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
# The trials of a run with --tune.
TUNING_FILE = "tuning.json"
SCHEMA_FILE = "schema.json"
EVALUATION_FILE = "evaluation.json"
MODEL_FILE = "model.safetensors"
CHECKPOINT_FILE = "checkpoint.safetensors"
# Those of earlier epochs, with the number of epochs done, for a run with --keep.
KEPT_CHECKPOINT = "checkpoint-{}.safetensors"
# Folder of learned rows that exceed the memory.
LEARNED_FOLDER = "learned"
# In a folder of predictions: what is in it, and that it is whole.
PREDICTIONS_FILE, SUCCESS_FILE = "_manifest.json", "_SUCCESS"

NODE, HOP, LINK_RUN, EMBEDDING = "node", "hop", "link", "embedding"
# With several types of nodes or edges.
TYPED, TYPED_HOP, TYPED_LINK = "typed", "typed-hop", "typed-link"
# The command of each kind of run.
COMMANDS = {
    **dict.fromkeys((NODE, HOP, TYPED, TYPED_HOP, LINK_RUN, TYPED_LINK), "train"),
    EMBEDDING: "embed",
}


def read_kind(config_path: Path) -> str:
    """Return the kind of run that a config.toml belongs to; '' for a file written by hand that names none."""
    kind = read_toml(config_path).get("kind", "")
    return kind if isinstance(kind, str) else ""


def resume_command(kind: str, run: Path) -> str:
    """Return the command that resumes a run, to be pasted."""
    return f"diskhop {COMMANDS[kind]} --resume --out {shlex.quote(str(run))}"
