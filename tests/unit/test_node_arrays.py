"""Nodes that users name in any kind of array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from diskhop.errors import ConfigError
from diskhop.loaders.node_arrays import node_array, require_distinct


@pytest.mark.parametrize(
    "given",
    [[3, 0], (3, 0), range(3, 2, -1), np.array([3, 0], np.int32), torch.tensor([3, 0]), np.array([3], np.uint64)],
    ids=repr,
)
def test_ids_of_any_kind_are_taken(given: Any) -> None:
    ids = node_array("nodes", given)
    assert ids.dtype == np.int64
    assert ids.tolist() == list(map(int, given))


@pytest.mark.parametrize("given", [[True, False], np.array([True, False]), torch.tensor([True, False])], ids=repr)
def test_masks_of_any_kind_are_taken(given: Any) -> None:
    assert node_array("nodes", given).tolist() == [True, False]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([0, 1, 1], np.uint8), "uint8 may be a mask or ids"),
        (torch.tensor([0, 1], dtype=torch.uint8), "uint8 may be a mask or ids"),
        ([2.7, 3.2], "whole numbers"),
        (torch.tensor([2.0]), "whole numbers"),
        (torch.tensor([2.0], dtype=torch.bfloat16), "int64 or bool"),
        (torch.eye(2).to_sparse(), "dense"),
        (["a", "b"], "whole numbers"),
        ([None], "whole numbers"),
        ("train", "got 'train'"),
        (5, r"shape \(\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
        ([[1], [2, 3]], "one-dimensional"),
        ({1, 2}, "got set"),
        ([2**63], "less than 2"),
        ([2**70], "whole numbers"),
    ],
    ids=repr,
)
def test_what_is_neither_is_refused_in_one_line(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        node_array("nodes", given)
    assert "nodes" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([4, 2, 4, 4], "id 4 is there twice .2 of 4 ids are repeated.; pass each once, as in numpy.unique"),
        ([0, 1, 0, 0, 1], "if it is a mask, pass it as bool"),
        ([], "is empty, and must have at least one entry"),
        (np.zeros(0, np.int64), "is empty, and must have at least one entry"),
    ],
)
def test_ids_are_there_once(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require_distinct("nodes", node_array("nodes", given))
