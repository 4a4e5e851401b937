"""COMET, the order of MariusGNN (Waleffe et al., 2023, section 5): which partitions of nodes are resident, and when.

Partitions are grouped at random into *logical* ones, of which two are resident. From one state to the next one logical
partition is swapped, and every two of them meet in one state: no order has fewer swaps. Groups are others in every
epoch, so that over epochs any nodes may be in a batch together.
"""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.errors import ConfigError
from diskhop.policies.orderings import State, beta_states

# A bit each in a signed number of 64 bits.
MOST_PARTITIONS = 62


def check_comet(num_partitions: int, num_resident: int) -> None:
    """Raise ConfigError for numbers that make no logical partitions."""
    if not 1 <= num_partitions <= MOST_PARTITIONS:
        raise ConfigError(
            f"node partitions must be from 1 to {MOST_PARTITIONS}, got {num_partitions}; use --node-partitions 16"
        )
    if num_resident >= num_partitions:
        return
    is_pair = num_resident >= 2 and num_resident % 2 == 0 and num_partitions % (num_resident // 2) == 0
    if not is_pair:
        raise ConfigError(
            f"resident partitions must be twice a divisor of the {num_partitions} node partitions, got {num_resident}; "
            "use --resident-partitions 2"
        )


def comet_states(num_partitions: int, num_resident: int, order: Sequence[int]) -> list[State]:
    """Return the resident partitions of each state, sorted.

    order: all partitions; consecutive ones make a logical partition.
    """
    check_comet(num_partitions, num_resident)
    if num_resident >= num_partitions:
        return [tuple(range(num_partitions))]
    size = num_resident // 2
    groups = [order[first : first + size] for first in range(0, num_partitions, size)]
    return [
        tuple(sorted(int(each) for group in state for each in groups[group])) for state in beta_states(len(groups), 2)
    ]
