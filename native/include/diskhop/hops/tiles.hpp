// Rows cut into tiles, and tiles put together to rows: how a hop table's columns lie together on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Rows of row_bytes, whose columns are cut into parts of tile_row_bytes, the last of which may be shorter. A tile
/// holds one such part of num_rows rows, one after the other; tiles follow each other in the order of the columns.
struct Tiling {
  std::uint64_t num_rows = 0;  // of a tile
  std::uint64_t row_bytes = 0;
  std::uint64_t tile_row_bytes = 0;

  [[nodiscard]] std::uint64_t num_tiles() const { return (row_bytes + tile_row_bytes - 1) / tile_row_bytes; }
  [[nodiscard]] std::uint64_t tile_bytes() const { return num_rows * tile_row_bytes; }
};

/// Cuts `count` rows, at most those of a tile, into tiles (num_tiles * tile_bytes); what is left of them is zeros.
/// Runs on up to num_threads threads, the caller's among them. Throws std::invalid_argument for too many rows or parts
/// without bytes.
void tile_rows(const std::byte* rows, std::uint64_t count, const Tiling& tiling, std::byte* tiles,
               unsigned num_threads);

/// Row to_rows[i] of `out` (num_out_rows rows without gaps) becomes row rows[i] of the tiles, for i < count; an empty
/// span stands for 0, 1, 2 ... No row of out is named twice. Throws, before anything is copied, std::out_of_range for a
/// row that is not there, and as above. Threads as above.
void untile_rows(const std::byte* tiles, const Tiling& tiling, std::span<const std::int64_t> rows, std::byte* out,
                 std::uint64_t num_out_rows, std::span<const std::int64_t> to_rows, std::uint64_t count,
                 unsigned num_threads);

}  // namespace diskhop
