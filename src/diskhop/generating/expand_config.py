"""Options of an expanded graph: one frozen value, validated once."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.config.options import option, validate
from diskhop.config.rules import between

# Kind of graph on the command line.
EXPAND = "expand"
_MOST_COPIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandConfig:
    """Options of an expansion."""

    factor: int = option(
        4,
        help="Copies of each node (expand). Each edge becomes 3 N - 2 edges.",
        rule=between(2, _MOST_COPIES, 4),
        panel="Graph",
        metavar="N",
    )

    def __post_init__(self) -> None:
        validate(self)
