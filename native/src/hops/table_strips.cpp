#include "hops/table_strips.hpp"

#include <stdexcept>

namespace diskhop {

StripSizes choose_strips(const std::string& what, std::uint64_t staging_bytes,
                         const std::function<std::uint64_t(std::uint64_t num_rows)>& slot_bytes) {
  std::uint64_t num_rows = group_rows;
  while (num_rows > min_strip_rows && staging_bytes / slot_bytes(num_rows) < 4) num_rows /= 2;
  const std::uint64_t num_slots = staging_bytes / slot_bytes(num_rows);
  if (num_slots == 0) {
    throw std::invalid_argument(what + " takes at least " + std::to_string(slot_bytes(num_rows)) +
                                " bytes of staging, got " + std::to_string(staging_bytes));
  }
  return {.num_rows = num_rows, .num_slots = num_slots};
}

std::vector<Op> tile_ops(OperationKind kind, const TableColumns& table, std::uint64_t num_tiles,
                         std::uint64_t first_row, std::uint64_t strip_rows, std::byte* memory) {
  const std::uint64_t group_tile_bytes = tiles_bytes(table, 1, group_rows);
  const std::uint64_t group_offset = first_row / group_rows * table.num_tiles * group_tile_bytes;
  const std::uint64_t offset_in_tile = tiles_bytes(table, 1, first_row % group_rows);
  // Whole groups have contiguous tiles.
  const std::uint64_t num_ops = strip_rows == group_rows ? 1 : num_tiles;
  const std::uint64_t op_bytes = tiles_bytes(table, num_tiles, strip_rows) / num_ops;
  std::vector<Op> ops;
  for (std::uint64_t number = 0; number < num_ops; ++number) {
    ops.push_back({.kind = kind,
                   .file = table.file,
                   .offset = group_offset + (table.first_tile + number) * group_tile_bytes + offset_in_tile,
                   .buffer = memory + number * op_bytes,
                   .num_bytes = op_bytes});
  }
  return ops;
}

void check_columns(const char* what, const TableColumns& table, std::uint64_t num_columns) {
  const std::uint64_t num_tiles = num_columns / tile_columns;
  if (num_columns == 0 || num_columns % tile_columns != 0 || table.first_tile > table.num_tiles ||
      num_tiles > table.num_tiles - table.first_tile) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(num_columns) + " columns from tile " +
                                std::to_string(table.first_tile) + " on are no whole tiles of a table of " +
                                std::to_string(table.num_tiles) + " tiles");
  }
}

}  // namespace diskhop
