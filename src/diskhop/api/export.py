"""diskhop.export(): the command `diskhop export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.config.train import TrainConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.exporting.formats import Exported, export_dataset
from diskhop.io.engine import open_engine
from diskhop.run_files import CONFIG_FILE
from diskhop.runtime.progress import Progress, silent


@takes_words(TrainConfig, only=("memory_bytes", "threads"))
def export(
    source: Dataset | Path | str,
    destination: Path | str,
    *,
    format: str = "numpy",
    by: str | None = None,
    ann: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> Exported:
    """Export a dataset or embeddings by original ids: the destination appears once it is complete, or not at all.

    source: a dataset, or the folder of a run of embeddings or links.
    destination: new folder for a dataset; for embeddings a new .npy, .parquet or .tsv file, or a .faiss or .usearch
        index.
    format: format of a dataset: numpy, parquet, tables (one per type) or graphbolt.
    by: nearness in an index: cosine (default), dot or l2.
    ann: make a .faiss an approximate index (HNSW), not an exact one; .usearch always is one.
    overwrite: whether what is there is replaced.
    progress: called with a stage, and what is done of it and in total.

    Raises ConfigError for data that the format cannot store, BudgetError, DestinationError.

    >>> exported = diskhop.export("my-graph", "my-tables", format="parquet", memory="200MB")
    """
    destination = Path(destination)
    memory_bytes, threads = options.get("memory_bytes"), options.get("threads")
    if not isinstance(source, Dataset):
        if (Path(source) / CONFIG_FILE).exists():
            from diskhop.runs.export import export_embeddings

            settings: dict[str, Any] = {"by": by, "ann": ann, "memory": memory_bytes, "threads": threads}
            export_embeddings(source, destination, progress, overwrite=overwrite, **settings)
            file = {destination.name: destination.stat().st_size}
            return Exported(destination, destination.suffix.removeprefix("."), file)
        if not Path(source).exists():
            _require_no_file_of_a_run(Path(source), destination)
    if by is not None or ann:
        raise ConfigError(
            f"--{'by' if by else 'ann'} is for indexes of embeddings, and {_shown(source)} is no run; remove it"
        )
    return export_dataset(
        as_dataset(source),
        destination,
        format_name=format,
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
        progress=progress,
        overwrite=overwrite,
    )


def _shown(source: Dataset | Path | str) -> str:
    return str(source.path if isinstance(source, Dataset) else source)


def _require_no_file_of_a_run(source: Path, destination: Path) -> None:
    """Raise ConfigError if a destination is a file of embeddings, which a missing source cannot have."""
    from diskhop.runs.embedding.export import EXPORTS
    from diskhop.runs.embedding.index import INDEXES

    if destination.suffix in (*EXPORTS, *INDEXES):
        raise ConfigError(
            f"{source}: there is no such run to export to {destination.name}; name the folder of a run, or make one "
            "with 'diskhop embed'"
        )
