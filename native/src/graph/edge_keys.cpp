#include "graph/edge_keys.hpp"

#include <cstring>

namespace diskhop {
namespace {

constexpr std::uint64_t max_count = std::uint64_t{1} << 62;

/// Ids with a stride known to the compiler are loaded several at once.
template <typename Id>
bool load_as(const IdColumn& column, std::size_t first, std::span<std::uint64_t> ids, std::uint64_t limit) noexcept {
  const std::byte* const begin = column.first + static_cast<std::ptrdiff_t>(first) * column.stride_bytes;
  // The highest bit shows an id below 0 or above the limit. This avoids comparisons of unsigned vectors, which few
  // processors have.
  std::uint64_t signs = 0;
  const auto load = [&](std::ptrdiff_t stride_bytes) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Id id = 0;
      std::memcpy(&id, begin + static_cast<std::ptrdiff_t>(i) * stride_bytes, sizeof(Id));
      ids[i] = static_cast<std::uint64_t>(id);
      signs |= ids[i] | (limit - 1 - ids[i]);
    }
  };
  if (column.stride_bytes == sizeof(Id)) {
    load(sizeof(Id));
  } else if (column.stride_bytes == 2 * sizeof(Id)) {
    load(2 * sizeof(Id));
  } else {
    load(column.stride_bytes);
  }
  return signs >> 63 == 0;
}

}  // namespace

KeyLayout make_key_layout(std::uint64_t num_sources, std::uint64_t num_destinations, std::uint64_t num_numbers) {
  const auto width = [](std::uint64_t count) { return static_cast<unsigned>(std::bit_width(count - 1)); };
  if (num_sources == 0 || num_destinations == 0 || std::max({num_sources, num_destinations, num_numbers}) > max_count) {
    throw std::invalid_argument("edges need nodes at both ends, and counts up to 2^62");
  }
  const KeyLayout layout = {.num_sources = num_sources,
                            .num_destinations = num_destinations,
                            .source_bits = width(num_sources),
                            .destination_bits = width(num_destinations),
                            .number_bits = num_numbers == 0 ? 0 : width(num_numbers),
                            .is_numbered = num_numbers > 0};
  if (layout.bits() > 128) {
    throw std::invalid_argument("the ids of both ends and the number of an edge take " + std::to_string(layout.bits()) +
                                " bits; the most is 128");
  }
  return layout;
}

bool load_ids(const IdColumn& column, std::size_t first, std::span<std::uint64_t> ids, std::uint64_t limit) noexcept {
  if (column.id_bytes == 4) {
    return column.is_signed ? load_as<std::int32_t>(column, first, ids, limit)
                            : load_as<std::uint32_t>(column, first, ids, limit);
  }
  return load_as<std::uint64_t>(column, first, ids, limit);
}

}  // namespace diskhop
