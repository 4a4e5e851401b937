// Row ids in the order of the table, each with its place among the caller's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/radix_sort.hpp"

namespace diskhop {

struct PlacedId {
  std::uint64_t id;
  std::uint64_t place;
};

/// Throws std::out_of_range for a row outside the table.
inline void check_id(std::int64_t id, std::uint64_t num_rows) {
  if (static_cast<std::uint64_t>(id) < num_rows) return;
  throw std::out_of_range("row " + std::to_string(id) + " is outside the table of " + std::to_string(num_rows) +
                          " rows");
}

/// Sorts ids, equal ones by their places. Memory: 32 bytes per id. Throws as check_id(), and std::length_error for more
/// ids than 32 bits count.
inline std::vector<PlacedId> sort_by_id(std::span<const std::int64_t> ids, std::uint64_t num_rows) {
  if (ids.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw std::length_error("rows are read at most 2^32 - 1 at once, got " + std::to_string(ids.size()) + " ids");
  }
  std::vector<PlacedId> items;
  items.reserve(ids.size());
  for (std::size_t place = 0; place < ids.size(); ++place) {
    check_id(ids[place], num_rows);
    items.push_back({static_cast<std::uint64_t>(ids[place]), place});
  }
  radix_sort(items, static_cast<unsigned>(std::bit_width(num_rows)), [](const PlacedId& item) { return item.id; });
  return items;
}

}  // namespace diskhop
