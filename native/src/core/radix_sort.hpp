// Stable sorting of integer keys that carry a payload, digit by digit from the lowest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace diskhop {

struct KeyedItem {
  std::uint64_t key;
  std::uint64_t item;
};

/// Sorts by the lowest `key_bits` bits of the key; equal keys keep their order.
inline void radix_sort(std::vector<KeyedItem>& items, unsigned key_bits) {
  constexpr unsigned digit_bits = 11;
  constexpr std::uint64_t digit_mask = (1U << digit_bits) - 1;
  std::vector<KeyedItem> sorted(items.size());
  for (unsigned shift = 0; shift < key_bits; shift += digit_bits) {
    std::array<std::size_t, digit_mask + 1> ends{};
    for (const KeyedItem& item : items) ++ends[(item.key >> shift) & digit_mask];
    std::size_t begin = 0;
    for (std::size_t& end : ends) begin += std::exchange(end, begin);
    for (const KeyedItem& item : items) sorted[ends[(item.key >> shift) & digit_mask]++] = item;
    items.swap(sorted);
  }
}

}  // namespace diskhop
