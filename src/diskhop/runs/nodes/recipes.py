"""Choice of the options that suit a graph: one pure function of a few facts and the model.

Most rules were chosen by validation on Cora, Minesweeper, Tolokers or Open English WordNet (`benchmarks/defaults.py`),
often on one graph and one seed; the steps of sgc with few labels follow its paper. `docs/log.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator

from diskhop.config.sampled import ALL_NEIGHBORS, MODELS_WITHOUT_SELF_TERM
from diskhop.nn.models import HOP_MODELS
from diskhop.runs.choices import Default
from diskhop.runs.nodes.graph_facts import GraphFacts

MOST_EDGES_FOR_ALL_NEIGHBORS = 2_000_000
# Labels are few if one batch has all of them, and they are a small share of the nodes.
_MOST_FEW_LABELS, _SHARE_OF_FEW_LABELS = 1000, 0.1
# Bags of words: zeros but for a few counts.
_MOST_FILLED = 0.15
_FEW_COLUMNS = 10
_USUAL_BATCH = 1000
_LINEAR_STEPS, _FEWEST_LINEAR_EPOCHS, _MOST_LINEAR_EPOCHS = 1500, 30, 100


def choose_defaults(facts: GraphFacts, model: str) -> Iterator[Default]:
    """Yield the options that a graph asks for; all others have their usual values."""
    is_small = facts.num_edges <= MOST_EDGES_FOR_ALL_NEIGHBORS
    has_few_labels = facts.num_train <= _MOST_FEW_LABELS and facts.num_train <= _SHARE_OF_FEW_LABELS * facts.num_nodes
    if 0 < facts.filled < _MOST_FILLED and not facts.has_negative:
        words = f"{facts.filled:.1%} of the feature values are not 0, like counts of words"
        yield Default("normalize_input", True, words)
        if model == "sgc":
            yield Default("lr", 0.2, "inputs that sum to 1 are small")
            yield Default("weight_decay", 5e-5, "one linear layer on many columns")
    if model == "sgc":
        yield from _for_one_linear_layer(facts, has_few_labels)
    elif has_few_labels:
        yield from _for_few_labels(facts, model, is_small)
    if 0 < facts.num_columns <= _FEW_COLUMNS and is_small and model not in HOP_MODELS:
        why = f"with {facts.num_columns} columns, what tells nodes apart is around them"
        yield Default("layers", 5, why)
        yield Default("hidden", 64, why)
        yield Default("dropout", 0.2, "few columns hardly overfit")
        way = "self_term" if model in MODELS_WITHOUT_SELF_TERM else "residual"
        yield Default(way, True, "lets many layers train")


def _for_one_linear_layer(facts: GraphFacts, has_few_labels: bool) -> Iterator[Default]:
    """Train until it has converged: a linear layer hardly overfits."""
    num_batches = max(1, -(-facts.num_train // _USUAL_BATCH))
    epochs = min(max(_FEWEST_LINEAR_EPOCHS, -(-_LINEAR_STEPS // num_batches)), _MOST_LINEAR_EPOCHS)
    yield Default("epochs", epochs, "one linear layer converges slowly and hardly overfits")
    if has_few_labels:
        yield Default("eval_every", epochs, "the last model: the best of many validations would be so by chance")
    else:
        yield Default("hops", 4, "one linear layer sees no further than its hops")


def _for_few_labels(facts: GraphFacts, model: str, is_small: bool) -> Iterator[Default]:
    why = f"{facts.num_train} training nodes are few"
    yield Default("lr", 0.01, why)
    yield Default("weight_decay", 5e-4, why)
    yield Default("input_dropout", 0.5, why)
    if model in HOP_MODELS:
        yield Default("norm", "batch", why)
        yield Default("layers", 1, why)
        return
    yield Default("norm", "none", why)
    if is_small:
        yield Default("fanout", (ALL_NEIGHBORS,), "the graph is small, and its training nodes are few")
