"""Options of training on the edges of one type, in a graph with several types of nodes or edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from diskhop.config.link import LinkConfig
from diskhop.config.options import like
from diskhop.config.sampled import LEARNED
from diskhop.config.typed import RANDOM, SUM, TypedConfig, check_typed


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedLinkConfig(LinkConfig):
    """A run of rgcn, rgat, hgt, simple-hgn or hetero-sage that learns which nodes have edges of one type."""

    SUBJECT: ClassVar[str] = "--task link of graphs with several types"
    KNOWN_FEATURES: ClassVar[tuple[str, ...]] = ("", LEARNED, RANDOM)
    HAS_TYPES: ClassVar[bool] = True

    target: str = like(
        TypedConfig, "target", help="Edge type to learn, as user,buys,item.", shown="the only type of edges"
    )
    reverse: tuple[str, ...] = like(TypedConfig, "reverse")
    type_fanout: tuple[str, ...] = like(TypedConfig, "type_fanout", ())
    num_bases: int = like(TypedConfig, "num_bases", 0)
    num_blocks: int = like(TypedConfig, "num_blocks", 0)
    relations: str = like(TypedConfig, "relations", SUM)
    embedding_lr: float = like(TypedConfig, "embedding_lr", 0.05)

    def check(self) -> None:
        """Check what options mean together."""
        check_typed(self)
        LinkConfig.check(self)


# A run on nodes or on edges of a graph with several types.
AnyTypedConfig: TypeAlias = TypedConfig | TypedLinkConfig
