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
        sums = read_whole(dataset.path / CHECKSUMS_NAME, manifest.checksums).view("<u8").astype(np.uint64)
        first = 0
        for relative, entry in sorted(manifest.files.items()):
            blocks = sums[first : first + num_blocks(entry.num_bytes)]
            first += len(blocks)
            self._files.share(relative, dataset.path / relative, FileSums(entry.num_bytes, blocks))
        self._nodes = dict(manifest.node_types)
        self._edges = dict(manifest.edge_types)
        self._triples = manifest.triples
        self._names = dict(manifest.names)
