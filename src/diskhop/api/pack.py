"""diskhop.pack(): the command `diskhop pack`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diskhop.config.options import option_fields
from diskhop.config.sampled import SampledConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.pipeline.pack_ahead import Packed
from diskhop.runs.callbacks import Callback, Callbacks
from diskhop.runs.nodes.pack_samples import pack_samples
from diskhop.runs.nodes.packing import pack as pack_epochs

# Options that do not change samples, and their names as arguments of pack_samples().
_WITH_SAMPLES = {
    "memory_bytes": "memory",
    "cache_bytes": "cache",
    "disk_bytes": "disk",
    "scratch": "scratch",
    "engine": "engine",
    "threads": "threads",
}


@takes_words(SampledConfig)
def pack(
    dataset: Dataset | Path | str,
    *,
    preset: str | None = None,
    config: Path | str | None = None,
    samples: Path | str | None = None,
    executor: str = "",
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Packed:
    """Sample the epochs of a run and pack their features; train() with the same options uses them.

    dataset: open, or its folder.
    preset, config: see train().
    samples: pack batches that were sampled elsewhere: a folder with a .npz file each, with seeds, nodes and edge_index;
        PackedLoader delivers them.
    executor, workers: where epochs are packed, as --executor; see runtime/executors.py.
    callbacks: hear of the work; see Callback. finished() gets the steps as `preparation`, and no epochs.

    An interrupted call resumes with the same options. Raises SourceError for samples, ConfigError, BudgetError;
    DestinationError for a full disk.

    >>> packed = diskhop.pack("my-graph", epochs=2, fanout=(5, 5), memory="200MB", disk="1GB")
    >>> trained = diskhop.train("my-graph", store="packed", epochs=2, fanout=(5, 5), memory="200MB", disk="1GB")
    """
    path = dataset if isinstance(dataset, Dataset) else Path(dataset)
    callback = Callbacks(callbacks)
    try:
        if samples is None:
            file = None if config is None else Path(config)
            packed = pack_epochs(
                path, preset=preset, config=file, executor=executor, workers=workers, callbacks=callbacks, **options
            )
        else:
            chosen = {"--preset": preset, "--config": config, "--executor": executor or None, "--workers": workers}
            _require_samples_alone(chosen, options)
            arguments = {_WITH_SAMPLES[name]: value for name, value in options.items()}
            packed = pack_samples(path, samples, callbacks=callbacks, **arguments)
        callback.finished({"epochs": [], "preparation": packed.steps})
    except BaseException as error:
        callback.failed(error)
        raise
    return packed


def _require_samples_alone(chosen: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse options that decide which samples are drawn, or how."""
    fields = option_fields(SampledConfig)
    others = [flag for flag, value in chosen.items() if value is not None]
    others += [fields[name].main_flag if name in fields else name for name in options if name not in _WITH_SAMPLES]
    if others:
        raise ConfigError(f"{others[0]} has no effect with --samples, which has the batches; remove one of them")
