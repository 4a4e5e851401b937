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

#include "diskhop/buffer.hpp"
#include "diskhop/engine.hpp"

namespace diskhop {

/// How many bits of a key each part takes. Keys of up to 64 bits are stored in 8 bytes, wider ones in 16.
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

/// A bucket's part of the lists: a file of streams with the sources of its edges (uint32 or int64), its entries of
/// indptr (int64), and the numbers of its edges (int64) where keys have them. Parts one after another are the whole.
inline constexpr std::size_t part_indices = 0;
inline constexpr std::size_t part_indptr = 1;
inline constexpr std::size_t part_numbers = 2;

struct BucketSort {
  KeyLayout layout;
  std::vector<std::string> spill_paths;
  std::vector<KeyWords> bucket_starts;  // of all buckets
  std::size_t bucket = 0;
  std::string part_path;
  std::uint64_t block_bytes = 0;  // of the part
  std::size_t num_spare_blocks = 1;
  std::size_t num_window_blocks = 2;  // of the spills, read ahead where a bucket takes several passes
  std::uint64_t max_keys = 1;         // that are sorted at once
};

/// Sorts a bucket that the spills hold in pieces into its part. One of more than max_keys is read as often as it takes,
/// a narrower range of keys each time. Returns how often it was read.
/// Memory, from the pool: 2 * max_keys keys, a page for each spill, num_window_blocks of the spills, 3 +
/// num_spare_blocks of the part. Throws IoError, CrashError, DamagedFileError.
std::uint64_t sort_bucket(Engine& engine, BufferPool& pool, const BucketSort& job);

/// Edges that are sorted where they are. Takes twice the keys. Threading: add() for different edges from any thread;
/// nothing else beside it.
class EdgeTable {
 public:
  virtual ~EdgeTable() = default;
  /// Sets edges number first_number and so on; see EdgeSpill.
  [[nodiscard]] virtual std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources,
                                                  const IdColumn& destinations, std::size_t count) = 0;
  /// Every edge was set.
  virtual void sort(unsigned num_threads) = 0;
  /// Of the sorted edges `first` .. first + count: sources (as layout.index_bytes() says), numbers.
  virtual void copy_indices(std::uint64_t first, std::uint64_t count, std::byte* out) const = 0;
  virtual void copy_numbers(std::uint64_t first, std::span<std::int64_t> out) const = 0;
  /// Of nodes first_node, first_node + 1, ...: the number of edges to nodes below each.
  virtual void copy_indptr(std::uint64_t first_node, std::span<std::int64_t> out) const = 0;
};

/// Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<EdgeTable> make_edge_table(const KeyLayout& layout, std::uint64_t num_edges);

}  // namespace diskhop
