"""Features that stand in for those of a graph without any.

- *degree*: a constant and log(1 + in-degree); 2 columns.
- *onehot*: one column per node; for small graphs.
- *random*: 64 values per node, of mean 0 and variance 1, the same in every batch.
- *none*: no columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diskhop.config.options import require_known
from diskhop.config.sampled import MADE_FEATURES
from diskhop.errors import ConfigError

DEGREE, ONEHOT, RANDOM = MADE_FEATURES
NONE = "none"
# A row of the most columns takes 16 KiB.
MOST_ONEHOT_NODES = 4096
_RANDOM_DIM = 64


@dataclass(frozen=True, slots=True)
class MadeFeatures:
    """Features that are made for each batch.

    kind: degree, onehot, random or none.
    dim: float32 columns.
    seed: random seed of the kind 'random'.
    """

    kind: str = DEGREE
    dim: int = 2
    seed: int = 0


def made_features(kind: str, path: Path, num_nodes: int, seed: int) -> MadeFeatures:
    """Return features of a kind for a graph. Raises ConfigError for an unknown kind, and for too many nodes.

    path: the dataset, for errors.
    """
    require_known("kind of features", kind, (*MADE_FEATURES, NONE))
    if kind == ONEHOT and num_nodes > MOST_ONEHOT_NODES:
        raise ConfigError(
            f"{path}: has {num_nodes:,} nodes, features 'onehot' are for at most {MOST_ONEHOT_NODES:,}; "
            f"use --features {RANDOM}, in Python features='{RANDOM}'"
        )
    dims = {DEGREE: 2, ONEHOT: num_nodes, RANDOM: _RANDOM_DIM, NONE: 0}
    return MadeFeatures(kind, dims[kind], seed)
