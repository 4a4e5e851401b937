"""Verification of a RUN folder: models, checkpoints, and the partitions and rows that they refer to.

The text files of a run (config.toml, plan.json, metrics.jsonl, result.json) have no checksums: people edit and
read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from diskhop._native import BufferPool
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import load_config
from diskhop.dataset.damage import MISMATCH, Damage
from diskhop.dataset.files import checksum_of, drop_cached_pages
from diskhop.embedding.partitions.layout import ROWS_STEP, PartitionLayout
from diskhop.embedding.partitions.loaded import LoadedPartition
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.rows.module import VERSION
from diskhop.embedding.rows.versions import version_path
from diskhop.errors import ConfigError, ReadError, TrainingError
from diskhop.io.engine import open_engine
from diskhop.planning.embeddings.partitions import layout_of
from diskhop.run_files import LEARNED_FOLDER
from diskhop.runs.checkpoint import load_tensors
from diskhop.runs.embedding.folder import COMMIT_FILE, EmbeddingFolder
from diskhop.runtime.progress import Progress, silent


def verify_run(path: Path, progress: Progress = silent) -> list[Damage]:
    """Read every byte that has a checksum, and return what is damaged.

    Raises ConfigError for a run that has kept nothing yet, and for a damaged config.toml of embeddings.
    """
    damages: list[Damage] = []
    files = sorted(path.glob("*.safetensors"))
    if not files and not (path / COMMIT_FILE).exists():
        raise ConfigError(f"{path}: has no model or checkpoint yet, so there is nothing to verify; train first")
    for number, file in enumerate(files):
        drop_cached_pages(file)
        try:
            damages += _verify_learned(path, load_tensors(file)[0])
        except TrainingError as error:
            damages.append(_damage_of(file, error))
        progress("verify", number + 1, len(files))
    if (path / COMMIT_FILE).exists():
        damages += _verify_embeddings(EmbeddingFolder(path), progress)
    return list(dict.fromkeys(damages))


def _verify_learned(run: Path, tensors: dict[str, Tensor]) -> Iterator[Damage]:
    """Compare the files of learned rows that a model or checkpoint refers to; see embedding/rows/versions.py."""
    for name, tensor in tensors.items():
        *_, node_type, last = ("", *name.split("."))
        if last != VERSION or tensor.numel() != 2 or not (run / LEARNED_FOLDER).is_dir():
            continue
        number, checksum = tensor.tolist()
        file = version_path(run / LEARNED_FOLDER, node_type, number)
        if number == 0:  # initial rows are drawn again
            continue
        try:
            drop_cached_pages(file)
            found = checksum_of(file)
        except ReadError as error:
            yield Damage(f"{LEARNED_FOLDER}/{file.name}", 0, 0, str(error).removeprefix(f"{file}: "))
            continue
        if found != checksum % (1 << 64):
            yield Damage(f"{LEARNED_FOLDER}/{file.name}", 0, file.stat().st_size, MISMATCH)


def _verify_embeddings(folder: EmbeddingFolder, progress: Progress) -> Iterator[Damage]:
    """Read the committed version of each partition. Uncommitted ones have no checksum: they are work in progress."""
    try:
        commit = folder.read_state()
    except TrainingError as error:
        yield _damage_of(folder.path / COMMIT_FILE, error)
        return
    assert commit is not None
    saved = load_config(folder.config_path, (EmbedConfig,))
    try:
        layout = _layout_of_file(EmbedConfig(**saved.options), folder.partitions)
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder.config_path}: does not fit the partitions: {error}; train again") from error
    store = PartitionStore(folder.partitions, layout, open_engine().engine, commit.partitions)
    pool = BufferPool(0)
    loaded = LoadedPartition(pool.take(layout.values_bytes), pool.take(layout.squares_bytes))
    for partition in range(len(commit.partitions)):
        try:
            store.read(partition, loaded)
        except ReadError as error:
            file, _, reason = str(error).partition(": ")
            yield Damage(str(Path(file).relative_to(folder.path)), 0, layout.partition_bytes, reason)
        progress("verify", partition + 1, len(commit.partitions))


def _layout_of_file(config: EmbedConfig, partitions: Path) -> PartitionLayout:
    """Return a layout with the sizes of the files, whose dataset may be on another machine."""
    width = layout_of(config, config.partitions)
    num_bytes = max(path.stat().st_size for path in partitions.glob("*.bin"))
    rows = num_bytes // (4 * (width.dim + width.state_dim)) // ROWS_STEP * ROWS_STEP
    return layout_of(config, rows * config.partitions)


def _damage_of(file: Path, error: TrainingError) -> Damage:
    return Damage(file.name, 0, file.stat().st_size, str(error).removeprefix(f"{file}: "))
