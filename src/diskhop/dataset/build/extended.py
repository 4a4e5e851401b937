"""A dataset with the content of another one and more: files that stay as they are become hard links."""

from __future__ import annotations

import numpy as np

from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import read_whole
from diskhop.dataset.manifest import CHECKSUMS_NAME
from diskhop.io.checksums import FileSums, num_blocks


class ExtendedDataset(DatasetBuilder):
    """A dataset under construction that begins with another's content."""

    def add_dataset(self, dataset: Dataset) -> None:
        """Add everything that another dataset has, before anything else is added. Its files are not read.

        Raises FormatError if its checksums are damaged.
        """
        manifest = dataset.manifest
        for relative, sums in stored_sums(dataset).items():
            self._files.share(relative, dataset.content / relative, sums)
        self._nodes = dict(manifest.node_types)
        self._edges = dict(manifest.edge_types)
        self._triples = manifest.triples
        self._names = dict(manifest.names)


def stored_sums(dataset: Dataset) -> dict[str, FileSums]:
    """Return the checksums of a dataset's files, by path. Raises FormatError if they are damaged."""
    manifest = dataset.manifest
    sums = read_whole(dataset.content / CHECKSUMS_NAME, manifest.checksums).view("<u8").astype(np.uint64)
    found, first = {}, 0
    for relative, entry in sorted(manifest.files.items()):
        found[relative] = FileSums(entry.num_bytes, sums[first : first + num_blocks(entry.num_bytes)])
        first += num_blocks(entry.num_bytes)
    return found
