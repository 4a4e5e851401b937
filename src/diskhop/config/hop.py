"""Options of training on hop tables, which are computed before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.config.options import AUTO, option
from diskhop.config.rules import MOST_COUNT, Rule, between, one_of
from diskhop.config.train import CPU, DEPTH, USE, TrainConfig
from diskhop.errors import ConfigError

DIRECTIONS = ("in", "out", "both")
SHUFFLES = (AUTO, "rows", "chunks")
ON_DEVICE = "device"
PLACEMENTS = (AUTO, ON_DEVICE, "memory", "disk")
TABLE_DTYPES = ("float32", "float16", "bfloat16")
WEIGHTS_NEED_IN = (
    "--edge-weights use needs --direction in, got {}: weights are those of the edges that a node receives; use "
    "--direction in, or --edge-weights ignore"
)
_SOME_OPERATORS = Rule(
    holds=lambda operators: len(operators) > 0, text="one operator or several", example=["sign", "ppr:alpha=0.1"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopConfig(TrainConfig):
    """A run of sgc, sign or hoga, on hop tables that are computed before training."""

    SUBJECT: ClassVar[str] = "sgc, sign, hoga"

    shared_map: bool = option(
        False, help="Embed all hops by one linear map, as in the paper of hoga (hoga only).", panel="Model"
    )
    hops: int = option(help="Hops over which features are aggregated.", rule=DEPTH, panel="Sampling", shown="3")
    operators: tuple[str, ...] = option(
        help="Aggregation of hop tables: sgc, sign, row, ppr:alpha=0.1 or heat:t=3; repeat for several.",
        rule=_SOME_OPERATORS,
        flag="--operator",
        panel="Sampling",
        shown="sgc for sgc, else sign",
    )
    direction: str = option(
        help="Neighbours that hop tables aggregate: along edges in, out, or both.",
        rule=one_of(DIRECTIONS),
        panel="Sampling",
        shown="in",
    )
    dtype: str = option(
        help="Number type of stored hop tables.",
        rule=one_of(TABLE_DTYPES),
        panel="Storage",
        shown="float16 for features of float16, else float32",
    )
    shuffle: str = option(
        help="Shuffling of hop tables: single rows, or chunks of consecutive rows.",
        rule=one_of(SHUFFLES),
        panel="Storage",
        shown="auto",
    )
    chunk_rows: int = option(
        help="Rows per shuffled chunk.",
        rule=between(1, MOST_COUNT, 1000),
        panel="Storage",
        shown="as --batch-size, or fewer where neighbouring rows share a class",
    )
    placement: str = option(
        help="Where hop tables are read from during training; device: the memory of --device.",
        rule=one_of(PLACEMENTS),
        panel="Storage",
        shown="auto",
    )

    def check(self) -> None:
        """Check what options mean together."""
        TrainConfig.check(self)
        if self.shared_map and self.model != "hoga":
            raise ConfigError(f"--shared-map has no effect with --model {self.model}; remove it or use --model hoga")
        if self.placement == ON_DEVICE and self.device == CPU:
            raise ConfigError("--placement device needs a GPU: add --device cuda, or use --placement memory")
        if self.edge_weights == USE and self.direction != "in":
            raise ConfigError(WEIGHTS_NEED_IN.format(self.direction))
