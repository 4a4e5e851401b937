// Plans few, aligned, large reads for row ids, and copies rows from those reads to their places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"

namespace diskhop {

/// Layout of a table: row i is at offset i * row_stride and has row_bytes bytes; the table has num_rows * row_stride
/// bytes.
struct TableLayout {
  std::uint64_t num_rows = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t row_stride = 0;
};

/// One read: bytes [offset, offset + num_bytes), with the rows first_wanted .. first_wanted + num_wanted of the sorted
/// ids. At least required_bytes of it must exist (the last block may reach past the end of the table).
struct PlannedRead {
  std::uint64_t offset;
  std::uint64_t num_bytes;
  std::uint64_t required_bytes;
  std::uint64_t first_wanted;
  std::uint64_t num_wanted;
  friend bool operator==(const PlannedRead&, const PlannedRead&) = default;
};

/// Plans reads; a pure function. Aligns each row outwards, then merges neighbours in order if they share a block, or if
/// the gap between their blocks is at most max_gap_bytes, unless the read would exceed max_read_bytes (a single row
/// may, together with all rows within its blocks). Without that limit the plan is optimal where a read costs a + b *
/// bytes and max_gap_bytes = a / b. sorted_ids ascend strictly; alignment is a power of two. max_gap_bytes < 0: one
/// read per row (the naive baseline). Throws std::invalid_argument for a layout, order or alignment that breaks a rule,
/// std::out_of_range for an id outside the table.
[[nodiscard]] std::vector<PlannedRead> plan_reads(std::span<const std::int64_t> sorted_ids, const TableLayout& layout,
                                                  std::int64_t max_gap_bytes, std::uint64_t alignment,
                                                  std::uint64_t max_read_bytes);

struct ReadCounts {
  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_copied = 0;  // by the CPU, from staging
};

struct ReadOptions {
  std::int64_t max_gap_bytes = 0;
  std::uint64_t max_read_bytes = 1 << 20;
  std::uint64_t staging_bytes = 32 << 20;  // divided among the groups of reads in flight
};

/// Staging in num_groups pieces of group_bytes. A group is submitted, and waited for, as a whole.
struct ReadGroups {
  std::uint64_t block_bytes;  // of staging: fits the alignment of offsets and of buffers
  std::uint64_t group_bytes;
  std::uint64_t num_groups;      // in flight at once
  std::uint64_t most_reads;      // per group
  std::uint64_t max_read_bytes;  // largest read that fits
};

/// Reads rows of one table into the caller's buffer. Memory per call: staging_bytes from `pool`, and up to 32 bytes per
/// id for sorting (none if ids ascend strictly). Threading: any number of calls at once.
class RowReader {
 public:
  /// Throws std::invalid_argument for a layout that breaks its rule, or if staging is too small for two reads of one
  /// row; the message names the minimum.
  RowReader(Engine& engine, const File& file, TableLayout layout, ReadOptions options, BufferPool& pool);
  /// Reads row ids[i] to out + to_rows[i] * row_bytes; an empty span of rows means 0, 1, 2 ... ids: any order, repeats
  /// allowed. Throws IoError, with nothing in flight and the output invalid; std::out_of_range for an id outside the
  /// table, before anything is read.
  ReadCounts read(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows, std::byte* out,
                  Priority priority) const;
  [[nodiscard]] const TableLayout& layout() const noexcept { return layout_; }

 private:
  /// put_row(index of the id, row) returns the number of copies that it made.
  template <typename PutRow>
  ReadCounts read_sorted(std::span<const std::int64_t> ids, PutRow put_row, Priority priority) const;

  Engine& engine_;
  const File& file_;
  TableLayout layout_;
  ReadOptions options_;
  BufferPool& pool_;
  ReadGroups groups_;
};

/// Rows in memory: row i is at data + i * stride.
struct RowArray {
  const std::byte* data;
  std::uint64_t num_rows;
  std::uint64_t stride;
};

/// Copies row from_rows[i] of `from` to row to_rows[i] of `to` (num_to_rows contiguous rows), for i < count. An empty
/// span of rows means 0, 1, 2 ...; the two sides do not overlap. Runs on up to num_threads threads, the caller's among
/// them. Returns the bytes copied. Throws, before anything is copied, std::out_of_range for a row outside either side,
/// std::invalid_argument for a repeated row in to_rows: two threads would write it at once.
std::uint64_t copy_rows(const RowArray& from, std::span<const std::int64_t> from_rows, std::byte* to,
                        std::uint64_t num_to_rows, std::span<const std::int64_t> to_rows, std::uint64_t count,
                        std::uint64_t row_bytes, unsigned num_threads);

}  // namespace diskhop
