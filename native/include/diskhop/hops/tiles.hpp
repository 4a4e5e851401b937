// Converts rows to tiles and back: tiles keep neighbouring columns of a hop table together on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Rows of row_bytes, split into parts of tile_row_bytes; the last part may be shorter. A tile has one such part of
/// num_rows rows, row after row; tiles follow in the order of the columns.
struct Tiling {
  std::uint64_t num_rows = 0;  // per tile
  std::uint64_t row_bytes = 0;
  std::uint64_t tile_row_bytes = 0;

  [[nodiscard]] std::uint64_t num_tiles() const { return (row_bytes + tile_row_bytes - 1) / tile_row_bytes; }
  [[nodiscard]] std::uint64_t tile_bytes() const { return num_rows * tile_row_bytes; }
};

/// Splits `count` rows, at most those of a tile, into tiles (num_tiles * tile_bytes); the rest of the tiles becomes
/// zeros. Runs on up to num_threads threads, the caller's among them. Throws std::invalid_argument for too many rows or
/// parts without bytes.
void tile_rows(const std::byte* rows, std::uint64_t count, const Tiling& tiling, std::byte* tiles,
               unsigned num_threads);

/// Copies row rows[i] of the tiles to row to_rows[i] of `out` (num_out_rows contiguous rows), for i < count. An empty
/// span means 0, 1, 2 ... No row of out is named twice. Runs on up to num_threads threads. Throws, before anything is
/// copied, std::out_of_range for a row that does not exist, and as tile_rows().
void untile_rows(const std::byte* tiles, const Tiling& tiling, std::span<const std::int64_t> rows, std::byte* out,
                 std::uint64_t num_out_rows, std::span<const std::int64_t> to_rows, std::uint64_t count,
                 unsigned num_threads);

}  // namespace diskhop
