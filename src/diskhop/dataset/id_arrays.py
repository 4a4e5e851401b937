"""Node ids in .npy files, as options name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ConfigError


def read_id_array(path: Path, option: str) -> NDArray[Any]:
    """Map a .npy file of integer ids, one-dimensional, at least one. option: that names the file, for errors.

    Raises ConfigError.
    """
    try:
        ids: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read as .npy ({error}); write node ids with numpy.save, or use {option} all"
        ) from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) == 0:
        raise ConfigError(
            f"{path}: has {ids.dtype} of shape {ids.shape}; {option} needs one-dimensional integer ids, at least one"
        )
    return ids
