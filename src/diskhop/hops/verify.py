"""Verification of every byte of a folder of hop tables."""

from __future__ import annotations

from pathlib import Path

from diskhop.dataset.damage import MISMATCH, Damage
from diskhop.dataset.files import drop_cached_pages
from diskhop.hops.make.tiles import sum_pages
from diskhop.hops.tables import open_hop_tables
from diskhop.runtime.progress import Progress, silent


def verify_tables(path: Path, progress: Progress = silent) -> list[Damage]:
    """Read every byte and return the damaged tables. Raises FormatError for a damaged manifest or damaged ids."""
    tables = open_hop_tables(path)
    total_bytes, damages = sum(file.num_bytes for file in tables.files), []
    for number, file in enumerate(tables.files):
        drop_cached_pages(path / file.name)
        if sum_pages(path / file.name, 0, file.num_bytes).checksum != file.checksum:
            damages.append(Damage(file.name, 0, file.num_bytes, MISMATCH))
        progress("verify", (number + 1) * file.num_bytes, total_bytes)
    return damages
