"""Options of training on hop tables along paths, in a graph with several types of nodes or edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.config.hop import HopConfig
from diskhop.config.options import like, option
from diskhop.config.train import IGNORE
from diskhop.config.typed import TypedConfig
from diskhop.errors import ConfigError

# The only values of options that are of other tables: every step of a path is a mean over edges as they are stored.
FIXED: dict[str, object] = {"operators": ("sign",), "direction": "in", "edge_weights": IGNORE, "warm_start": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedHopConfig(HopConfig):
    """A run of sgc, sign or hoga on features of the target's nodes, and their means along paths that lead to it."""

    SUBJECT: ClassVar[str] = "sgc, sign and hoga of graphs with several types"

    target: str = like(TypedConfig, "target")
    hops: int = like(HopConfig, "hops", help="Steps of the longest path, where none is named.")
    reverse: tuple[str, ...] = like(TypedConfig, "reverse")
    paths: tuple[str, ...] = option(
        help="Path of types that features are averaged along, as author,writes,paper; repeat for several.",
        flag="--path",
        panel="Sampling",
        metavar="TYPE,RELATION,TYPE",
        shown="all of up to --hops steps",
    )

    def check(self) -> None:
        """Check what options mean together."""
        HopConfig.check(self)
        for name, only in FIXED.items():
            if getattr(self, name) != only:
                flag = "--operator" if name == "operators" else f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag} is for hop tables of graphs of one type: remove it")
