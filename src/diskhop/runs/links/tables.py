"""Embeddings of all nodes by a trained link model, computed layer by layer from disk, and reading them for ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.budget import Budget
from diskhop.config.link import LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.ranking.reader import NodePiece
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.nn.decoders.decoders import Decoder
from diskhop.nn.link_model import decoder_of
from diskhop.predicting.disk import ALL_FREE
from diskhop.predicting.rows import RowTable
from diskhop.run_files import LINK_RUN, MODEL_FILE
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier
from diskhop.runs.predict.tables import OutputRun
from diskhop.runs.predict.wanted import Wanted
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder

_BLOCK_ROWS = 4096


def open_links(run: Path | str) -> tuple[OpenClassifier, LinkConfig]:
    """Open a run on links. Raises ConfigError for another kind of run, and for missing or damaged files."""
    opened = open_classifier(run, (LINK_RUN,))
    assert isinstance(opened.config, LinkConfig), "another kind was refused"
    return opened, opened.config


def open_decoder(opened: OpenClassifier, config: LinkConfig) -> Decoder:
    """Return the decoder of a run, with its parameters. Raises ConfigError if they do not fit."""
    decoder = decoder_of(config)
    try:
        decoder.load_state_dict(opened.decoder)
    except RuntimeError as error:
        raise ConfigError(
            f"{opened.path / MODEL_FILE}: does not fit --decoder {config.decoder}; copy the run again, or train again"
        ) from error
    return decoder.eval()


@contextmanager
def open_embeddings(
    opened: OpenClassifier,
    graph: Dataset,
    budget: Budget,
    *,
    threads: int,
    later: Mapping[str, int],
    work: WorkFolder,
    progress: Progress,
) -> Iterator[RowTable]:
    """Compute the embeddings of all nodes, with all neighbours in a graph, and give access to them.

    later: memory by name of what reads them. work: for files until then. Raises ConfigError, BudgetError, and
    PredictionError for values that are not finite.
    """
    config = opened.config
    run = OutputRun(
        classifier=opened,
        dataset=graph,
        budget=budget,
        space=ALL_FREE,
        threads=threads,
        tools=TaskTools(open_engine(config.engine).engine),
        scratch=getattr(config, "scratch", "") or None,
        later=later,
        progress=progress,
    )
    wanted = Wanted(logits=False, layer=config.layers)
    run.require_memory(wanted)
    with run.compute(wanted, work) as tables:
        assert tables.embedding is not None, "it is wanted"
        yield tables.embedding


class DecoderScores:
    """Scores of a decoder, as ranks need them; see Similarity."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @torch.no_grad()
    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """Write the scores of all pairs to out (queries, nodes)."""
        out.copy_(self._decoder.matrix(queries, nodes))


class TableReader:
    """Rows of a table of embeddings; see NodeReader. Every node is at the place of its row."""

    def __init__(self, table: RowTable, decoder: Decoder) -> None:
        self._table = table
        self.kind = DecoderScores(decoder)

    @property
    def num_nodes(self) -> int:
        """See NodeReader."""
        return self._table.num_rows

    @property
    def dim(self) -> int:
        """See NodeReader."""
        return self._table.dim

    def gather(self, places: NDArray[np.int64]) -> Tensor:
        """See NodeReader. Reads the table once, from front to back."""
        order = np.argsort(places, kind="stable")
        ascending = places[order]
        found = np.empty((len(places), self.dim), np.float32)
        for piece in self.pieces():
            begin, end = np.searchsorted(ascending, [piece.places[0], piece.places[-1] + 1])
            if end > begin:
                found[order[begin:end]] = piece.values.numpy()[ascending[begin:end] - piece.places[0]]
        return torch.from_numpy(found)

    def pieces(self) -> Iterator[NodePiece]:
        """See NodeReader."""
        first = 0
        for block in self._table.blocks(_BLOCK_ROWS):
            # A copy, since a mapped block cannot be written, which torch warns of.
            yield NodePiece(np.arange(first, first + len(block)), torch.from_numpy(np.array(block)))
            first += len(block)

    def queries(self, _side: int, given: Tensor, _relations: NDArray[np.int64] | None) -> Tensor:
        """See NodeReader. Decoders are symmetric, so that either end is compared as it is."""
        return given
