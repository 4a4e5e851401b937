#include "diskhop/cache/packed_slots.hpp"

#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/radix_sort.hpp"

namespace diskhop {
namespace {

constexpr unsigned id_bits = 32, low_bits = 16;
// Distance of prefetching: slots are at random places of a list as long as the table.
constexpr std::size_t prefetch_distance = 16;

/// Place in memory of a row of the table, or -1.
[[nodiscard]] std::int64_t resident_slot(const UnpackedRows& unpacked, std::uint64_t id) {
  if (!unpacked.resident_slots.empty()) return unpacked.resident_slots[id];
  return id < unpacked.num_resident ? static_cast<std::int64_t>(id) : -1;
}

/// Key of a row that the batch needs: its id in the upper half, its position in the batch in the lower half.
[[nodiscard]] std::uint64_t numbered_row(std::int64_t id, std::size_t place) {
  return static_cast<std::uint64_t>(id) << id_bits | place;
}

void require_room(std::size_t given, std::size_t needed, const char* kind) {
  if (given != needed) {
    throw std::invalid_argument("the batch brings " + std::to_string(needed) + " " + kind +
                                " rows, and there is room for " + std::to_string(given));
  }
}

}  // namespace

template <typename High>
void assign_slots(std::span<const std::int64_t> ids, std::uint64_t num_rows, const UnpackedRows& unpacked,
                  std::span<std::uint16_t> low, std::span<High> high, std::span<std::uint32_t> shared_ids,
                  std::span<std::uint32_t> packed_ids) {
  const auto has_each_row = [&](std::size_t size) { return size == 0 || size == num_rows; };
  if (num_rows > std::uint64_t{1} << id_bits || ids.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("rows and nodes of a batch are counted by 32 bits");
  }
  if (!has_each_row(unpacked.resident_slots.size()) || !has_each_row(unpacked.shared_rows.size())) {
    throw std::invalid_argument("resident_slots and shared_rows must have an entry for each row of the table");
  }
  if (low.size() != ids.size() || high.size() != ids.size()) {
    throw std::invalid_argument("there must be a slot for each id");
  }
  const std::uint64_t num_slots = unpacked.num_resident + shared_ids.size() + packed_ids.size();
  if (num_slots > std::uint64_t{1} << (low_bits + std::numeric_limits<High>::digits)) {
    throw std::invalid_argument(std::to_string(num_slots) + " slots take more bits");
  }

  const auto put = [&](std::size_t place, std::uint64_t slot) {
    low[place] = static_cast<std::uint16_t>(slot);
    high[place] = static_cast<High>(slot >> low_bits);
  };
  std::vector<std::uint64_t> shared, packed;
  packed.reserve(packed_ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + prefetch_distance < ids.size()) {
      const auto ahead = static_cast<std::uint64_t>(ids[i + prefetch_distance]);
      if (ahead < unpacked.resident_slots.size()) __builtin_prefetch(&unpacked.resident_slots[ahead]);
    }
    const auto id = static_cast<std::uint64_t>(ids[i]);  // a negative id is a very large one
    if (id >= num_rows) {
      throw std::out_of_range("row " + std::to_string(ids[i]) + " is outside a table of " + std::to_string(num_rows) +
                              " rows");
    }
    if (const std::int64_t slot = resident_slot(unpacked, id); slot >= 0) {
      put(i, static_cast<std::uint64_t>(slot));
    } else if (!unpacked.shared_rows.empty() && unpacked.shared_rows[id] >= 0) {
      shared.push_back(numbered_row(unpacked.shared_rows[id], i));
    } else {
      packed.push_back(numbered_row(ids[i], i));
    }
  }

  std::uint64_t next_slot = unpacked.num_resident;
  const auto list = [&](std::vector<std::uint64_t>& rows, std::span<std::uint32_t> listed, const char* kind) {
    require_room(listed.size(), rows.size(), kind);
    std::uint64_t most = 0;
    for (const std::uint64_t row : rows) most |= row >> id_bits;
    radix_sort(rows, static_cast<unsigned>(std::bit_width(most)), [](std::uint64_t row) { return row >> id_bits; });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      listed[i] = static_cast<std::uint32_t>(rows[i] >> id_bits);
      put(static_cast<std::uint32_t>(rows[i]), next_slot++);
    }
  };
  list(shared, shared_ids, "shared");
  list(packed, packed_ids, "packed");
}

template <typename High>
void load_slots(std::span<const std::uint16_t> low, std::span<const High> high, std::int64_t num_resident,
                std::int64_t shift, std::span<std::int64_t> rows) {
  if (low.size() != rows.size() || high.size() != rows.size()) {
    throw std::invalid_argument("there must be a slot for each row");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(high[i]) << low_bits | low[i];
    rows[i] = slot < num_resident ? slot : slot + shift;
  }
}

template void assign_slots(std::span<const std::int64_t>, std::uint64_t, const UnpackedRows&, std::span<std::uint16_t>,
                           std::span<std::uint8_t>, std::span<std::uint32_t>, std::span<std::uint32_t>);
template void assign_slots(std::span<const std::int64_t>, std::uint64_t, const UnpackedRows&, std::span<std::uint16_t>,
                           std::span<std::uint16_t>, std::span<std::uint32_t>, std::span<std::uint32_t>);
template void load_slots(std::span<const std::uint16_t>, std::span<const std::uint8_t>, std::int64_t, std::int64_t,
                         std::span<std::int64_t>);
template void load_slots(std::span<const std::uint16_t>, std::span<const std::uint16_t>, std::int64_t, std::int64_t,
                         std::span<std::int64_t>);

}  // namespace diskhop
