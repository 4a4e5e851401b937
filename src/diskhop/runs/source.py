"""What a run is of: dataset and options, from a caller, a configuration file or the run that it goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.config.options import SavedRun, load_config
from diskhop.config.train import KINDS
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError
from diskhop.run_files import CONFIG_FILE
from diskhop.runs.folder import require_same_dataset


class RunSource(NamedTuple):
    """dataset: open. options: by name; any may be missing."""

    dataset: Dataset
    options: dict[str, Any]


def find_run_source(
    dataset: Dataset | Path | str | None,
    options: Mapping[str, Any],
    *,
    config: Path | str | None,
    preset: str | None,
    out: Path | str | None,
    resume: bool,
    kinds: Sequence[type[Any]] = KINDS,
) -> RunSource:
    """Options win over a file's; resume: the file is that of the run in `out`. kinds: see check_options().

    Raises ConfigError for what does not go together, and for a file that is of other data.
    """
    path = Path(config) if config is not None else None
    if resume:
        if out is None:
            raise ConfigError("--resume needs --out, the folder of the run to go on with")
        if path is not None or preset is not None:
            raise ConfigError("--resume goes on by the run's own config.toml: leave out --config and --preset")
        path = Path(out) / CONFIG_FILE
        if not path.exists():
            raise ConfigError(f"{out}: there is no run to resume, {CONFIG_FILE} is missing; leave out --resume")
    saved = SavedRun(dataset="", dataset_hash="", options={}) if path is None else load_config(path, kinds)
    if dataset is None and not saved.dataset:
        raise ConfigError("there is no dataset to train on: name one, or a config file that does")
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(Path(dataset or saved.dataset))
    if path is not None:
        require_same_dataset(path, saved.dataset_hash, opened)
    return RunSource(opened, {**saved.options, **options})
