"""Python interface of the compiled core. Bindings check arguments, release the GIL and call, nothing else.

Arguments named scratch: a pool for the temporary memory of one call; None: memory that is not kept.
"""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

# -- bind_activation.cpp --

# Tensors of torch (or arrays): contiguous, (rows, columns), float32 or bfloat16. Raise ValueError.
def rectify(values: Any, probability: float, seed: int, num_threads: int) -> None:
    """Replace values by dropout(relu(values)); see activation.hpp."""

def rectify_backward(values: Any, grad: Any, probability: float, grad_values: Any, num_threads: int) -> None:
    """Fill grad_values with the gradient of rectify()'s input; values: its output."""

def layer_norm(x: Any, weight: Any, bias: Any, epsilon: float, moments: Any, out: Any, num_threads: int) -> None:
    """Fill out with the normalised rows of x, and moments (rows, 2) with their mean and scale; see layer_norm.hpp."""

def layer_norm_backward(
    x: Any,
    moments: Any,
    weight: Any,
    grad_out: Any,
    grad_x: Any,
    grad_weight: Any,
    grad_bias: Any,
    num_threads: int,
) -> None:
    """Fill grad_x, and add to grad_weight and grad_bias, given the gradient of layer_norm()'s out."""

# -- bind_aggregate.cpp --

# Tensors of torch, passed by DLPack: float32, bfloat16 or (x only) float16; each row is contiguous.
def aggregate(
    indptr: Any,
    sources: Any,
    edge_weights: Any | None,
    self_weights: Any | None,
    is_mean: bool,
    own_rows: Any | None,
    x: Any,
    out: Any,
    num_threads: int,
) -> None:
    """Fill out (targets, columns of x) with sums of x's rows; see aggregate.hpp.

    If out is twice as wide, each target's own row follows its sum.

    indptr: int32 (targets + 1). sources: int32 (edges). Weights: float32. own_rows: int32 (targets), row of x
    of each target; None: 0, 1, 2 ... Raises ValueError or IndexError.
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
    scratch: BufferPool | None = None,
    adds: bool = False,
) -> None:
    """Fill grad_x with the gradient of x, given that of out; both float32 or both bfloat16.

    adds: add to what grad_x has instead.
    """

# -- bind_attention.cpp --

# Tensors of torch: float32, rows float32 or bfloat16. Raise ValueError or IndexError.
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
    """Fill out (slots, heads) with attention; see attention.hpp. Scores: (sources, heads) and (targets, heads)."""

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
    """Fill grad_source_scores and grad_target_scores."""

def slot_softmax(indptr: Any, scores: Any, dropout: float, seed: int, out: Any, num_threads: int) -> None:
    """Fill out (edges, heads) with the softmax of scores (edges, heads) over each target's edges; no loops."""

def slot_softmax_backward(indptr: Any, attention: Any, grad_attention: Any, grad_scores: Any, num_threads: int) -> None:
    """Fill grad_scores (edges, heads)."""

def slot_products(indptr: Any, sources: Any, rows: Any, targets: Any, products: Any, num_threads: int) -> None:
    """Fill products (edges, heads) with those of rows (sources, heads * dim) and targets (targets, heads * dim)."""

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
    has_loops: bool = True,
    is_attention: bool = True,
) -> None:
    """Fill out (end - begin, heads * dim) with sums for the targets begin .. end - 1.

    rows: (sources, heads * dim), or (sources, dim), which all heads read.
    has_loops: whether every target has a self-loop; otherwise slots are edges.
    is_attention: whether a set sign bit marks a dropped slot; otherwise weights may be negative.
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
    has_loops: bool = True,
    is_attention: bool = True,
) -> None:
    """Fill grad_attention (slots, heads) for the slots of targets begin .. end - 1."""

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
    has_loops: bool = True,
    is_attention: bool = True,
) -> None:
    """Add to grad_rows (the size of rows) the gradient for targets begin .. end - 1."""

# -- bind_io.cpp --

def why_no_uring() -> str:
    """Return why io_uring cannot be used here, found by a request that does nothing; '' if it can."""

class CrashError(RuntimeError):
    """An injected crash: no later operation reaches the disk."""

class FaultRule:
    """Rule for an injected fault.

    kind: short_transfer | interrupted | again | io_error | no_space | truncated | crash.
    counted: reads | writes | fsyncs | renames | changes | all.
    nth: the operation that fails, counted from 1. once: only this one, else all later ones too.
    """

    def __init__(self, kind: str, counted: str, nth: int, once: bool = True) -> None: ...

class FaultInjector:
    """Counts operations and decides the outcome of each."""

    def __init__(self, rules: Sequence[FaultRule], seed: int = 0) -> None: ...
    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Count one operation outside the engine; raises OSError (EIO, ENOSPC) or CrashError as the rules say."""

    def count(self, counted: str) -> int: ...

class File:
    """A file open for the engine. Raises ReadError or DestinationError naming the path."""

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
    """Reusable huge-page memory. Free memory is kept only while the pool has at most max_bytes in total.

    keeps_peak: or at most an eighth more than was in use at once, where that is more.
    """

    def __init__(self, max_bytes: int, keeps_peak: bool = False) -> None: ...
    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return an uninitialised array of num_bytes; its memory returns to the pool when the array is freed."""

    @property
    def free_bytes(self) -> int: ...

class Engine:
    """Asynchronous transfers; see engine.hpp. wait() raises ReadError or WriteError naming file and offset.

    Raises ConfigError if the system lacks what the engine needs, when it is made or at a submit.
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
        """Queue one read per element; the buffer must not be used until wait(). required_bytes: at least 1 each."""

    def submit_write(
        self,
        file: File,
        offsets: NDArray[np.uint64],
        num_bytes: NDArray[np.uint64],
        buffer: NDArray[np.uint8],
        buffer_offsets: NDArray[np.uint64],
    ) -> int: ...
    def submit_fsync(self, file: File) -> int: ...
    def exchange(
        self, parts: Sequence[NDArray[np.uint8]], target: File | None, source: File | None
    ) -> tuple[list[int], list[int]]:
        """Write parts of memory, whole pages, to the target, and read the source into them; see exchange.hpp.

        Returns the page sums of each part, as written and as read. Raises DestinationError, WriteError, ReadError.
        """

    def wait(self, ticket: int) -> None: ...
    def poll(self, ticket: int) -> bool: ...

# -- bind_packed_slots.cpp --

def assign_slots(
    ids: NDArray[np.int64],
    num_rows: int,
    num_resident: int,
    resident_slots: NDArray[np.int32] | None,
    shared_rows: NDArray[np.int64] | None,
    low: NDArray[np.uint16],
    high: NDArray[Any],
    shared_ids: NDArray[np.uint32],
    packed_ids: NDArray[np.uint32],
) -> None:
    """Fill low and high (nodes), shared_ids and packed_ids, which then ascend; see packed_slots.hpp.

    num_rows: rows of the table. resident_slots (num_rows): place in memory of each row, or -1; None: rows
    0 .. num_resident - 1. shared_rows (num_rows): row of the shared table, or -1; None: none is shared. high: uint8 or
    uint16. Raises IndexError for an id outside the table, ValueError for lists of other lengths than the batch needs.
    """

def load_slots(
    low: NDArray[np.uint16], high: NDArray[Any], num_resident: int, shift: int, rows: NDArray[np.int64]
) -> None:
    """Set rows (nodes) to the slots, plus shift for those from num_resident on."""

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
    """Return (reads, 5): offset, num_bytes, required_bytes, first_wanted, num_wanted."""

class NextUses:
    """Next use of each row in a span of batches; see belady.hpp. Takes 4 bytes per row of the table."""

    def __init__(self, num_rows: int, num_batches: int) -> None: ...
    def look_back(self, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the next use of each row of the preceding batch: a batch number, or NEVER_USED.

        Batches are visited from the last to the first.
        """

class BeladyCache:
    """Cache of the rows with the nearest next use; see belady.hpp."""

    def __init__(self, num_rows: int, capacity: int) -> None: ...
    def begin(
        self, next_uses: NextUses, num_batches: int, fills: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Begin a span. Returns rows that enter, rows evicted, and the number of rows cached before."""

    def step(
        self, rows: NDArray[np.int64], next_uses: NDArray[np.uint32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Run the next batch. Returns positions of rows that enter, rows evicted, and the number of hits."""

    def __len__(self) -> int: ...

NEVER_USED: int

class RowReader:
    """Reads rows of one table; see rows.hpp. Keeps engine, file and pool alive.

    A read takes staging_bytes and up to 56 bytes per id.
    """

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
    def read(
        self, ids: NDArray[np.int64], out: NDArray[np.uint8], to_rows: NDArray[np.int64] | None = None
    ) -> tuple[int, int, int]:
        """Read rows, of row_bytes, to out[to_rows]; None: 0, 1, 2 ... Returns (reads, bytes_read, bytes_copied)."""

class ScanTicket:
    """Rows in flight. Keeps `out` and the scan alive; the request is cancelled with the last reference."""

    def wait(self) -> tuple[int, int, int, float]:
        """Wait for all rows; returns (reads, bytes_read, bytes_copied, seconds). Raises ReadError."""

    def leave(self) -> None:
        """Cancel the request; returns once its output is no longer written."""

class SharedScan:
    """Rows for several batches from one scan; see shared_scan.hpp. Keeps engine, file and pool alive.

    Takes staging_bytes, and 12 bytes per id in flight.
    """

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
    def join(
        self, ids: NDArray[np.int64], out: NDArray[np.uint8], to_rows: NDArray[np.int64] | None = None
    ) -> ScanTicket:
        """Request rows, of row_bytes, at out[to_rows]; None: 0, 1, 2 ..."""

    def close(self) -> None:
        """End the scan; requests in flight fail."""

class BufferTicket:
    """Rows of a batch in a FeatureBuffer, which it keeps alive. Released with the last reference."""

    @property
    def slots(self) -> NDArray[np.int64]:
        """Slot of each row (rows), in the order of the ids; valid from wait() to release()."""

    @property
    def num_hits(self) -> int:
        """Rows that were resident; valid after wait()."""

    @property
    def num_shared(self) -> int:
        """Rows that another batch was reading; valid after wait()."""

    def wait(self) -> tuple[int, int, int, float]:
        """Wait for all rows; returns (reads, bytes_read, bytes_copied, seconds). Raises ReadError."""

    def cancel(self) -> None:
        """Leave the queue, if still waiting for slots: wait() then fails."""

    def release(self) -> None:
        """Release the rows; repeated calls do nothing."""

class FeatureBuffer:
    """Rows of several batches, each stored once; see feature_buffer.hpp.

    rows: (slots, row_bytes). Keeps scan and rows alive. Takes 16 bytes per slot and 4 per row of the table.
    """

    def __init__(self, scan: SharedScan, rows: NDArray[np.uint8], most_standby: int) -> None: ...
    def submit(self, ids: NDArray[np.int64]) -> BufferTicket:
        """Queue a batch of distinct rows for slots, and then begin to read its missing rows.

        Raises ValueError for more ids than slots, IndexError for an id outside the table.
        """

    @property
    def totals(self) -> tuple[int, int, int]:
        """Row counts (read, dropped, resident) since the buffer was made."""

def copy_rows(
    source: NDArray[np.uint8],
    from_rows: NDArray[np.int64] | None,
    out: NDArray[np.uint8],
    to_rows: NDArray[np.int64] | None,
    num_threads: int = 1,
) -> int:
    """Copy source[from_rows] to out[to_rows], 2-D arrays of equal width; None: 0, 1, 2 ...

    Source rows may be strided. Returns the bytes copied. Raises ValueError for a repeated row in to_rows and for arrays
    that overlap.
    """

def append_rows(
    source: NDArray[np.uint8],
    ids: NDArray[np.uint32],
    first_id: int,
    begins: NDArray[np.int64],
    counts: NDArray[np.int64],
    places: NDArray[np.int64],
    rests: NDArray[np.uint8],
    rest_bytes: NDArray[np.int64],
    out: NDArray[np.uint8],
    num_threads: int = 1,
) -> None:
    """Append rows ids[begins[s]] .. of a table to each stream s: its rest and counts[s] rows go to out[places[s]] ...

    source: (rows, row bytes), those of the table from first_id on; rows may be strided. rests: (streams, block bytes),
    of which rest_bytes[s] bytes do not fill a block yet; both are changed. out: 1-D. Nothing overlaps. Raises
    IndexError for a row outside the source and bytes outside an array, before anything is changed.
    """

# -- bind_id_set.cpp --

class IdSet:
    """Set of ids below limit (at most 2^32), one bit each: first added, then closed, then queried.

    Takes limit / 8 bytes and a sixteenth of that. Any number of threads may add, and any number may query.
    """

    def __init__(self, limit: int) -> None: ...
    def add(self, ids: NDArray[np.uint32]) -> None:
        """Add ids. Raises IndexError for an id that is not below limit, RuntimeError once closed."""

    def close(self) -> int:
        """End adding; returns the number of ids."""

    def rank(self, ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the number of smaller ids in the set, for each id. Raises IndexError for an id that is not in it."""

    def select(self, ranks: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the ids of given ranks. Raises IndexError for a rank that no id has."""

# -- bind_embedding.cpp --

# Arrays of NumPy or tensors of torch: contiguous float32. Raise ValueError.
class RowUpdater:
    """Adagrad for rows of tables; see embedding.hpp. Keeps 16 bytes per row of the largest call."""

    def __init__(self, num_threads: int) -> None: ...
    def update(self, values: Any, squares: Any, rows: Any, grads: Any, lr: float, epsilon: float) -> None:
        """Update the named rows in place; a repeated row by the sum of its gradients.

        values: (N, dim). squares: (N, dim), or (N, 1) for the mean of each row's squares. rows: int64 (M). grads:
        (M, dim).
        """

def contrastive_softmax(
    scores: Any, positives: Any, positive_grads: Any, losses: Any, with_positive: bool, num_threads: int
) -> None:
    """Fill losses (rows) and their gradients: positive_grads (rows), and scores (rows, k) in place.

    scores on entry: scores of the negatives, -inf for an excluded one. positives: (rows). with_positive: the sum
    includes the positive. A score that is +inf or NaN gives a loss that is not finite.
    """

def mask_scores(left_out: tuple[Any, Any, Any, Any, Any], scores: Any) -> None:
    """Set scores (C, K) of excluded negatives to -inf.

    left_out, int64: answers (C), the node of each row's edge; negatives (K), the nodes of columns; known: other
    answers, for row i ascending from begins[i] to ends[i]; begins (C) and ends (C), or three empty ones.
    """

def has_product_gradients() -> bool:
    """Return whether product_gradients() works: torch is loaded, and has MKL."""

def product_gradients(
    score: Literal["dot", "distmult", "complex"],
    nodes: Any,
    relations: Any,
    rows: Any,
    relation_rows: Any,
    left_out: tuple[Any, Any, Any, Any, Any],
    grads: Any,
    relation_grads: Any,
    num_edges: int,
    chunk_size: int,
    num_negatives: int,
    with_positive: bool,
    is_reciprocal: bool,
    l2: float,
    n3: float,
    num_threads: int,
    scratch: BufferPool | None = None,
) -> float:
    """Return the sum of contrastive_softmax() over a batch and both sides; fill grads and relation_grads.

    nodes: (N, dim). relations: (R, dim). rows: int64 (M): rows of sources, of destinations, of negatives for
    destinations by chunks, of negatives for sources. relation_rows: int64 (2 E): for destinations, for sources.
    left_out, int64: a number per row (M), known nodes for destinations and for sources, and begins (2 E) and ends (2 E)
    in them, or empty ones, as for mask_scores(). grads: (M, dim). relation_grads: (2 E, dim). scratch:
    product_scratch_bytes() are taken from it.
    """

def product_scratch_bytes(dim: int, num_negatives: int, num_threads: int) -> int:
    """Return the bytes that product_gradients() takes from its pool with up to num_threads chunks at once."""

DistanceKind = Literal["l1", "modulus"]

def distance_scores(queries: Any, points: Any, kind: DistanceKind, scores: Any, num_threads: int) -> None:
    """Fill scores (C, K) with minus the distances of queries (C, dim) to points (K, dim).

    l1: the sum of |q - p|. modulus: the same for complex numbers, real parts in the first half of a row.
    """

def distance_scores_backward(
    queries: Any, points: Any, kind: DistanceKind, grads: Any, grad_queries: Any, grad_points: Any, num_threads: int
) -> None:
    """Fill grad_queries and grad_points, given the gradients of distance_scores()'s scores."""

# -- bind_generate.cpp --
# See generate.hpp. Each fills arrays of the caller, with edges first, first + 1, ...

_Ids = NDArray[np.uint32] | NDArray[np.int64]

def rmat_edges(
    num_nodes: int,
    chances: Sequence[float],
    seed: int,
    first: int,
    sources: _Ids,
    destinations: _Ids,
    is_permuted: bool = True,
) -> None:
    """Fill R-MAT edges. chances: of the quadrants a, b, c, d. is_permuted: ids are permuted by the seed."""

def uniform_edges(num_nodes: int, seed: int, first: int, sources: _Ids, destinations: _Ids) -> None:
    """Fill edges with both ends uniform."""

def block_model_edges(
    num_nodes: int, num_classes: int, homophily: float, seed: int, first: int, sources: _Ids, destinations: _Ids
) -> None:
    """Fill edges of a stochastic block model. Node v has class v mod num_classes.

    A source has its destination's class with probability homophily.
    """

def permute_ids(num_nodes: int, seed: int, part: Literal["ids", "splits"], ids: _Ids, is_inverse: bool = False) -> None:
    """Replace ids by their images under a bijection of 0 .. num_nodes - 1, keyed by seed and part, or the inverse."""

def node_classes(seed: int, num_classes: int, nodes: NDArray[np.int64], classes: NDArray[np.int64]) -> None:
    """Fill a class for each node, uniform over 0 .. num_classes - 1."""

def feature_rows(
    seed: int,
    nodes: NDArray[np.int64],
    dim: int,
    means: NDArray[np.float32],
    classes: NDArray[np.int64],
    rows: NDArray[np.float32],
) -> None:
    """Fill rows with standard normal noise plus the mean of each node's class; rows and means are flat."""

# -- bind_linear.cpp --

# Tensors of torch: contiguous, of one dtype, float32 or bfloat16. Raise RuntimeError if torch has no MKL.
def linear(
    x: Any,
    weight: Any,
    bias: Any | None,
    dropout: float | None,
    seed: int,
    out: Any,
    num_threads: int,
    scratch: BufferPool | None = None,
    places: Any | None = None,
) -> None:
    """Fill out with x weight^T + bias (1, out_dim), rectified unless dropout is None; see linear.hpp.

    places: rows of x to take; None: all, in order.
    """

def linear_backward(
    grad: Any,
    x: Any,
    weight: Any | None,
    left: Any | None,
    dropout: float | None,
    grad_x: Any | None,
    grad_weight: Any,
    grad_bias: Any,
    num_threads: int,
    scratch: BufferPool | None = None,
    places: Any | None = None,
) -> None:
    """Fill grad_x (if a weight is given) and, in float32, grad_weight and grad_bias; left: output of linear()."""

# -- bind_order.cpp --

def count_ids(ids: _Ids, counts: _Ids) -> int:
    """Add the number of occurrences of each id to counts (nodes). Any number of threads at once.

    Returns the position of the first id that is no node, or len(ids).
    """

def order_by_count_uint32(counts: _Ids) -> NDArray[np.uint32]:
    """Return the nodes (below 2^32) by descending count, ties to the lower id. Takes 8 bytes per node."""

def order_by_count_int64(counts: _Ids) -> NDArray[np.int64]:
    """Return the nodes by descending count, ties to the lower id. Takes 16 bytes per node."""

def invert_order(order: _Ids) -> NDArray[Any]:
    """Return the inverse of a permutation: inverse[order[i]] = i. Raises ValueError if order is not one."""

def renumber_ids(ids: _Ids, new_ids: _Ids, renumbered: _Ids) -> int:
    """Set renumbered[i] to new_ids[ids[i]]; renumbered has the dtype of new_ids.

    Returns the position of the first id that is no node, or len(ids).
    """

# -- bind_sampling.cpp --

class NeighborSampler:
    """Neighbour sampler; see sampler.hpp. Any number of threads; each concurrent call has its own workspace."""

    def sample(
        self,
        seeds: NDArray[np.int64],
        seed: int,
        purpose: int,
        epoch: int,
        batch: int,
        pool: BufferPool,
        times: NDArray[np.int64] | None = None,
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int32],
        NDArray[np.int64],
        list[int],
        list[int],
        int,
        int,
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.float32],
    ]:
        """Return the fields of a SampledBatch, in order, from node_ids on; seed_of, the arrays of `distinct`, weights.

        The three are empty unless subgraphs are disjoint, and weights unless edges have some. The arrays share one
        buffer of the pool, which returns to it with the last of them.
        """

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the largest workspace so far, while no batch is being sampled."""

    @property
    def reading_bytes(self) -> int:
        """More bytes of a workspace that reads everything from the disk, for batches like those so far."""

class Column:
    """Numbers of edges or nodes: in memory, or read by a scan as rows of one number. type: 'int8' to 'float64'."""

    @overload
    def __init__(self, values: NDArray[np.uint8], type: str) -> None: ...
    @overload
    def __init__(self, scan: SharedScan, type: str) -> None: ...

class ImportanceOptions:
    """Samplers that choose nodes: labor, balanced_labor, ladies and fastgcn; see importance.hpp."""

    def __init__(self, method: str, batch_dependency: int = 1) -> None: ...

class NeighborOptions:
    """Ways to draw neighbours; see variants.hpp."""

    def __init__(
        self,
        *,
        replaces: bool = False,
        is_disjoint: bool = False,
        takes_latest: bool = False,
        subgraph: str = "directional",
        weights: Column | None = None,
        edge_times: Column | None = None,
        node_times: Column | None = None,
        nodes_per_partition: int = 0,
    ) -> None: ...

class BudgetOptions:
    """Sampling of nodes by budget; see budget.hpp. The fan-outs are then counts of nodes, by node type."""

    def __init__(self) -> None: ...

class GraphTypes:
    """Types of nodes and edges; see graph_types.hpp. Each edge type has a list per node of its destination."""

    def __init__(self, node_starts: Sequence[int], list_starts: Sequence[int], destinations: Sequence[int]) -> None: ...

def split_types(
    types: GraphTypes,
    edge_starts: NDArray[np.int64],
    node_ids: NDArray[np.int64],
    indptr: NDArray[np.int64],
    sources: NDArray[np.int32],
    edge_positions: NDArray[np.int64],
) -> tuple[
    list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]],
]:
    """Split a batch: node_ids and places of each node type; indptr, sources, positions and places of each edge type."""

def hop_read_bytes(num_lists: int, num_edges: int) -> int:
    """Return the bytes in which a sampler reads num_edges edges of one hop from num_lists lists on the disk."""

def make_neighbor_sampler(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32] | NDArray[np.int64],
    fanouts: Sequence[int],
    options: NeighborOptions | ImportanceOptions | BudgetOptions | None = None,
    types: GraphTypes | None = None,
) -> NeighborSampler: ...
def make_cached_sampler(
    indptr: NDArray[np.int64],
    blocks: NDArray[np.uint64],
    lists: NDArray[np.uint32] | NDArray[np.int64],
    scan: SharedScan,
    fanouts: Sequence[int],
    options: NeighborOptions | ImportanceOptions | BudgetOptions | None = None,
    types: GraphTypes | None = None,
) -> NeighborSampler:
    """Make a sampler over partly cached lists; the others are read. See CachedTopology in sampler.hpp."""

def keyed_permutation(num_items: int, seed: int, purpose: int, epoch: int) -> NDArray[np.int64]:
    """Return 0 .. num_items - 1 in an order that depends only on the key (sorted by a hash of key and item).

    Takes 16 bytes per item, 8 of them the result.
    """

# -- bind_clusters.cpp --

class StreamClusters:
    """Clusters of nodes, found in passes over the neighbour lists; see stream_clusters.hpp. One thread at a time."""

    def __init__(self, indptr: NDArray[np.int64], num_clusters: int, capacity: int) -> None: ...
    def start_pass(self) -> None: ...
    def feed(self, sources: NDArray[np.uint32] | NDArray[np.int64]) -> None:
        """Take the next sources of the lists. Raises IndexError for damaged lists."""

    def end_pass(self) -> None: ...
    def cluster_of(self) -> NDArray[np.uint32]:
        """Return a copy of the cluster of each node."""

    @property
    def num_inner_edges(self) -> int:
        """Edges within clusters that the last pass saw."""

# -- bind_csc.cpp --

Ids = NDArray[np.int32] | NDArray[np.uint32] | NDArray[np.int64] | NDArray[np.uint64]

class KeyLayout:
    """Bits of an edge's key. num_numbers: 0 without edge numbers, else more than the highest."""

    def __init__(self, num_sources: int, num_destinations: int, num_numbers: int) -> None: ...
    @property
    def source_bits(self) -> int: ...
    @property
    def destination_bits(self) -> int: ...
    @property
    def number_bits(self) -> int: ...
    @property
    def key_bytes(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...

class EdgeSpill:
    """Writes edges to a file of streams, one per bucket. bucket_starts: (buckets, 2), high and low words."""

    def __init__(
        self,
        engine: Engine,
        pool: BufferPool,
        path: str,
        layout: KeyLayout,
        bucket_starts: NDArray[np.uint64],
        block_bytes: int,
        num_spare_blocks: int,
    ) -> None: ...
    def add(self, first_number: int, sources: Ids, destinations: Ids) -> tuple[int, bool] | None:
        """Add edges. Returns None, or the first edge with an id out of range and whether it is the source."""

    def finish(self) -> None:
        """Write the rest. The file is then complete, and on disk after an fsync."""

class SortedEdges:
    """Edges in the order of destination, source and number, in memory."""

    @property
    def num_edges(self) -> int: ...
    @property
    def last_destination(self) -> int:
        """Destination of the last edge; there is at least one edge."""

    def indices(self, first: int, count: int) -> NDArray[np.uint32] | NDArray[np.int64]: ...
    def numbers(self, first: int, count: int) -> NDArray[np.int64]: ...
    def indptr(self, first_node: int, count: int) -> NDArray[np.int64]:
        """Return the number of edges with destinations below first_node, first_node + 1, ..."""

class KeyRange:
    """Part of a bucket that is sorted at once."""

    @property
    def num_edges(self) -> int: ...

class SpilledEdges:
    """All spills of a graph. Raises FormatError for a damaged one."""

    def __init__(
        self,
        engine: Engine,
        pool: BufferPool,
        layout: KeyLayout,
        spill_paths: Sequence[str],
        bucket_starts: NDArray[np.uint64],
        window_blocks: int,
    ) -> None: ...
    def cut(self, bucket: int, max_edges: int) -> list[KeyRange]:
        """Split a bucket into ranges of at most max_edges, in order; a larger bucket is read for this."""

    def sort(self, range: KeyRange) -> SortedEdges:
        """Read and sort a range. Takes its keys twice from the pool, and keeps them once."""

class EdgeTable:
    """Edges sorted in memory. Takes their keys twice."""

    def __init__(self, layout: KeyLayout, num_edges: int) -> None: ...
    def add(self, first_number: int, sources: Ids, destinations: Ids) -> tuple[int, bool] | None:
        """Add edges; see EdgeSpill.add()."""

    def sort(self, num_threads: int) -> SortedEdges:
        """Sort all edges. The table is empty afterwards."""

# -- bind_columns.cpp --

def join_columns(
    parts: Sequence[NDArray[np.float32]],
    out: NDArray[np.float32],
    num_threads: int = 1,
    divisors: NDArray[np.float32] | None = None,
) -> None:
    """Copy the columns of the parts, next to one another, to out (rows, columns), whose columns they may exceed.

    divisors: a number per row that its values are divided by. Raises ValueError for sizes that do not match.
    """

def split_columns(rows: NDArray[np.float32], parts: Sequence[NDArray[np.float32]], num_threads: int = 1) -> None:
    """Copy the columns of rows (rows, columns) to those of the parts, which may have more.

    Raises ValueError for sizes that do not match.
    """

# -- bind_tiles.cpp --

def page_sums(content: NDArray[np.uint8], first_page: int) -> int:
    """Return the sum of a file's pages from first_page on, modulo 2^64; see content_sum.hpp."""

def tile_rows(rows: NDArray[np.uint8], tiles: NDArray[np.uint8], tile_row_bytes: int, num_threads: int = 1) -> None:
    """Split rows (m, row bytes) into tiles (tiles, tile rows * tile_row_bytes), m at most the tile's rows.

    A tile has tile_row_bytes of each row, row after row; the rest of the tiles becomes zeros. Raises ValueError.
    """

def untile_rows(
    tiles: NDArray[np.uint8],
    tile_row_bytes: int,
    rows: NDArray[np.int64] | None,
    out: NDArray[np.uint8],
    num_threads: int = 1,
    to_rows: NDArray[np.int64] | None = None,
) -> None:
    """Copy rows of tiles (tiles, tile rows * tile_row_bytes) to out[to_rows] (m, row bytes); None: 0, 1, 2 ...

    No row of out is named twice. Raises ValueError, and IndexError for a row that does not exist.
    """

# -- bind_propagate.cpp --

ValueDtype = Literal["float32", "float16", "bfloat16"]

class StreamCounts:
    """Bytes that passed through staging. seconds_waiting: no thread could be given work, because bytes were missing."""

    @property
    def bytes_read(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def written_sum(self) -> int: ...
    @property
    def seconds_waiting(self) -> float: ...

class ColumnBlock:
    """Columns of the first num_rows rows of a hop table, in memory; see propagate.hpp.

    memory: float32, at least num_rows * num_columns values, with padding 4 more per row; from a BufferPool, for huge
    pages. num_columns: a multiple of 4. Raises ValueError if memory is too small.
    """

    def __init__(self, memory: NDArray[np.float32], num_rows: int, num_columns: int) -> None: ...

class PassCounts:
    """Counts of a pass. num_sources: one more than the highest node in a list.

    num_bad_rows: rows written with values that are infinite or NaN; bad_rows: the first five of them.
    """

    stream: StreamCounts
    num_sources: int
    num_bad_rows: int
    bad_rows: NDArray[np.int64]

class PropagationPass:
    """One hop of pre-propagation, some tiles of 4 columns at a time; see propagate.hpp for tables and formulas.

    Takes staging_bytes of memory, above 1 MiB rounded up to whole 2 MiB. All raise ReadError, WriteError or
    DestinationError for a failed transfer, ValueError for sizes that do not match or too little staging, FormatError
    for damaged lists.
    """

    def __init__(
        self,
        engine: Engine,
        indptr: File,
        indptr_offset: int,
        indices: File,
        indices_offset: int,
        index_bytes: Literal[4, 8],
        num_nodes: int,
        num_edges: int,
        num_threads: int,
        staging_bytes: int,
        weights: File | None = None,
        weights_offset: int = 0,
    ) -> None: ...
    def load(
        self,
        file: File,
        dtype: ValueDtype,
        num_tiles: int,
        first_tile: int,
        block: ColumnBlock,
        scale: File | None,
        first_row: int = 0,
    ) -> StreamCounts:
        """Fill the block from a hop table, from first_row (a multiple of 4096) on, each row times its scale."""

    def write_cold_values(
        self, sources: File, num_edges: int, rows: ColumnBlock, first_row: int, values: File
    ) -> StreamCounts:
        """Write the rows of cold edges' sources, which are in a block from first_row on; padded to a page."""

    def run(
        self,
        block: ColumnBlock,
        out: File,
        dtype: ValueDtype,
        num_tiles: int,
        first_tile: int,
        *,
        row_scale: File | None,
        product_scale: float,
        self_weight: float,
        addend: File | None = None,
        addend_scale: float = 0.0,
        addend_dtype: ValueDtype = "float32",
        cold_values: File | None = None,
        cold_before: NDArray[np.uint64] | None = None,
    ) -> PassCounts:
        """Write the block's columns of the next hop for all nodes. The block has the rows that lists name.

        Row i is product_scale * row_scale[i] * (the sum of list i's rows + self_weight * row i) + addend_scale *
        addend[i]. Scales are files of float32 (num_nodes), the addend is a hop table with the same number of tiles.
        """

# -- bind_softmax.cpp --

def softmax_rows(
    logits: NDArray[np.float32],
    classes: NDArray[np.int64] | None,
    largest: NDArray[np.float32] | None,
    probabilities: NDArray[np.float32] | None,
) -> None:
    """Compute the softmax of each row of finite logits (rows, columns).

    classes: the class of the largest logit, the lowest of equal ones. largest: its probability. probabilities: of all
    classes. Raises ValueError for sizes that do not match.
    """

# -- bind_split_linear.cpp --

class SplitLinear:
    """Linear layer of rows whose columns lie in several matrices; see split_linear.hpp."""

    def __init__(self, weight: Any, bias: Any) -> None:
        """weight: float32 (out_dim, in_dim). bias: (out_dim) or None. Raises ValueError for sizes that do not match."""

    def apply(
        self,
        inputs: Sequence[tuple[Sequence[NDArray[np.float32]], NDArray[np.float32] | None]],
        rectifies: bool,
        out: Sequence[NDArray[np.float32]],
        num_threads: int,
    ) -> bool:
        """Fill rows of the parts of out, rectified if asked to, and return whether all values are finite.

        inputs: parts of the rows (rows, columns), next to one another, and a number per row that they are divided by or
        None; only the first may be divided, and rows with 0 count as zeros there. Raises ValueError for sizes that do
        not match.
        """

# -- bind_streamed_lists.cpp --

# Sums over lists of which some edges are in memory; see streamed_lists.hpp and streamed_attention.hpp. Each call adds
# to what earlier calls left. Bits depend neither on threads nor on how edges are divided among calls, as long as each
# division is at a multiple of 16384 or where a row begins. Raise ValueError for sizes that do not match. Raise
# FormatError for damaged lists.

def add_neighbor_sums(
    block: ColumnBlock,
    indptr: NDArray[np.int64],
    indices: _Ids,
    first_edge: int,
    out: NDArray[np.float32],
    num_threads: int,
) -> None:
    """Add to out (rows, columns of the block) the sums of the block's rows over each row's edges in memory.

    indptr: (rows + 1), numbers of edges in the edge array. indices: edges from first_edge on; edges of other rows are
    ignored. A row whose list begins with one of them, or that is empty and lies among them, is set instead, so that
    calls over consecutive edges end with the sums of PropagationPass.run(). A call takes memory for one row of out per
    16384 edges.
    """

def add_attention_norms(
    source_scores: NDArray[np.float32],
    target_scores: NDArray[np.float32],
    negative_slope: float,
    indptr: NDArray[np.int64],
    indices: _Ids,
    first_edge: int,
    norms: NDArray[np.float32],
    num_threads: int,
) -> None:
    """Add the edges in memory to norms (rows, 2 heads) of a softmax of leaky_relu(source score + target score).

    norms: in the first half of the columns the largest score of each head, from -inf, in the second half the sum of
    exp(score - largest score), from 0. source_scores: (sources, heads). target_scores: (rows, heads). Rows of all three
    may be any distance apart. indptr, indices, first_edge: as for add_neighbor_sums().
    """

class AttendedHead:
    """Columns of one head that lie in a block, and where their sums go.

    head: number of the head, which is its column of target scores and norms.
    score_column: column of the block with the sources' scores.
    first_column: first column of the block with the sources' values.
    num_columns: number of columns. Rounded up to a multiple of 4 they lie in the block; the values added do not matter.
    out_column: column of out that the first one is added to.
    """

    def __init__(
        self, *, head: int, score_column: int, first_column: int, num_columns: int, out_column: int
    ) -> None: ...

def add_attended_rows(
    block: ColumnBlock,
    heads: Sequence[AttendedHead],
    target_scores: NDArray[np.float32],
    norms: NDArray[np.float32],
    negative_slope: float,
    indptr: NDArray[np.int64],
    indices: _Ids,
    first_edge: int,
    out: NDArray[np.float32],
    num_threads: int,
) -> None:
    """Add to out (rows, columns), for each head, the sums over a row's edges of the source's columns times attention.

    The attention is exp(score - largest score) / sum. norms: from add_attention_norms() over all edges, with self-loops
    that the caller adds. Other arguments as there and for add_neighbor_sums().
    """
