// From edges in any order to in-neighbour lists (CSC), in memory or by way of the disk.
//
// An edge is one number, its *key*: destination, source and, where it is wanted, the edge's number in the input, from
// the highest bits down. Keys in order are the lists in order, and equal keys are edges that nothing tells apart: what
// comes out depends on the edges alone. A *bucket* is a range of keys; a hub's edges may fill several.
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

/// How many bits of a key each part takes. Keys of up to 64 bits take 8 bytes of memory, wider ones 16; on the disk
/// they take as few as their distance from their bucket's start fits in.
struct KeyLayout {
  std::uint64_t num_sources = 1;
  std::uint64_t num_destinations = 1;
  unsigned source_bits = 0;
  unsigned destination_bits = 0;
  unsigned number_bits = 0;
  bool is_numbered = false;

  [[nodiscard]] unsigned bits() const noexcept { return destination_bits + source_bits + number_bits; }
  [[nodiscard]] unsigned key_bytes() const noexcept { return bits() <= 64 ? 8 : 16; }
  /// Indices are as the dataset's format has them.
  [[nodiscard]] unsigned index_bytes() const noexcept { return num_sources < (std::uint64_t{1} << 32) ? 4 : 8; }
};

/// `num_numbers`: 0 for keys without the edge's number, else more than the highest. Throws std::invalid_argument for
/// counts of 0, above 2^62, or such that a key would take more than 128 bits.
[[nodiscard]] KeyLayout make_key_layout(std::uint64_t num_sources, std::uint64_t num_destinations,
                                        std::uint64_t num_numbers);

/// A key as two words, so that one type serves for both widths.
struct KeyWords {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

/// Ids of one end of consecutive edges. What is negative is out of range, as what is too large.
struct IdColumn {
  const std::byte* first = nullptr;
  std::ptrdiff_t stride_bytes = 0;
  bool is_signed = true;
  unsigned id_bytes = 8;  // 4 or 8
};

/// The first edge of some that has an end out of range; the source where both are.
struct BadEnd {
  std::uint64_t position = 0;
  bool is_source = true;
};

/// Edges on their way to the disk: a file of streams, one for each bucket. Threading: one thread.
class EdgeSpill {
 public:
  virtual ~EdgeSpill() = default;
  /// Adds edges with the numbers first_number, first_number + 1, ... or, where an end is out of range, says which:
  /// the file is then to be thrown away. Throws std::out_of_range for numbers that keys have no bits for, IoError or
  /// CrashError for a write that failed.
  [[nodiscard]] virtual std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources,
                                                  const IdColumn& destinations, std::size_t count) = 0;
  /// The file is complete after it, and on the disk after an fsync.
  virtual void finish() = 0;
};

/// `bucket_starts` ascend strictly from 0: bucket b holds the keys from its start to before the next one's.
/// Memory: StreamFileWriter::memory_bytes(buckets, block_bytes, num_spare_blocks) from the pool.
/// Engine and pool must outlive it. Throws IoError; std::invalid_argument for starts that break the rule.
[[nodiscard]] std::unique_ptr<EdgeSpill> make_edge_spill(Engine& engine, BufferPool& pool, const std::string& path,
                                                         const KeyLayout& layout,
                                                         std::span<const KeyWords> bucket_starts,
                                                         std::uint64_t block_bytes, std::size_t num_spare_blocks);

/// Edges in the order of their keys, in memory. Threading: any thread.
class SortedEdges {
 public:
  virtual ~SortedEdges() = default;
  [[nodiscard]] virtual std::uint64_t num_edges() const noexcept = 0;
  /// Of the last edge; there is one.
  [[nodiscard]] virtual std::uint64_t last_destination() const = 0;
  /// Of edges `first` .. first + count: sources (as layout.index_bytes() says), numbers.
  virtual void copy_indices(std::uint64_t first, std::uint64_t count, std::byte* out) const = 0;
  virtual void copy_numbers(std::uint64_t first, std::span<std::int64_t> out) const = 0;
  /// Of nodes first_node, first_node + 1, ...: the number of these edges to nodes below each.
  virtual void copy_indptr(std::uint64_t first_node, std::span<std::int64_t> out) const = 0;
};

/// Some of a bucket's edges: those with keys from `first` to `last`.
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
  /// Cuts a bucket into ranges of at most max_edges, in order, all of its edges in them. One of no more is a range and
  /// is not looked at; else it is read once, and again for a narrow range of keys that holds too many.
  /// Memory, from the pool: a window. Throws IoError, DamagedFileError.
  [[nodiscard]] virtual std::vector<KeyRange> cut(std::size_t bucket, std::uint64_t max_edges) const = 0;
  /// Reads and sorts a range. Memory, from the pool: its keys twice, once after it; a page for each block that a
  /// bucket has, or a window where the range is not all of it. Throws IoError, DamagedFileError.
  [[nodiscard]] virtual std::unique_ptr<SortedEdges> sort(const KeyRange& range) const = 0;
};

/// window_blocks: of the spills, read ahead where a bucket is read in order. Engine and pool must outlive it and what
/// it sorts. Throws IoError, DamagedFileError.
[[nodiscard]] std::unique_ptr<SpilledEdges> open_spilled_edges(Engine& engine, BufferPool& pool,
                                                               const KeyLayout& layout,
                                                               std::span<const std::string> spill_paths,
                                                               std::span<const KeyWords> bucket_starts,
                                                               std::size_t window_blocks);

/// Edges that are sorted where they are. Takes twice the keys. Threading: add() for different edges from any thread;
/// nothing else beside it.
class EdgeTable {
 public:
  virtual ~EdgeTable() = default;
  /// Sets edges number first_number and so on; see EdgeSpill.
  [[nodiscard]] virtual std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources,
                                                  const IdColumn& destinations, std::size_t count) = 0;
  /// Every edge was set. The table is empty after it.
  [[nodiscard]] virtual std::unique_ptr<SortedEdges> sort(unsigned num_threads) = 0;
};

/// Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<EdgeTable> make_edge_table(const KeyLayout& layout, std::uint64_t num_edges);

}  // namespace diskhop
