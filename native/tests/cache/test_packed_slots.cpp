// Slots against a look-up of each node by itself, for any resident and shared rows, and every rule about sizes.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/cache/packed_slots.hpp"

using diskhop::UnpackedRows;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

constexpr std::uint64_t num_rows = 5000;

struct Batch {
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> resident_slots;
  std::vector<std::int64_t> shared_rows;
  std::uint64_t num_resident;
};

template <typename High>
void check_batch(const Batch& batch) {
  // Ordered as the lists must be.
  std::map<std::int64_t, std::int64_t> shared, packed;
  std::vector<std::int64_t> held(batch.ids.size(), -1);
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(batch.ids[i]);
    const bool is_first = batch.resident_slots.empty() && id < batch.num_resident;
    held[i] = is_first ? batch.ids[i] : batch.resident_slots.empty() ? -1 : batch.resident_slots[id];
    if (held[i] >= 0) continue;
    if (!batch.shared_rows.empty() && batch.shared_rows[id] >= 0) {
      shared[batch.shared_rows[id]] = batch.ids[i];
    } else {
      packed[batch.ids[i]] = batch.ids[i];
    }
  }
  std::map<std::int64_t, std::int64_t> slot_of;
  std::vector<std::uint32_t> expected_shared, expected_packed;
  auto next = static_cast<std::int64_t>(batch.num_resident);
  for (const auto& [row, id] : shared) {
    slot_of[id] = next++;
    expected_shared.push_back(static_cast<std::uint32_t>(row));
  }
  for (const auto& [row, id] : packed) {
    slot_of[id] = next++;
    expected_packed.push_back(static_cast<std::uint32_t>(row));
  }

  std::vector<std::uint16_t> low(batch.ids.size());
  std::vector<High> high(batch.ids.size());
  std::vector<std::uint32_t> shared_ids(shared.size()), packed_ids(packed.size());
  const UnpackedRows unpacked{
      .num_resident = batch.num_resident, .resident_slots = batch.resident_slots, .shared_rows = batch.shared_rows};
  diskhop::assign_slots<High>(batch.ids, num_rows, unpacked, low, high, shared_ids, packed_ids);
  check(shared_ids == expected_shared, "shared rows by their place in the shared table");
  check(packed_ids == expected_packed, "packed rows by their id");
  std::vector<std::int64_t> rows(batch.ids.size());
  constexpr std::int64_t shift = 12;
  diskhop::load_slots<High>(low, high, static_cast<std::int64_t>(batch.num_resident), shift, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check(rows[i] == (held[i] >= 0 ? held[i] : slot_of[batch.ids[i]] + shift), "a node's slot is where its row is");
  }

  std::vector<std::uint32_t> one_more(packed.size() + 1);
  check_throws<std::invalid_argument>(
      [&] { diskhop::assign_slots<High>(batch.ids, num_rows, unpacked, low, high, shared_ids, one_more); },
      "the number of packed rows must match");
}

Batch make_batch(std::mt19937_64& random, std::size_t num_ids, bool is_listed, bool has_shared) {
  Batch batch;
  for (std::int64_t id = 0; id < static_cast<std::int64_t>(num_rows); ++id) batch.ids.push_back(id);
  std::shuffle(batch.ids.begin(), batch.ids.end(), random);
  const std::vector<std::int64_t> order = batch.ids;
  std::shuffle(batch.ids.begin(), batch.ids.end(), random);
  batch.ids.resize(num_ids);
  batch.num_resident = random() % 1000;
  if (is_listed) {
    batch.resident_slots.assign(num_rows, -1);
    for (std::size_t slot = 0; slot < batch.num_resident; ++slot) {
      batch.resident_slots[static_cast<std::size_t>(order[slot])] = static_cast<std::int32_t>(slot);
    }
  }
  if (has_shared) {
    batch.shared_rows.assign(num_rows, -1);
    for (std::size_t i = 0; i < 1000; ++i) {
      batch.shared_rows[static_cast<std::size_t>(order[num_rows - 1 - i])] = static_cast<std::int64_t>(100'000 + i);
    }
  }
  return batch;
}

}  // namespace

int main() {
  std::mt19937_64 random(7);
  for (const std::size_t num_ids : {0, 1, 2, 63, 900, 5000}) {
    for (const bool is_listed : {false, true}) {
      for (const bool has_shared : {false, true}) {
        const Batch batch = make_batch(random, num_ids, is_listed, has_shared);
        check_batch<std::uint8_t>(batch);
        check_batch<std::uint16_t>(batch);
      }
    }
  }

  std::vector<std::uint16_t> low(1);
  std::vector<std::uint8_t> high(1);
  std::vector<std::uint32_t> packed(1);
  const auto assign = [&](std::int64_t id, const UnpackedRows& unpacked) {
    diskhop::assign_slots<std::uint8_t>(std::vector<std::int64_t>{id}, num_rows, unpacked, low, high, {}, packed);
  };
  check_throws<std::out_of_range>([&] { assign(-1, {}); }, "a negative id");
  check_throws<std::out_of_range>([&] { assign(num_rows, {}); }, "an id behind the table");
  check_throws<std::invalid_argument>(
      [&] { assign(0, {.num_resident = 1 << 24, .resident_slots = {}, .shared_rows = {}}); },
      "a slot of more than 24 bits");
  const std::vector<std::int32_t> short_list(3);
  check_throws<std::invalid_argument>(
      [&] { assign(0, {.num_resident = 1, .resident_slots = short_list, .shared_rows = {}}); },
      "a list that is not as long as the table");
  std::vector<std::int64_t> two_rows(2);
  check_throws<std::invalid_argument>([&] { diskhop::load_slots<std::uint8_t>(low, high, 0, 0, two_rows); },
                                      "slots and rows of other lengths");
}
