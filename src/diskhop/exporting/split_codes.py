"""The parts of a split as one code per node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.exporting.columns import NodeColumns


def split_codes(nodes: NodeColumns, number: int) -> NDArray[np.uint8]:
    """Compute codes of nodes by place, with one bit per part of the split."""
    codes = np.zeros(nodes.count, np.uint8)
    for bit, part in enumerate(SPLIT_NAMES):
        if nodes.split_length(part, number):
            for places, _ in nodes.split(part, number):
                codes[places] |= np.uint8(1 << bit)
    return codes
