"""Options of learning: the loss, and the steps of the optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from diskhop.config.options import option, require_known
from diskhop.config.rules import (
    COUNT,
    COUNT_OR_NONE,
    FRACTION,
    MOST_COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    Rule,
    between,
)
from diskhop.errors import ConfigError

BALANCED = "balanced"
CROSS_ENTROPY, FOCAL, MSE, MAE = LOSSES = ("cross-entropy", "focal", "mse", "mae")
CONSTANT, COSINE, PLATEAU = SCHEDULES = ("constant", "cosine", "plateau")


def parse_class_weights(text: str) -> tuple[float, ...] | None:
    """Return the weights that a text lists, None for '' and 'balanced'. Raises ValueError."""
    return None if text in ("", BALANCED) else tuple(float(part) for part in text.split(","))


def _are_class_weights(text: str) -> bool:
    try:
        weights = parse_class_weights(text)
    except ValueError:
        return False
    return weights is None or all(math.isfinite(weight) and weight > 0 for weight in weights)


_CLASS_WEIGHTS = Rule(
    holds=_are_class_weights, text=f"{BALANCED}, or numbers above 0 separated by commas", example="1,1,2.5"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningConfig:
    """Options of the loss and of the optimiser."""

    KNOWN_LOSSES: ClassVar[tuple[str, ...]] = LOSSES

    lr: float = option(
        help="Learning rate (Adam).",
        rule=POSITIVE,
        panel="Optimisation",
        shown="0.003, for sgc 0.02, or what suits the graph",
    )
    weight_decay: float = option(
        0.0,
        help="Weight decay (Adam).",
        rule=NOT_NEGATIVE,
        panel="Optimisation",
        shown="0.0, or what suits the graph",
    )
    loss: str = option(
        help="Loss: cross-entropy or focal (classification, multilabel), mse or mae (regression).",
        panel="Optimisation",
        shown="cross-entropy, for regression mse",
    )
    focal_gamma: float = option(
        2.0,
        help="Power of --loss focal: larger values look at hard nodes more.",
        rule=POSITIVE,
        panel="Optimisation",
    )
    class_weights: str = option(
        "",
        help="Weight of each class, as 1,1,2.5, or balanced: rare classes weigh more. For multilabel, the weight of "
        "each label's positives.",
        rule=_CLASS_WEIGHTS,
        panel="Optimisation",
        metavar="W,W",
        shown="all 1",
    )
    label_smoothing: float = option(
        0.0, help="Share of a label that is spread over all classes.", rule=FRACTION, panel="Optimisation"
    )
    lr_schedule: str = option(
        CONSTANT,
        help="Learning rate schedule: constant, cosine (0 at the end of the last epoch) or plateau (lower after "
        "validations that are not better).",
        panel="Optimisation",
    )
    warmup: int = option(
        0,
        help="Steps over which the learning rate first rises from 0.",
        rule=COUNT_OR_NONE,
        panel="Optimisation",
        metavar="N",
    )
    plateau_patience: int = option(
        5,
        help="Validations in a row that are not better before --lr-schedule plateau lowers the learning rate.",
        rule=COUNT,
        panel="Optimisation",
        metavar="N",
    )
    plateau_factor: float = option(
        0.5, help="Factor of the learning rate on a plateau.", rule=between(0.001, 0.999, 0.5), panel="Optimisation"
    )
    clip_norm: float = option(
        0.0, help="Largest norm of a step's gradients; 0 for any.", rule=NOT_NEGATIVE, panel="Optimisation"
    )
    accumulate: int = option(
        1,
        help="Batches per step: their gradients are added up, as if they were one larger batch.",
        rule=between(1, MOST_COUNT, 4),
        panel="Optimisation",
        metavar="N",
    )

    def check(self) -> None:
        """Check names, and what options mean together."""
        require_known("loss", self.loss, self.KNOWN_LOSSES)
        require_known("learning rate schedule", self.lr_schedule, SCHEDULES)
        if self.focal_gamma != 2.0 and self.loss != FOCAL:
            raise ConfigError(f"--focal-gamma needs --loss focal, got {self.loss}: add it, or remove --focal-gamma")
        if self.label_smoothing and self.loss != CROSS_ENTROPY:
            raise ConfigError(f"--label-smoothing needs --loss cross-entropy, got {self.loss}: remove one of them")
        if self.class_weights and self.loss not in (CROSS_ENTROPY, FOCAL):
            raise ConfigError(f"--class-weights needs --loss cross-entropy or focal, got {self.loss}: remove it")
