"""Sources of a run's dataset and options: the caller, a configuration file, or the run that is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.config.options import SavedRun, load_config, with_later_options
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.run_files import CONFIG_FILE, read_kind
from diskhop.runs.folder import require_kind, require_same_dataset


class RunSource(NamedTuple):
    """The dataset, open, and options by name; some may be missing."""

    dataset: Dataset
    options: dict[str, Any]


def find_run_source(
    dataset: Dataset | Path | str | None,
    options: Mapping[str, Any],
    configs: Mapping[str, type[Any]],
    *,
    config: Path | str | None = None,
    preset: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
) -> RunSource:
    """Find dataset and options. `options` win over a file's.

    configs: the configuration class of each kind of run that is possible here. config: a file with options. resume:
    read the options of the run in `out`. Raises ConfigError for arguments that exclude each other, and for a file that
    belongs to another dataset or another kind of run.
    """
    path = Path(config) if config is not None else None
    if resume:
        path = _resumed_file(out, path, preset)
    saved = SavedRun(dataset="", dataset_hash="", options={})
    if path is not None:
        require_kind(path, configs)
        saved = load_config(path, tuple(configs.values()))
        if kind := read_kind(path):
            # Of a run: what was decided then, not what would be chosen now.
            saved = replace(saved, options=with_later_options(saved.options, configs[kind]))
    if dataset is None and not saved.dataset:
        raise ConfigError("the dataset is missing: name its folder, or a --config file that has a line 'dataset'")
    opened = as_dataset(saved.dataset if dataset is None else dataset)
    if path is not None:
        require_same_dataset(path, saved.dataset_hash, opened)
    return RunSource(opened, {**saved.options, **options})


def _resumed_file(out: Path | str | None, config: Path | None, preset: str | None) -> Path:
    """Return the configuration file of the run to resume."""
    if out is None:
        raise ConfigError("--resume needs the folder of the run: add --out RUN")
    if config is not None or preset is not None:
        raise ConfigError(f"--resume reads the options from {Path(out) / CONFIG_FILE}: remove --config and --preset")
    path = Path(out) / CONFIG_FILE
    if not path.exists():
        raise ConfigError(f"{out}: there is no run to resume, {CONFIG_FILE} is missing; remove --resume to start one")
    return path
