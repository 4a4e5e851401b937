"""Options of training on links: which edges are held out, what scores a pair of nodes, and what negatives are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from diskhop.config.embed import EVAL_TIES, EmbedConfig
from diskhop.config.learning import CROSS_ENTROPY
from diskhop.config.options import like, option, require_known
from diskhop.config.rules import COUNT, Rule, one_of
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import ARRANGING
from diskhop.config.train import LINK
from diskhop.errors import ConfigError

DECODERS = ("dot", "cosine", "distmult", "mlp")
CONTRASTIVE, MARGIN = "contrastive", "margin"
LINK_LOSSES = (CROSS_ENTROPY, CONTRASTIVE, MARGIN)
PAIR_METRICS, RANK_METRICS = ("auc", "ap"), ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
LINK_METRICS = (*PAIR_METRICS, *RANK_METRICS)
BINARY, TRIPLET = MODES = ("binary", "triplet")
DRAWS = ("uniform", "degree")
DEFAULT_SHARES = "0.8,0.1,0.1"
_ROUNDING = 1e-6
# Options of node tasks, which would have no effect.
_NODE_OPTIONS = ("focal_gamma", "class_weights", "label_smoothing", "reuse", "warm_start", "keep_optimizer")


def parse_shares(text: str) -> tuple[float, float, float] | None:
    """Return the shares of training, validation and test edges; None for what is no list of numbers."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return (shares[0], shares[1], shares[2]) if _are_shares(shares) else None


def _are_shares(shares: list[float]) -> bool:
    is_three = len(shares) == 3 and shares[0] > 0 and all(0 <= each <= 1 for each in shares)
    return is_three and math.isclose(sum(shares), 1, abs_tol=_ROUNDING)


def _is_split(text: str) -> bool:
    """Accept shares that sum to 1, and anything but numbers as the name of a folder."""
    parts = text.split(",")
    try:
        shares = [float(part) for part in parts]
    except ValueError:
        return bool(text)
    return _are_shares(shares)


def _split_text(text: str) -> str:
    """Return shares as they are, and the path of a folder as an absolute one: a run may be repeated elsewhere."""
    try:
        return ",".join(repr(float(part)).removesuffix(".0") for part in text.split(","))
    except ValueError:
        return str(Path(text).absolute())


_SPLIT = Rule(
    holds=_is_split,
    text="shares of training, validation and test edges that sum to 1, or a folder with valid.npy and test.npy",
    example=".8,.1,.1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig(SampledConfig):
    """A run of sage, gcn or gat that learns which nodes have edges."""

    SUBJECT: ClassVar[str] = "--task link"
    KNOWN_LOSSES: ClassVar[tuple[str, ...]] = LINK_LOSSES

    loss: str = like(
        SampledConfig,
        "loss",
        help="Edges against negatives: cross-entropy, contrastive or margin.",
        shown="cross-entropy",
    )
    metric: str = like(
        SampledConfig, "metric", help="Held-out edges by auc, ap, mrr, hits_at_1, hits_at_3 or hits_at_10."
    )
    batch_size: int = like(SampledConfig, "batch_size", help="Edges per batch.")
    eval_batch_size: int = like(SampledConfig, "eval_batch_size", help="Edges per batch.")
    split: int = like(SampledConfig, "split", 0, help="Number of the random split of edges.")
    decoder: str = option(
        "dot",
        help="Score of a pair of nodes: dot, cosine, distmult or mlp (of the product of their embeddings).",
        panel="Model",
    )
    dim: int = like(EmbedConfig, "dim", help="Dimension of embeddings.", shown="as --hidden")
    margin: float = like(EmbedConfig, "margin", 1.0, help="Margin (loss margin).")
    link_split: str = option(
        DEFAULT_SHARES,
        help="Shares of training, validation and test edges, or a folder with valid.npy and test.npy to hold out. An "
        "edge and its opposite stay together.",
        rule=_SPLIT,
        parse=_split_text,
        metavar="X,X,X",
        panel="Evaluation",
    )
    negatives: int = like(EmbedConfig, "negatives", 1, help="Negatives per edge.")
    neg_sampling: str = option(
        help="Negatives: binary (pairs of random nodes) or triplet (an edge with another destination).",
        rule=one_of(MODES),
        panel="Sampling",
        shown="binary, for contrastive and margin triplet",
    )
    negative_draws: str = option(
        DRAWS[0],
        help="Draw the nodes of negatives uniformly or by in-degree.",
        rule=one_of(DRAWS),
        panel="Sampling",
    )
    keep_supervision: bool = option(
        False,
        help="Let messages use the edges that a batch is scored on, as PyG does: the answer then leaks in training.",
        panel="Sampling",
    )
    eval_candidates: int = like(
        EmbedConfig,
        "eval_candidates",
        1000,
        help="Random nodes that each edge is ranked against (mrr and hits).",
        rule=COUNT,
    )
    eval_filtered: bool = like(EmbedConfig, "eval_filtered", False)
    eval_ties: str = like(EmbedConfig, "eval_ties", "realistic", rule=one_of(EVAL_TIES))

    def check(self) -> None:
        """Check names, and what options mean together."""
        if self.sampler in ARRANGING:
            raise ConfigError(
                f"--sampler {self.sampler} arranges its own batches, and --task link needs the ends of edges: remove it"
            )
        SampledConfig.check(self)
        if self.task != LINK:
            raise ConfigError(f"options of links need --task {LINK}, got {self.task}: add it, or remove them")
        require_known("decoder", self.decoder, DECODERS)
        require_known("metric", self.metric, LINK_METRICS)
        if self.margin != type(self).__dataclass_fields__["margin"].default and self.loss != MARGIN:
            raise ConfigError(f"--margin needs --loss margin, got {self.loss}: add it, or remove --margin")
        for name in _NODE_OPTIONS:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ConfigError(f"--{name.replace('_', '-')} is for tasks on nodes, not for --task link: remove it")
