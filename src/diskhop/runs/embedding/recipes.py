"""Choice of the options that suit a knowledge graph: one pure function of its sizes and the model.

Rules were chosen on CoDEx-S by its validation (`benchmarks/defaults.py`), and follow the presets of other graphs.
`docs/log.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from diskhop.runs.choices import Default

# Larger graphs would take hours with the small batches that small ones need.
_MOST_EDGES = 10_000_000
_BATCH_SIZE, _CHUNK_SIZE, _NEGATIVES, _DIM = 2000, 250, 2000, 256
# Below, batches are half as large and steps twice: otherwise there would be few steps.
_FEW_EDGES = 100_000
_MANY_EDGES_PER_NODE = 8
_STEPS, _FEWEST_EPOCHS, _MOST_EPOCHS = 2700, 10, 40
_MODELS = ("complex", "distmult")
# Values of embeddings up to which ten thousand edges are ranked among all nodes in some seconds: 5e11 operations.
_MOST_RANKED_VALUES = 25_000_000


def choose_embedding_defaults(
    num_nodes: int, num_edges: int, num_relations: int, model: str, given: Mapping[str, Any]
) -> Iterator[Default]:
    """Yield the options that a graph asks for; all others have their usual values.

    As Lacroix et al. (2018) train ComplEx: reciprocal relations, N3 and Adagrad by elements, with sampled negatives.

    given: options that have a value already, by name; those that depend on them follow.
    """
    if not num_relations or model not in _MODELS or num_edges > _MOST_EDGES:
        return
    why = "usual for knowledge graphs (Lacroix et al., 2018)"
    has_few = num_edges < _FEW_EDGES
    usual_batch = max(1, min(_BATCH_SIZE // 2 if has_few else _BATCH_SIZE, num_edges // 20))
    batch_size, dim = given.get("batch_size", usual_batch), given.get("dim", _DIM)
    usual_epochs = min(max(_FEWEST_EPOCHS, _STEPS * batch_size // max(num_edges, 1)), _MOST_EPOCHS)
    epochs = given.get("epochs", usual_epochs)
    yield Default("reciprocal", True, why)
    is_dense = num_edges >= _MANY_EDGES_PER_NODE * num_nodes
    if not has_few:
        yield Default("n3", 0.15, why)
    elif is_dense:
        yield Default("n3", 0.05, "dropout regularises as well")
        yield Default("dropout", 0.3, f"{num_edges:,} edges are few, and each node has many")
    else:
        yield Default("n3", 0.3, f"{num_edges:,} edges are few, and so are each node's")
    yield Default("adagrad", "element", why)
    if has_few:
        yield Default("lr", 0.2, f"{num_edges:,} edges make few steps")
    yield Default("init_scale", 0.01, "small compared with trained values")
    yield Default("lr_schedule", "linear", f"ends at 0 after {epochs} epochs")
    yield Default("dim", dim, "few nodes, many relations between them")
    yield Default("batch_size", batch_size, f"of {num_edges:,} edges, with relations")
    yield Default("chunk_size", min(batch_size, _CHUNK_SIZE), "edges that share negatives")
    yield Default("negatives", min(_NEGATIVES, max(1, num_nodes)), "per side, shared by a chunk")
    yield Default("epochs", epochs, f"{-(-num_edges // batch_size) * epochs:,} steps")
    candidates = given.get("eval_candidates")
    if candidates is None and num_nodes * dim <= _MOST_RANKED_VALUES:
        candidates = 0
        yield Default("eval_candidates", candidates, "all nodes, as in publications: there are few")
    if candidates is not None and (candidates == 0 or candidates >= num_nodes):
        yield Default("eval_filtered", True, "as in publications, which rank all nodes")
