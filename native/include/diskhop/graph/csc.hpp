// From edges in any order to in-neighbour lists (CSC), in memory or by way of the disk.
//
// An edge is one number, its *key*: destination, source and, if wanted, the edge's number in the input, from the
// highest bits down. Sorted keys are the sorted lists, and equal keys are identical edges: the result depends only on
// the edges. A *bucket* is a range of keys; a hub's edges may fill several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"

namespace diskhop {

/// Number of bits of each part of a key. Keys of up to 64 bits take 8 bytes of memory, wider ones 16. On disk a key
/// takes only the bytes that its distance from its bucket's start needs.
struct KeyLayout {
  std::uint64_t num_sources = 1;
  std::uint64_t num_destinations = 1;
  unsigned source_bits = 0;
  unsigned destination_bits = 0;
  unsigned number_bits = 0;
  bool is_numbered = false;

  [[nodiscard]] unsigned bits() const noexcept { return destination_bits + source_bits + number_bits; }
  [[nodiscard]] unsigned key_bytes() const noexcept { return bits() <= 64 ? 8 : 16; }
  /// Bytes per index in the dataset's format.
  [[nodiscard]] unsigned index_bytes() const noexcept { return num_sources < (std::uint64_t{1} << 32) ? 4 : 8; }
};

/// num_numbers: 0 for keys without the edge's number, else more than the highest number. Throws std::invalid_argument
/// for counts of 0 or above 2^62, or if a key would need more than 128 bits.
[[nodiscard]] KeyLayout make_key_layout(std::uint64_t num_sources, std::uint64_t num_destinations,
                                        std::uint64_t num_numbers);

/// A key as two words: one type for both widths.
struct KeyWords {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

/// Ids of one end of consecutive edges. Negative ids are out of range.
struct IdColumn {
  const std::byte* first = nullptr;
  std::ptrdiff_t stride_bytes = 0;
  bool is_signed = true;
  unsigned id_bytes = 8;  // 4 or 8
};

/// The first edge with an end out of range; if both ends are, its source.
struct BadEnd {
  std::uint64_t position = 0;
  bool is_source = true;
};

/// Writes edges to disk: a file of streams, one per bucket. Threading: one thread.
class EdgeSpill {
 public:
  virtual ~EdgeSpill() = default;
  /// Adds edges with the numbers first_number, first_number + 1, ... Returns the first end that is out of range, if
  /// any; the file must then be discarded. Throws std::out_of_range for numbers that keys have no bits for, IoError or
  /// CrashError for a write that failed.
  [[nodiscard]] virtual std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources,
                                                  const IdColumn& destinations, std::size_t count) = 0;
  /// Completes the file. It is on disk only after an fsync.
  virtual void finish() = 0;
};

/// bucket_starts ascend strictly from 0: bucket b has the keys from its start to before the next one's. Memory from the
/// pool: StreamFileWriter::memory_bytes(buckets, block_bytes, num_spare_blocks). Engine and pool must outlive the
/// result. Throws IoError, std::invalid_argument for starts that break the rule.
[[nodiscard]] std::unique_ptr<EdgeSpill> make_edge_spill(Engine& engine, BufferPool& pool, const std::string& path,
                                                         const KeyLayout& layout,
                                                         std::span<const KeyWords> bucket_starts,
                                                         std::uint64_t block_bytes, std::size_t num_spare_blocks);

/// Edges in the order of their keys, in memory. Threading: any thread.
class SortedEdges {
 public:
  virtual ~SortedEdges() = default;
  [[nodiscard]] virtual std::uint64_t num_edges() const noexcept = 0;
  /// Destination of the last edge; there is at least one edge.
  [[nodiscard]] virtual std::uint64_t last_destination() const = 0;
  /// Copies the sources (in layout.index_bytes()), or numbers, of edges first .. first + count - 1.
  virtual void copy_indices(std::uint64_t first, std::uint64_t count, std::byte* out) const = 0;
  virtual void copy_numbers(std::uint64_t first, std::span<std::int64_t> out) const = 0;
  /// For nodes first_node, first_node + 1, ...: fills the number of these edges with a smaller destination.
  virtual void copy_indptr(std::uint64_t first_node, std::span<std::int64_t> out) const = 0;
};

/// Part of a bucket: the edges with keys from `first` to `last`.
struct KeyRange {
  std::size_t bucket = 0;
  KeyWords first;
  KeyWords last;
  std::uint64_t num_edges = 0;
};

/// All spills of a graph, open for sorting. Threading: any thread.
class SpilledEdges {
 public:
  virtual ~SpilledEdges() = default;
  /// Splits a bucket into ranges of at most max_edges, in order. A bucket with no more edges is one range and is not
  /// read. Otherwise it is read once, and again for each narrow range of keys with too many edges. Memory, from the
  /// pool: a window. Throws IoError, DamagedFileError.
  [[nodiscard]] virtual std::vector<KeyRange> cut(std::size_t bucket, std::uint64_t max_edges) const = 0;
  /// Reads and sorts a range. Memory, from the pool: its keys twice, and once afterwards; a page per block of the
  /// bucket, or a window if the range is only part of it. Throws IoError, DamagedFileError.
  [[nodiscard]] virtual std::unique_ptr<SortedEdges> sort(const KeyRange& range) const = 0;
};

/// window_blocks: blocks read ahead where a bucket is read in order. Engine and pool must outlive the result and what
/// it sorts. Throws IoError, DamagedFileError.
[[nodiscard]] std::unique_ptr<SpilledEdges> open_spilled_edges(Engine& engine, BufferPool& pool,
                                                               const KeyLayout& layout,
                                                               std::span<const std::string> spill_paths,
                                                               std::span<const KeyWords> bucket_starts,
                                                               std::size_t window_blocks);

/// Edges that are sorted in memory. Memory: twice the keys. Threading: add() for different edges from any thread;
/// sort() after all of them.
class EdgeTable {
 public:
  virtual ~EdgeTable() = default;
  /// Sets edges first_number, first_number + 1, ...; see EdgeSpill::add().
  [[nodiscard]] virtual std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources,
                                                  const IdColumn& destinations, std::size_t count) = 0;
  /// Sorts all edges, which must be set. The table is empty afterwards.
  [[nodiscard]] virtual std::unique_ptr<SortedEdges> sort(unsigned num_threads) = 0;
};

/// Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<EdgeTable> make_edge_table(const KeyLayout& layout, std::uint64_t num_edges);

}  // namespace diskhop
