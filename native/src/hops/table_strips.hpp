// Strips of a hop table: rows of a few adjacent tiles, as many at a time as fit into staging.
//
// A *strip* is a whole number of a group's 512ths of rows, so its part of every tile is whole pages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "diskhop/hops/propagate.hpp"

namespace diskhop {

inline constexpr std::uint64_t min_strip_rows = 512;

struct StripSizes {
  std::uint64_t num_rows = 0;  // per strip: a power of two from min_strip_rows to group_rows
  std::uint64_t num_slots = 0;
};

/// Chooses the tallest strips of which staging_bytes hold at least four, else the shortest. Throws
/// std::invalid_argument, naming the minimum, if not even one of those fits.
[[nodiscard]] StripSizes choose_strips(const std::string& what, std::uint64_t staging_bytes,
                                       const std::function<std::uint64_t(std::uint64_t num_rows)>& slot_bytes);

/// Bytes of a strip's part of this many tiles.
[[nodiscard]] constexpr std::uint64_t tiles_bytes(const TableColumns& table, std::uint64_t num_tiles,
                                                  std::uint64_t strip_rows) noexcept {
  return num_tiles * strip_rows * tile_columns * value_bytes(table.format);
}

/// Returns transfers between a strip's part of the tiles from first_tile on and memory, tile after tile. first_row may
/// lie within the last group's padding.
[[nodiscard]] std::vector<Op> tile_ops(OperationKind kind, const TableColumns& table, std::uint64_t num_tiles,
                                       std::uint64_t first_row, std::uint64_t strip_rows, std::byte* memory);

/// Throws std::invalid_argument unless num_columns are whole tiles of the table.
void check_columns(const char* what, const TableColumns& table, std::uint64_t num_columns);

}  // namespace diskhop
