// Rows appended to several streams of bytes, which are written to the disk in whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/rows/rows.hpp"

namespace diskhop {

/// Streams of rows, and what is appended to each: rows ids[begins[s]] .. ids[begins[s] + counts[s] - 1] of a table.
struct RowStreams {
  std::span<const std::uint32_t> ids;
  std::span<const std::int64_t> begins;
  std::span<const std::int64_t> counts;
  /// First byte of each stream in the output.
  std::span<const std::int64_t> places;
  /// (streams, block_bytes): the last bytes of each stream, which do not fill a block: rest_bytes[s] of them.
  std::span<std::byte> rests;
  std::span<std::int64_t> rest_bytes;
  std::uint64_t block_bytes;
};

/// Appends rows to streams. `from` has rows first_id, first_id + 1 ... of the table. For each stream with ids, out has
/// its rest and then its rows, from places[s] on; what does not fill a block becomes its rest. Places must be apart.
/// Runs on up to num_threads threads, the caller's among them. Throws, before anything is changed, std::out_of_range
/// for a row outside `from` and for bytes outside an array, std::invalid_argument for arrays of other lengths.
void append_rows(const RowArray& from, std::uint64_t row_bytes, std::uint64_t first_id, const RowStreams& streams,
                 std::span<std::byte> out, unsigned num_threads);

}  // namespace diskhop
