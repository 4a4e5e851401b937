"""A knowledge graph by an R-GCN encoder with a DistMult decoder, next to `diskhop embed` (issue 39).

    python benchmarks/rgcn_triples.py [--source ../shared/data/fb15k-237]

Relations and their inverses are the edge types of one node type. In every step, messages use the training edges without
those that the step scores, nor their inverses; in evaluation, all training edges. `diskhop embed --preset fb15k-237
--model distmult` is the figure next to it: its ranks are the same, filtered, among all nodes, both sides.
`--layers 0` trains the decoder on the learned rows alone, which is DistMult by the same loss and negatives.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from diskhop.embedding.ranking.evaluate import evaluate
from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges, Protocol
from diskhop.embedding.ranking.reader import NodePiece
from diskhop.nn.typed.block import RelationLists, TypedBlock
from diskhop.nn.typed.models import TypedOptions, build_typed_model
from diskhop.nn.typed.schema import TypedSchema

NODE = "entity"
GROUP_BYTES = 256 << 20


class Model(nn.Module):
    """Learned rows, an R-GCN over them, and a weight per relation and direction."""

    def __init__(self, num_nodes: int, num_relations: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.empty(num_nodes, options.dim).normal_(std=options.dim**-0.5))
        self.weights = nn.Parameter(torch.empty(2 * num_relations, options.dim).normal_(std=options.dim**-0.5))
        self.ends = [(NODE, f"r{number}", NODE) for number in range(2 * num_relations)]
        self.encoder = None
        if options.layers:
            wanted = TypedOptions(
                hidden=options.dim, layers=options.layers, num_bases=options.bases, dropout=options.dropout
            )
            schema = TypedSchema({NODE: 0}, tuple(self.ends))
            self.encoder = build_typed_model("rgcn", schema, NODE, options.dim, wanted)
        self.num_layers, self.dropout = options.layers, options.dropout

    def forward(self, triples: NDArray[np.int64]) -> Tensor:
        """Return the embeddings of all nodes. triples: edges of messages, without inverses."""
        if self.encoder is None:
            return self.rows
        block = whole_block(triples, len(self.rows), self.ends, self.num_layers)
        return self.rows + functional.dropout(self.encoder({NODE: self.rows}, block), self.dropout, self.training)


def whole_block(triples: NDArray[np.int64], num_nodes: int, ends: list[Any], num_layers: int) -> TypedBlock:
    """Return a block of all nodes, which every layer computes. triples: head, relation and tail, (edges, 3)."""
    heads, relations, tails = triples.T
    num_relations = len(ends) // 2
    sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    types = np.concatenate([relations, relations + num_relations])
    order = np.lexsort((sources, targets, types))
    bounds = np.searchsorted(types[order], np.arange(len(ends) + 1))
    lists, num_edges = {}, {}
    for number, name in enumerate(ends):
        own = order[bounds[number] : bounds[number + 1]]
        indptr = np.zeros(num_nodes + 1, np.int32)
        np.cumsum(np.bincount(targets[own], minlength=num_nodes), out=indptr[1:])
        lists[name] = RelationLists(torch.from_numpy(indptr), torch.from_numpy(sources[own].astype(np.int32)))
        num_edges[name] = (len(own), *[0] * num_layers)
    return TypedBlock({NODE: (num_nodes, *[0] * (num_layers + 1))}, num_edges, lists, by_hop=False)


class Dot:
    """Scores of queries and nodes; see Similarity."""

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """Write the scores of all pairs to out."""
        torch.mm(queries, nodes.t(), out=out)


class Reader:
    """Embeddings in memory; see NodeReader."""

    kind = Dot()

    def __init__(self, embeddings: Tensor, weights: Tensor) -> None:
        self._embeddings, self._weights = embeddings, weights
        self.num_nodes, self.dim = embeddings.shape

    def gather(self, places: NDArray[np.int64]) -> Tensor:
        """See NodeReader."""
        return self._embeddings[torch.from_numpy(places)]

    def pieces(self) -> Iterator[NodePiece]:
        """See NodeReader."""
        yield NodePiece(np.arange(self.num_nodes), self._embeddings)

    def queries(self, side: int, given: Tensor, relations: NDArray[np.int64] | None) -> Tensor:
        """See NodeReader. Sources are the answers of inverse relations."""
        assert relations is not None
        return given * self._weights[torch.from_numpy(relations + side * (len(self._weights) // 2))]


@torch.no_grad()
def measure(model: Model, data: Any, part: str) -> dict[str, Any]:
    """Rank the edges of a part, filtered, among all nodes, both sides."""
    model.eval()
    reader: Any = Reader(model(data["train"]), model.weights)
    parts = [data[each] for each in ("train", "valid", "test")]
    known = KnownEdgeBlocks(lambda: iter([tuple(each.T) for each in parts]), len(model.weights) // 2)
    heads, relations, tails = (np.ascontiguousarray(each) for each in data[part].T)
    edges = MeasuredEdges(heads, relations, tails, len(heads))
    protocol = Protocol(filtered=True, candidates=0, sides="both", ties="realistic")
    return evaluate(reader, edges, protocol, known, np.empty((2, 0), np.int64), GROUP_BYTES)


def train_epoch(
    model: Model, optimizer: torch.optim.Optimizer, triples: Any, options: Any, random: np.random.Generator
) -> float:
    """Train one epoch; return its mean loss."""
    model.train()
    total = 0.0
    order = random.permutation(len(triples))
    for start in range(0, len(order), options.batch_size):
        chosen = order[start : start + options.batch_size]
        is_message = np.ones(len(triples), bool)
        is_message[chosen] = False
        embeddings = model(triples[is_message])
        heads, relations, tails = map(torch.from_numpy, np.ascontiguousarray(triples[chosen].T))
        queries = torch.cat(
            [
                embeddings[heads] * model.weights[relations],
                embeddings[tails] * model.weights[relations + len(model.weights) // 2],
            ]
        )
        queries = functional.dropout(queries, options.query_dropout)
        answers = torch.cat([tails, heads])
        negatives = torch.from_numpy(random.choice(len(embeddings), options.negatives, replace=False))
        scores = queries @ embeddings[negatives].t()
        scores = scores.masked_fill(answers[:, None] == negatives[None, :], -torch.inf)
        own = (queries * embeddings[answers]).sum(1, keepdim=True)
        loss = functional.cross_entropy(torch.cat([own, scores], 1), torch.zeros(len(own), dtype=torch.int64))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        total += float(loss.detach()) * len(chosen)
    return total / len(order)


def main() -> int:
    """Train and print filtered metrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = Path(__file__).parents[2] / "shared" / "data" / "fb15k-237"
    parser.add_argument("--source", type=Path, default=source, help="folder with data.npz: train, valid, test triples")
    for name, value in (("epochs", 30), ("dim", 128), ("layers", 1), ("bases", 4), ("batch-size", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("negatives", 2000), ("seed", 0), ("threads", 2), ("every", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, rate in (("lr", 0.005), ("dropout", 0.2), ("query-dropout", 0.2)):
        parser.add_argument(f"--{name}", type=float, default=rate)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    stored = np.load(options.source / "data.npz")
    data = {part: stored[part] for part in ("train", "valid", "test")}
    model = Model(int(stored["num_entities"]), int(stored["num_relations"]), options)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    random, began = np.random.default_rng(options.seed), time.perf_counter()
    best: tuple[float, dict[str, Any]] = 0.0, {}
    show = partial(print, flush=True)
    for epoch in range(options.epochs):
        loss = train_epoch(model, optimizer, data["train"], options, random)
        if (epoch + 1) % options.every == 0 or epoch + 1 == options.epochs:
            valid = measure(model, data, "valid")["mrr"]
            show(f"epoch {epoch + 1}: loss {loss:.3f}, valid MRR {valid:.4f}, {time.perf_counter() - began:.0f} s")
            if valid > best[0]:
                best = valid, measure(model, data, "test")
                show(f"test MRR {best[1]['mrr']:.4f}")
    tested = best[1]
    show(f"test MRR {tested['mrr']:.4f}, hits@1 {tested['hits_at_1']:.4f}, hits@10 {tested['hits_at_10']:.4f}")
    show(f"protocol {tested['protocol']}; validation MRR {best[0]:.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
