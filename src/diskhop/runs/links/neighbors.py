"""The likeliest partners of a node by a trained link model.

Embeddings of all nodes, with all edges of the graph, are kept in the RUN folder by the first query.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.dataset.edge_lists import EdgeLists
from diskhop.embedding.partitions.layout import NodePermutation
from diskhop.errors import ConfigError
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.rows import ArrayRows
from diskhop.runs.embedding.places import Places
from diskhop.runs.embedding.queries import NEARNESS, Answer, require_top
from diskhop.runs.links.stored import stored_embeddings
from diskhop.runs.links.tables import TableReader, open_decoder, open_links
from diskhop.runtime.progress import Progress, silent
from diskhop.sampling.known_links import KnownLinks

DECODER = "decoder"


def link_neighbors(
    run: Path | str, node: str | int, *, top: int = 10, by: str = DECODER, progress: Progress = silent
) -> list[Answer]:
    """Return the nodes that most likely have an edge with one, likeliest first.

    node: its name, or its id in the source where nodes have no names. by: 'decoder' for the run's own score, or
    'cosine', 'dot' or 'l2' of embeddings. Raises ConfigError for an unknown node.
    """
    require_top(top)
    if by not in (DECODER, *NEARNESS):
        raise ConfigError(f"unknown nearness '{by}'; use --by {' or --by '.join((DECODER, *NEARNESS))}")
    opened, config = open_links(run)
    dataset = opened.open_dataset()
    opened.require_fit(dataset)
    places = Places(dataset, NodePermutation(dataset.num_nodes, "input", 0))
    names = places.names()
    row = int(places.of(np.array([names.find(node)]))[0])
    with reproducible(config.threads):
        table = stored_embeddings(opened, config, dataset, progress)
        best, rows = _nearest(TableReader(ArrayRows(table), open_decoder(opened, config)), row, top, by)
    known = KnownLinks(EdgeLists.of(dataset.topology))
    is_known = known.table(np.array([row]), rows)[0] | known.table(rows, np.array([row]))[:, 0]
    shown = names.of(places.ranks(rows).tolist())
    return [Answer(*each) for each in zip(shown, best.tolist(), is_known.tolist(), strict=True)]


@torch.no_grad()
def _nearest(reader: TableReader, row: int, top: int, by: str) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Return the best scores with a node, and the rows of those nodes; without the node itself."""
    query = reader.gather(np.array([row]))
    best, rows = torch.empty(0), np.empty(0, np.int64)
    for piece in reader.pieces():
        if by == DECODER:
            found = torch.empty(1, len(piece.places))
            reader.kind.matrix(query, piece.values, found)
            scores = found[0]
        else:
            scores = NEARNESS[by](piece.values, query)
        scores[torch.from_numpy(piece.places == row)] = -torch.inf
        best, chosen = torch.cat([best, scores]).topk(min(top, len(best) + len(scores)))
        rows = np.concatenate([rows, piece.places])[chosen.numpy()]
    is_other = rows != row
    return best[torch.from_numpy(is_other)], rows[is_other]
