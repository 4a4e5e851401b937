"""Typed graphs with links that can be learned: users buy items of their own group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset

NUM_USERS, NUM_ITEMS, NUM_GROUPS = 320, 160, 8
BUYS, OTHER_WAY = ("user", "buys", "item"), ("item", "bought_by", "user")


def shop_data(*, with_copy: bool = False, seed: int = 0) -> HeteroData:
    """Users buy items of their group, rate other pairs, and know users of their group; items have no features.

    with_copy: whether an edge type has the same edges in the other direction.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int, high: int) -> torch.Tensor:
        return torch.randint(0, high, (count,), generator=generator)

    data = HeteroData()
    user_group, item_group = draw(NUM_USERS, NUM_GROUPS), draw(NUM_ITEMS, NUM_GROUPS)
    data["user"].x = torch.nn.functional.one_hot(user_group, NUM_GROUPS).float()
    data["user"].x += 0.5 * torch.randn(NUM_USERS, NUM_GROUPS, generator=generator)
    data["item"].num_nodes = NUM_ITEMS

    def within_groups(count: int, others: torch.Tensor) -> torch.Tensor:
        sources = draw(8 * count, NUM_USERS)
        destinations = draw(8 * count, len(others))
        fits = user_group[sources] == others[destinations]
        pairs = np.stack([sources[fits], destinations[fits]])[:, :count]
        return torch.from_numpy(np.unique(pairs, axis=1))

    data[BUYS].edge_index = within_groups(1600, item_group)
    data["user", "knows", "user"].edge_index = within_groups(500, user_group)
    data["user", "rates", "item"].edge_index = torch.stack([draw(300, NUM_USERS), draw(300, NUM_ITEMS)])
    if with_copy:
        order = torch.randperm(data[BUYS].edge_index.shape[1], generator=generator)
        data[OTHER_WAY].edge_index = data[BUYS].edge_index.flip(0)[:, order]
        # Another type in the same direction, so that only its edges tell which one the copy is.
        data["item", "suits", "user"].edge_index = torch.stack([draw(200, NUM_ITEMS), draw(200, NUM_USERS)])
    return data


def shop(folder: Path, *, with_copy: bool = False) -> Dataset:
    """The same as a dataset on disk."""
    return diskhop.from_pyg(shop_data(with_copy=with_copy), folder)
