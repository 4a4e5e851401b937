"""Options of training on a graph with several types of nodes or edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.config.options import option, option_fields
from diskhop.config.parse import parse_words
from diskhop.config.rules import COUNT_OR_NONE, between, one_of
from diskhop.config.sampled import LEARNED, MADE_FEATURES, SampledConfig
from diskhop.config.train import IGNORE
from diskhop.errors import ConfigError

DEGREE, _, RANDOM = MADE_FEATURES
SUM, ATTEND = RELATION_SUMS = ("sum", "attend")
# What such a run cannot do yet with types: the value that says: not asked for.
_WITHOUT: dict[str, object] = {
    "reuse": False,
    "warm_start": "",
    "weighted": False,
    "edge_weights": IGNORE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedConfig(SampledConfig):
    """A run of rgcn, rgat, hgt, simple-hgn or hetero-sage; one layer per hop."""

    SUBJECT: ClassVar[str] = "graphs with several types"
    KNOWN_FEATURES: ClassVar[tuple[str, ...]] = ("", LEARNED, DEGREE, RANDOM)
    HAS_TYPES: ClassVar[bool] = True

    target: str = option(
        help="Node type whose labels are learned; with --task link the edge type to learn, as user,buys,item.",
        panel="Model",
        metavar="TYPE",
        shown="the only type with labels",
    )
    reverse: tuple[str, ...] = option(
        help="Edge types, separated by commas, that messages follow in both directions; 'none' for none.",
        parse=parse_words,
        panel="Sampling",
        metavar="TYPE,TYPE",
        shown="all without an edge type in the other direction",
    )
    type_fanout: tuple[str, ...] = option(
        (),
        help="Neighbours sampled per hop of one edge type, as paper__cites__paper=15,10; repeat for several. With "
        "--sampler hgt: nodes per hop of one node type, as paper=512,256.",
        panel="Sampling",
        metavar="TYPE=N,N",
        shown="as --fanout",
    )
    num_bases: int = option(
        0,
        help="Matrices that those of all relations combine (rgcn, rgat); 0: each its own.",
        rule=COUNT_OR_NONE,
        panel="Model",
    )
    num_blocks: int = option(
        0, help="Diagonal blocks of a relation's matrix (rgcn); 0: whole matrices.", rule=COUNT_OR_NONE, panel="Model"
    )
    relations: str = option(
        SUM,
        help="How hetero-sage combines a node's relations: sum or attend.",
        rule=one_of(RELATION_SUMS),
        panel="Model",
    )
    embedding_lr: float = option(
        0.05,
        help="Learning rate of learned features (sparse Adagrad).",
        rule=between(0, 10, 0.05),
        panel="Optimisation",
    )

    def check(self) -> None:
        """Check what options mean together."""
        check_typed(self)
        SampledConfig.check(self)


def check_typed(config: SampledConfig) -> None:
    """Refuse options that graphs with several types do not have."""
    for name, usual in _WITHOUT.items():
        if getattr(config, name) != usual:
            flag = option_fields(type(config))[name].main_flag
            raise ConfigError(f"{flag} is for graphs of one type of nodes and of edges: remove it")
