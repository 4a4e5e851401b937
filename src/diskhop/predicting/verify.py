"""Verification of every byte of a folder of predictions."""

from __future__ import annotations

from pathlib import Path

from diskhop.dataset.damage import Damage
from diskhop.dataset.summed_files import verify_files
from diskhop.predicting.output import read_predictions_manifest
from diskhop.run_files import PREDICTIONS_FILE, SUCCESS_FILE
from diskhop.runtime.progress import Progress, silent

_REMEDY = "run 'diskhop predict' again"


def verify_predictions(path: Path, progress: Progress = silent) -> list[Damage]:
    """Read every byte and return the damaged files. Raises ReadError, and FormatError for a damaged manifest."""
    content = read_predictions_manifest(path)
    damages = list(verify_files(path / PREDICTIONS_FILE, content, _REMEDY, progress))
    success = path / SUCCESS_FILE
    if not success.exists() or success.stat().st_size:
        damages.append(Damage(SUCCESS_FILE, 0, 0, "is missing or not empty; the copy is incomplete"))
    return damages
