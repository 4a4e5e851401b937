// Stable radix sort by integer keys, from the lowest digit up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace diskhop {

/// Sorts by the lowest `key_bits` bits of key_of(item); equal keys keep their order. Memory: a copy of the items.
template <typename Item, typename KeyOf>
void radix_sort(std::vector<Item>& items, unsigned key_bits, KeyOf key_of) {
  constexpr unsigned digit_bits = 11;
  constexpr std::uint64_t digit_mask = (1U << digit_bits) - 1;
  std::vector<Item> sorted(items.size());
  for (unsigned shift = 0; shift < key_bits; shift += digit_bits) {
    std::array<std::size_t, digit_mask + 1> ends{};
    for (const Item& item : items) ++ends[(key_of(item) >> shift) & digit_mask];
    std::size_t begin = 0;
    for (std::size_t& end : ends) begin += std::exchange(end, begin);
    for (const Item& item : items) sorted[ends[(key_of(item) >> shift) & digit_mask]++] = item;
    items.swap(sorted);
  }
}

}  // namespace diskhop
