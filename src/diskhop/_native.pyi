"""The compiled core as Python sees it. Bindings check arguments, release the GIL, call; nothing else."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# -- bind_activation.cpp --

# Tensors of torch, as below: float32 or bfloat16 (rows, columns) in one piece. Raises ValueError.
def rectify(values: Any, probability: float, seed: int, num_threads: int) -> None:
    """values = dropout(relu(values)) in place; see activation.hpp."""

def rectify_backward(values: Any, grad: Any, probability: float, grad_values: Any, num_threads: int) -> None:
    """Fill grad_values with the gradient of what rectify() was given; values: what it left."""

def layer_norm(x: Any, weight: Any, bias: Any, epsilon: float, moments: Any, out: Any, num_threads: int) -> None:
    """Fill out with x's rows normalised, see layer_norm.hpp, and moments (rows, 2) with mean and scale of each."""

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

# Tensors of torch, which is not loaded here, come by DLPack: float32, bfloat16 or (x) float16; columns lie together.
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
    """Fill out (targets, columns of x) with sums of x's rows, see aggregate.hpp; twice as wide: own rows beside.

    indptr: int32 (targets + 1). sources: int32 (edges). Weights: float32. own_rows: int32 (targets), which row of x
    each target is; None: 0, 1, 2 ... Raises ValueError or IndexError.
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

# -- bind_packed_slots.cpp --

def assign_slots(
    ids: NDArray[np.int64],
    num_rows: int,
    num_held: int,
    held_slots: NDArray[np.int32] | None,
    shared_rows: NDArray[np.int64] | None,
    low: NDArray[np.uint16],
    high: NDArray[Any],
    shared_ids: NDArray[np.uint32],
    packed_ids: NDArray[np.uint32],
) -> None:
    """Fill low and high (nodes), shared_ids and packed_ids, which then ascend; see packed_slots.hpp.

    num_rows: of the table. held_slots, shared_rows (rows of the table): -1 for a row that is not held, not shared; None
    for the first num_held rows held, for no row shared. high: uint8 or uint16. Raises IndexError for an id that is no
    row, ValueError for lists of other lengths than the batch needs.
    """

def load_slots(low: NDArray[np.uint16], high: NDArray[Any], num_held: int, shift: int, rows: NDArray[np.int64]) -> None:
    """rows (nodes) = the slots, shift added to those from num_held on."""

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

class NextUses:
    """When each row of a span of batches is used next; see belady.hpp. Takes 4 bytes a row of the table."""

    def __init__(self, num_rows: int, num_batches: int) -> None: ...
    def look_back(self, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The next use of each row of the batch before (the last first), a number of a batch, or NEVER_USED."""

class BeladyCache:
    """A cache that keeps the rows that are used soonest; see belady.hpp."""

    def __init__(self, num_rows: int, capacity: int) -> None: ...
    def begin(
        self, next_uses: NextUses, num_batches: int, fills: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Begin a span that was looked back over: rows that come in, rows that go, how many were held before."""

    def step(
        self, rows: NDArray[np.int64], next_uses: NDArray[np.uint32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """The next batch: positions of rows that come in, rows that go, number of hits."""

    def __len__(self) -> int: ...

NEVER_USED: int

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
    def read(
        self, ids: NDArray[np.int64], out: NDArray[np.uint8], to_rows: NDArray[np.int64] | None = None
    ) -> tuple[int, int, int]:
        """out[to_rows] = the rows, of row_bytes; None: 0, 1, 2 ... Returns (reads, bytes_read, bytes_copied)."""

class ScanTicket:
    """Rows on their way, for which `out` and the scan are kept alive; given up once nobody holds it."""

    def wait(self) -> tuple[int, int, int, float]:
        """Returns (reads, bytes_read, bytes_copied, seconds) once all rows are in their places. Raises ReadError."""
    def leave(self) -> None:
        """Give the rows up; returns once nothing is written any more."""

class SharedScan:
    """See shared_scan.hpp. Keeps engine, file and pool alive. Takes staging_bytes, and 12 bytes an id on its way."""

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
        """Begin out[to_rows] = the rows, of row_bytes; None: 0, 1, 2 ..."""
    def close(self) -> None:
        """End the scan; rows still on their way never arrive."""

class BufferTicket:
    """Rows of a batch in a FeatureBuffer, which is kept alive; let go once nobody holds it."""

    @property
    def slots(self) -> NDArray[np.int64]:
        """(rows): where each lies, in the order of the ids; from wait() to release()."""
    @property
    def num_hits(self) -> int:
        """Rows that were there; after wait()."""
    @property
    def num_shared(self) -> int:
        """Rows that another batch was reading already; after wait()."""
    def wait(self) -> tuple[int, int, int, float]:
        """Returns (reads, bytes_read, bytes_copied, seconds) once all rows are in their slots. Raises ReadError."""
    def cancel(self) -> None:
        """Leave the line, where the batch still waits for slots: wait() fails."""
    def release(self) -> None:
        """Let the rows go, once or more."""

class FeatureBuffer:
    """See feature_buffer.hpp. rows: (slots, row_bytes). Keeps both alive. Takes 16 bytes a slot, 4 a row of a table."""

    def __init__(self, scan: SharedScan, rows: NDArray[np.uint8], most_standby: int) -> None: ...
    def submit(self, ids: NDArray[np.int64]) -> BufferTicket:
        """Put a batch of distinct rows in the line for slots, and then begin to read what is missing.

        Raises ValueError for more ids than there are slots, IndexError for one outside the table.
        """
    @property
    def totals(self) -> tuple[int, int, int]:
        """Rows (read, dropped, held) since it was made."""

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

# -- bind_id_set.cpp --

class IdSet:
    """Which of the ids below limit (at most 2^32) occur, in a bit each: collected, then closed, then asked.

    Takes limit / 8 bytes and a sixteenth of that. Any number of threads may add, and any number may ask.
    """

    def __init__(self, limit: int) -> None: ...
    def add(self, ids: NDArray[np.uint32]) -> None:
        """Collect ids. Raises IndexError for one that is not below limit, RuntimeError once closed."""

    def close(self) -> int:
        """End the collecting; how many ids there are."""

    def rank(self, ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """How many smaller ids are in the set, for each. Raises IndexError for an id that is not in the set."""

    def select(self, ranks: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The ids of given ranks. Raises IndexError for a rank that no id has."""

# -- bind_embedding.cpp --

# Arrays of NumPy or tensors of torch, as above: float32 and in one piece. Raises ValueError.
class RowUpdater:
    """Adagrad for rows of tables; see embedding.hpp. Keeps 16 bytes for each of the most rows of a call."""

    def __init__(self, num_threads: int) -> None: ...
    def update(self, values: Any, squares: Any, rows: Any, grads: Any, lr: float, epsilon: float) -> None:
        """Update, in place, the rows that are named; one that is named more than once by the sum of its gradients.

        values: (N, dim). squares: (N, dim), or (N, 1) for one sum a row, of the mean of its squares. rows: int64 (M).
        grads: (M, dim).
        """

def contrastive_softmax(
    scores: Any, positives: Any, positive_grads: Any, losses: Any, with_positive: bool, num_threads: int
) -> None:
    """Fill losses (rows) and their gradients: positive_grads (rows), and scores (rows, k) in place.

    scores on entry: of the negatives, -inf for one left out. positives: (rows). with_positive: the positive is one of
    those in the sum. A score of +inf or not a number gives a loss that is not finite.
    """

def mask_scores(left_out: tuple[Any, Any, Any, Any, Any], scores: Any) -> None:
    """Set scores (C, K) of negatives that do not count to -inf.

    left_out: int64, wanted (C): the node that each row wants; negatives (K): the nodes of columns; known, of all rows:
    other nodes that are right, of row i ascending from begins[i] to ends[i]; begins (C) and ends (C), or none of all.
    """

def has_product_gradients() -> bool:
    """Whether product_gradients() works: torch is loaded, and has MKL."""

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
) -> float:
    """The sum of contrastive_softmax() of a batch at both sides; fills grads (M, dim) and relation_grads (2 E, dim).

    nodes (N, dim), relations (R, dim). rows: int64 (M), of sources, of destinations, of negatives for destinations by
    chunks, of those for sources. relation_rows: int64 (2 E), for destinations and for sources. left_out: int64, a
    number for each row, known nodes for destinations and for sources, and begins (2 E) and ends (2 E) among them, or
    none, as for mask_scores().
    """

DistanceKind = Literal["l1", "modulus"]

def distance_scores(queries: Any, points: Any, kind: DistanceKind, scores: Any, num_threads: int) -> None:
    """Fill scores (C, K) with minus the distances of queries (C, dim) to points (K, dim).

    l1: the sum of |q - p|. modulus: of complex numbers, a row's first half real parts, its second imaginary ones.
    """

def distance_scores_backward(
    queries: Any, points: Any, kind: DistanceKind, grads: Any, grad_queries: Any, grad_points: Any, num_threads: int
) -> None:
    """Fill grad_queries and grad_points, given the gradients of distance_scores()'s scores."""

# -- bind_generate.cpp --
# See generate.hpp. Each fills arrays that the caller made; edges are those numbered first, first + 1, ...

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
    """chances: of the quadrants a, b, c, d. Ids are permuted by the seed, if is_permuted."""

def uniform_edges(num_nodes: int, seed: int, first: int, sources: _Ids, destinations: _Ids) -> None:
    """Both ends uniform."""

def block_model_edges(
    num_nodes: int, num_classes: int, homophily: float, seed: int, first: int, sources: _Ids, destinations: _Ids
) -> None:
    """Node v is of class v mod num_classes; a source is of its destination's class with chance homophily."""

def permute_ids(num_nodes: int, seed: int, part: Literal["ids", "splits"], ids: _Ids, is_inverse: bool = False) -> None:
    """Replace ids by their images under a bijection of 0 .. num_nodes - 1 that seed and part choose, or the reverse."""

def node_classes(seed: int, num_classes: int, nodes: NDArray[np.int64], classes: NDArray[np.int64]) -> None:
    """A class for each node, uniform over 0 .. num_classes - 1."""

def feature_rows(
    seed: int,
    nodes: NDArray[np.int64],
    dim: int,
    means: NDArray[np.float32],
    classes: NDArray[np.int64],
    rows: NDArray[np.float32],
) -> None:
    """Standard normal noise plus the mean of each node's class; means and rows are flat, (classes or nodes) * dim."""

# -- bind_linear.cpp --

# Tensors of torch: of one dtype, float32 or bfloat16, rows together. RuntimeError where torch's library has no MKL.
def linear(x: Any, weight: Any, bias: Any | None, dropout: float | None, seed: int, out: Any, num_threads: int) -> None:
    """Fill out with x weight^T + bias, (1, out_dim); rectified unless dropout is None. See linear.hpp."""

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
) -> None:
    """Fill grad_x (where a weight is given) and, of float32, grad_weight and grad_bias; left: what linear() left."""

# -- bind_order.cpp --

def count_ids(ids: _Ids, counts: _Ids) -> int:
    """Add how often each id occurs to counts (nodes). Any number of threads at once.

    Returns the position of the first id that is no node, and len(ids) where all are.
    """

def order_by_count_uint32(counts: _Ids) -> NDArray[np.uint32]:
    """The nodes (below 2^32) from the highest count to the lowest, ties to the lower id. Takes 8 bytes a node."""

def order_by_count_int64(counts: _Ids) -> NDArray[np.int64]:
    """The nodes from the highest count to the lowest, ties to the lower id. Takes 16 bytes a node."""

def invert_order(order: _Ids) -> NDArray[Any]:
    """What undoes a permutation: inverse[order[i]] = i. Raises ValueError for what is not one."""

def renumber_ids(ids: _Ids, new_ids: _Ids, renumbered: _Ids) -> int:
    """renumbered[i] = new_ids[ids[i]]; renumbered has the dtype of new_ids.

    Returns the position of the first id that is no node, and len(ids) where all are.
    """

# -- bind_sampling.cpp --

class NeighborSampler:
    """See sampler.hpp. Any thread may sample; each that does at the same time has a workspace of its own."""

    def sample(
        self, seeds: NDArray[np.int64], seed: int, purpose: int, epoch: int, batch: int, pool: BufferPool
    ) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], list[int], list[int], int, int
    ]:
        """The fields of a SampledBatch, in its order, from node_ids on.

        The arrays share one buffer of the pool, which gets it back with the last of them.
        """

    @property
    def workspace_bytes(self) -> int:
        """Memory of the largest workspace so far, while no batch is being sampled."""

def make_neighbor_sampler(
    indptr: NDArray[np.int64], indices: NDArray[np.uint32] | NDArray[np.int64], fanouts: Sequence[int]
) -> NeighborSampler: ...
def make_cached_sampler(
    indptr: NDArray[np.int64],
    blocks: NDArray[np.uint64],
    lists: NDArray[np.uint32] | NDArray[np.int64],
    scan: SharedScan,
    fanouts: Sequence[int],
) -> NeighborSampler:
    """The same over lists of which some are in memory and the others read: see CachedTopology in sampler.hpp."""

def keyed_permutation(num_items: int, seed: int, purpose: int, epoch: int) -> NDArray[np.int64]:
    """0 .. num_items - 1 in an order that depends on the key alone (sorted by a hash of key and item).

    Takes 16 bytes an item, of which 8 are the result.
    """

# -- bind_csc.cpp --

Ids = NDArray[np.int32] | NDArray[np.uint32] | NDArray[np.int64] | NDArray[np.uint64]

class KeyLayout:
    """Bits of an edge's key; num_numbers: 0 without edge numbers, else more than the highest."""

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
    """Edges on their way to a file of streams, one for each bucket. bucket_starts (buckets, 2): high and low words."""

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
        """None, or the position of the first edge with an id out of range and whether it is its source's."""

    def finish(self) -> None:
        """Write the rest; the file is complete, and on the disk after an fsync."""

class SortedEdges:
    """Edges in the order of destination, source and number, in memory."""

    @property
    def num_edges(self) -> int: ...
    @property
    def last_destination(self) -> int:
        """Of the last edge; there is one."""

    def indices(self, first: int, count: int) -> NDArray[np.uint32] | NDArray[np.int64]: ...
    def numbers(self, first: int, count: int) -> NDArray[np.int64]: ...
    def indptr(self, first_node: int, count: int) -> NDArray[np.int64]:
        """How many of these edges lead to nodes below first_node, first_node + 1, ..."""

class KeyRange:
    """Edges of a bucket that are sorted at once."""

    @property
    def num_edges(self) -> int: ...

class SpilledEdges:
    """All spills of a graph. Raises FormatError for one that is damaged."""

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
        """A bucket in ranges of at most so many edges, in order; one with more is read for it."""

    def sort(self, range: KeyRange) -> SortedEdges:
        """Read and sort a range: from the pool its keys twice, and once after it."""

class EdgeTable:
    """Edges sorted in memory: twice their keys."""

    def __init__(self, layout: KeyLayout, num_edges: int) -> None: ...
    def add(self, first_number: int, sources: Ids, destinations: Ids) -> tuple[int, bool] | None:
        """See EdgeSpill."""

    def sort(self, num_threads: int) -> SortedEdges:
        """The table is empty after it."""

# -- bind_tiles.cpp --

def page_sums(content: NDArray[np.uint8], first_page: int) -> int: ...
def tile_rows(rows: NDArray[np.uint8], tiles: NDArray[np.uint8], tile_row_bytes: int, num_threads: int = 1) -> None:
    """Cut rows (m, row bytes) into tiles (tiles, tile rows * tile_row_bytes), m at most the tile's rows; rest: zeros.

    A tile holds tile_row_bytes of each row, one after the other; the last tile's may be partly zeros. ValueError.
    """

def untile_rows(
    tiles: NDArray[np.uint8],
    tile_row_bytes: int,
    rows: NDArray[np.int64] | None,
    out: NDArray[np.uint8],
    num_threads: int = 1,
    to_rows: NDArray[np.int64] | None = None,
) -> None:
    """out[to_rows] = rows of tiles (tiles, tile rows * tile_row_bytes); out: (m, row bytes); None: 0, 1, 2 ...

    No row of out is named twice. Raises ValueError, and IndexError for a row that is not there.
    """

# -- bind_propagate.cpp --

ValueDtype = Literal["float32", "float16", "bfloat16"]

class StreamCounts:
    """What went through staging; seconds_waiting: while no thread could be given anything to do for want of bytes."""

    @property
    def bytes_read(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def written_sum(self) -> int: ...
    @property
    def seconds_waiting(self) -> float: ...

class ColumnBlock:
    """num_columns, a multiple of 4, of the first num_rows rows of a hop table, in memory; see propagate.hpp.

    memory: float32, at least num_rows * num_columns values, with room for padding 4 more a row; of a BufferPool for its
    huge pages. Raises ValueError where it is too small.
    """

    def __init__(self, memory: NDArray[np.float32], num_rows: int, num_columns: int) -> None: ...

class PassCounts:
    """What a pass moved and found. num_sources: one more than the last node that a list names.

    num_bad_rows: written with values that are infinite or not a number; bad_rows: the first five of them.
    """

    stream: StreamCounts
    num_sources: int
    num_bad_rows: int
    bad_rows: NDArray[np.int64]

class PropagationPass:
    """One hop of pre-propagation, some tiles of 4 columns at a time; see propagate.hpp for tables and formulas.

    Holds staging_bytes of memory, above 1 MiB rounded up to whole 2 MiB. All raise ReadError, WriteError or
    DestinationError for a transfer that failed, ValueError for sizes that do not fit together or too little staging,
    FormatError for lists that are damaged.
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
        """Fill the block from a hop table, from first_row on, a multiple of 4096; each row times its scale."""

    def write_cold_values(
        self, sources: File, num_edges: int, rows: ColumnBlock, first_row: int, values: File
    ) -> StreamCounts:
        """Write the rows of cold edges' sources, which lie in a block from first_row on; filled up to a page."""

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
        """Write the block's columns of the next hop, of all nodes. The block has the rows that lists name.

        Row i is product_scale * row_scale[i] * (the sum of list i's rows + self_weight * row i) + addend_scale *
        addend[i]; scales are files of float32 (num_nodes), the addend a hop table of as many tiles.
        """
