"""Seconds of A @ X with everything in memory: SciPy's product and our own, on the same arrays, in one run.

The denominators of benchmarks/propagate.py (issue 8): SciPy's product over all columns, on the only thread it
supports, and the core's sums over neighbour lists on one thread and on two. All take X (nodes, 128) float32 whole;
nothing is read from disk while the clock runs. Needs memory for the lists twice and for X three times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from diskhop._native import BufferPool, aggregate


@dataclass(frozen=True, kw_only=True)
class RamSeconds:
    """Seconds of one hop. ours: by number of threads. largest_difference: relative to the largest value."""

    scipy: float
    ours: dict[int, float]
    largest_difference: float


def measure_in_ram(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32],
    features: NDArray[np.float32],
    *,
    threads: tuple[int, ...] = (1, 2),
    repeats: int = 3,
) -> RamSeconds:
    """Time the fastest of `repeats` runs of ours, and one of SciPy's, on lists of fewer than 2^31 edges."""
    starts, sources = indptr.astype(np.int32), indices.astype(np.int32)
    matrix = scipy.sparse.csr_matrix((np.ones(len(sources), np.float32), sources, starts), shape=(len(features),) * 2)
    begin = time.perf_counter()
    expected = matrix @ features
    scipy_seconds = time.perf_counter() - begin
    pool = BufferPool(2 * features.nbytes)
    rows = pool.take(features.nbytes).view(np.float32).reshape(features.shape)
    rows[:] = features
    out = pool.take(features.nbytes).view(np.float32).reshape(features.shape)
    out[:] = 0  # its pages are there before the clock runs

    def multiply(num_threads: int) -> Callable[[], None]:
        return lambda: aggregate(starts, sources, None, None, False, None, rows, out, num_threads)

    ours = {number: min(_seconds(multiply(number)) for _ in range(repeats)) for number in threads}
    largest = max(float(np.abs(expected[first : first + 65536]).max()) for first in range(0, len(out), 65536))
    difference = max(
        float(np.abs(expected[first : first + 65536] - out[first : first + 65536]).max())
        for first in range(0, len(out), 65536)
    )
    return RamSeconds(scipy=scipy_seconds, ours=ours, largest_difference=difference / largest)


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path, help="a dataset's folder, of one type, with float32 features")
    parser.add_argument("--columns", type=int, default=0, help="number of columns, from the first; 0: all")
    options = parser.parse_args()
    edges = options.dataset / "edges" / "edge"
    indptr = np.fromfile(edges / "indptr.bin", np.int64)
    indices = np.fromfile(edges / "indices.bin", np.uint32)
    features = np.fromfile(options.dataset / "nodes" / "node" / "features.bin", np.float32)
    features = features.reshape(len(indptr) - 1, -1)
    if options.columns:
        features = np.ascontiguousarray(features[:, : options.columns])
    measured = measure_in_ram(indptr, indices, features)
    ratios = {f"ours on {number} / SciPy": seconds / measured.scipy for number, seconds in measured.ours.items()}
    print(json.dumps({"columns": features.shape[1], **asdict(measured), **ratios}, indent=1))


if __name__ == "__main__":
    main()
