"""The compiled core as Python sees it. Bindings check arguments, release the GIL, call; nothing else."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# -- bind_aggregate.cpp --

# Tensors of torch, which is not loaded here, come by DLPack: float32, bfloat16 or (x) float16; columns lie together.
def aggregate(
    indptr: Any,
    sources: Any,
    edge_weights: Any | None,
    self_weights: Any | None,
    is_mean: bool,
    x: Any,
    out: Any,
    num_threads: int,
) -> None:
    """Fill out (targets, columns of x) with sums of x's rows, see aggregate.hpp; twice as wide: x's own rows beside.

    indptr: int32 (targets + 1). sources: int32 (edges). Weights: float32. Raises ValueError or IndexError.
    """

def aggregate_backward(
    indptr: Any,
    sources: Any,
    edge_weights: Any | None,
    self_weights: Any | None,
    is_mean: bool,
    grad_out: Any,
    grad_x: Any,
    num_threads: int,
) -> None:
    """Fill grad_x with the gradient of x, given that of out; both of one dtype, float32 or bfloat16."""

# -- bind_attention.cpp --

# As above: tensors of float32, rows of float32 or bfloat16. Raises ValueError or IndexError.
def attention(
    indptr: Any,
    sources: Any,
    source_scores: Any,
    target_scores: Any,
    negative_slope: float,
    dropout: float,
    seed: int,
    out: Any,
    num_threads: int,
) -> None:
    """Fill out (slots, heads) with attention, see attention.hpp. Scores are (sources, heads) and (targets, heads)."""

def attention_backward(
    indptr: Any,
    sources: Any,
    source_scores: Any,
    target_scores: Any,
    negative_slope: float,
    attention: Any,
    grad_attention: Any,
    grad_source_scores: Any,
    grad_target_scores: Any,
    num_threads: int,
) -> None:
    """Fill the last two with the gradients of the scores."""

def attend(
    indptr: Any,
    sources: Any,
    begin: int,
    end: int,
    attention: Any,
    scale: float,
    rows: Any,
    out: Any,
    num_threads: int,
) -> None:
    """Fill out (end - begin, heads * dim) with sums for the targets from begin to end.

    rows: (sources, heads * dim), or (sources, dim), which all heads read.
    """

def attend_backward_attention(
    indptr: Any,
    sources: Any,
    begin: int,
    end: int,
    attention: Any,
    scale: float,
    rows: Any,
    grad_out: Any,
    grad_attention: Any,
    num_threads: int,
) -> None:
    """Fill those of grad_attention (slots, heads) that belong to the range."""

def attend_backward_rows(
    indptr: Any,
    sources: Any,
    begin: int,
    end: int,
    attention: Any,
    scale: float,
    grad_out: Any,
    grad_rows: Any,
    num_threads: int,
) -> None:
    """Add to grad_rows, of the size of rows, what the range gives."""

# -- bind_io.cpp --

def why_no_uring() -> str:
    """Why io_uring cannot be used here, tried with a request that does nothing, or '' when it can."""

class CrashError(RuntimeError):
    """An injected crash: nothing after it reaches the disk."""

class FaultRule:
    """kind: short_transfer | interrupted | again | io_error | no_space | truncated | crash.

    counted: reads | writes | fsyncs | renames | changes | all. nth counts from 1.
    """

    def __init__(self, kind: str, counted: str, nth: int, once: bool = True) -> None: ...

class FaultInjector:
    """Counts operations and decides what happens to each."""

    def __init__(self, rules: Sequence[FaultRule], seed: int = 0) -> None: ...
    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Count an operation done outside the engine; raises OSError (EIO, ENOSPC) or CrashError as the rules say."""

    def count(self, counted: str) -> int: ...

class File:
    """A file open for the engine; paths are those of os.fsencode. Raises ReadError or DestinationError naming it."""

    def __init__(self, path: str, mode: Literal["read", "write"], want_direct: bool = True) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def direct(self) -> bool: ...
    @property
    def offset_alignment(self) -> int: ...
    @property
    def memory_alignment(self) -> int: ...

class BufferPool:
    """Huge-page memory, used again once its arrays are gone; free memory is kept only while all stays in max_bytes."""

    def __init__(self, max_bytes: int) -> None: ...
    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """An array of exactly num_bytes, uninitialised; its memory returns to the pool when the array is freed."""

    @property
    def free_bytes(self) -> int: ...

def keep_freed_memory(kept: bool) -> bool:
    """Whether the C library keeps what is freed for the next allocation; False from it where it cannot be told to."""

class Engine:
    """See engine.hpp. wait() raises ReadError or WriteError naming file and offset.

    Where the system lacks what an engine needs, making one or submitting to it raises ConfigError.
    """

    def __init__(self, name: str, depth: int, injector: FaultInjector | None = None) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def depth(self) -> int: ...
    def submit_read(
        self,
        file: File,
        offsets: NDArray[np.uint64],
        num_bytes: NDArray[np.uint64],
        buffer: NDArray[np.uint8],
        buffer_offsets: NDArray[np.uint64],
        required_bytes: NDArray[np.uint64] | None = None,
        prefetch: bool = False,
    ) -> int:
        """Queue one read per element; the buffer must be left alone until wait(). required_bytes: from 1."""

    def submit_write(
        self,
        file: File,
        offsets: NDArray[np.uint64],
        num_bytes: NDArray[np.uint64],
        buffer: NDArray[np.uint8],
        buffer_offsets: NDArray[np.uint64],
    ) -> int: ...
    def submit_fsync(self, file: File) -> int: ...
    def wait(self, ticket: int) -> None: ...
    def poll(self, ticket: int) -> bool: ...

# -- bind_rows.cpp --

def plan_reads(
    sorted_ids: NDArray[np.int64],
    num_rows: int,
    row_bytes: int,
    row_stride: int,
    max_gap_bytes: int,
    alignment: int,
    max_read_bytes: int,
) -> NDArray[np.uint64]:
    """(reads, 5): offset, num_bytes, required_bytes, first_wanted, num_wanted."""

class RowReader:
    """See rows.hpp. Keeps engine, file and pool alive. A read takes staging_bytes and up to 56 bytes an id."""

    def __init__(
        self,
        engine: Engine,
        file: File,
        num_rows: int,
        row_bytes: int,
        row_stride: int,
        max_gap_bytes: int,
        max_read_bytes: int,
        staging_bytes: int,
        pool: BufferPool,
    ) -> None: ...
    def read(self, ids: NDArray[np.int64], out: NDArray[np.uint8], prefetch: bool = False) -> tuple[int, int, int]:
        """Fill out (len(ids), row_bytes); returns (reads, bytes_read, bytes_copied)."""

def copy_rows(
    source: NDArray[np.uint8],
    from_rows: NDArray[np.int64] | None,
    out: NDArray[np.uint8],
    to_rows: NDArray[np.int64] | None,
    num_threads: int = 1,
) -> int:
    """out[to_rows] = source[from_rows] for 2-D arrays of equal width; source rows may be strided. None: 0, 1, 2 ...

    Returns the bytes copied. Raises ValueError for a row in to_rows twice and for arrays that overlap.
    """

# -- bind_sampling.cpp --

def sample_neighbors(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32] | NDArray[np.int64],
    seeds: NDArray[np.int64],
    fanouts: Sequence[int],
    seed: int,
    purpose: int,
    epoch: int,
    batch: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], list[int], list[int]]:
    """node_ids, indptr, sources, edge_positions, num_sampled_nodes, num_sampled_edges of a SampledBatch."""

def keyed_permutation(num_items: int, seed: int, purpose: int, epoch: int) -> NDArray[np.int64]:
    """0 .. num_items - 1 in an order that depends on the key alone (sorted by a hash of key and item).

    Takes 16 bytes an item, of which 8 are the result.
    """
