// Sorting numbers that differ in few of their bits, from the highest digit down while memory is far, from the lowest
// up once the cache holds them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace diskhop {

/// Sorts keys that lie from `base` to below base + 2^bits, and hands them over in order in pieces: take(sorted piece).
/// A piece lies in `keys` or `scratch` (as long as keys) at its own place, and may be overwritten once it was taken.
template <typename Key, typename Take>
void sort_keys(std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits, Take& take) {
  constexpr std::size_t few_keys = 48;
  constexpr std::size_t cached_bytes = std::size_t{128} << 10;  // keys and scratch together are twice that
  constexpr unsigned max_digit_bits = 10;
  const std::size_t num_keys = keys.size();
  if (num_keys == 0) return;
  if (bits == 0 || num_keys == 1) return take(std::span<const Key>(keys));
  if (num_keys <= few_keys) {
    for (std::size_t i = 1; i < num_keys; ++i) {
      const Key key = keys[i];
      std::size_t place = i;
      for (; place > 0 && keys[place - 1] > key; --place) keys[place] = keys[place - 1];
      keys[place] = key;
    }
    return take(std::span<const Key>(keys));
  }
  const auto digit = [base](Key key, unsigned shift, std::size_t mask) {
    return static_cast<std::size_t>(static_cast<Key>(key - base) >> shift) & mask;
  };
  const auto scatter = [&](std::span<const Key> from, std::span<Key> to, std::size_t* places, unsigned shift,
                           std::size_t mask) {
    for (const Key key : from) to[places[digit(key, shift, mask)]++] = key;
  };
  const auto begin_places = [](std::size_t* counts, std::size_t num_digits) {
    std::size_t begin = 0;
    for (std::size_t value = 0; value < num_digits; ++value) begin += std::exchange(counts[value], begin);
  };

  if (num_keys * sizeof(Key) > cached_bytes) {
    // Pieces of half of what the cache holds, so that uneven ones still fit.
    const auto wanted_bits = static_cast<unsigned>(std::bit_width(2 * num_keys * sizeof(Key) / cached_bytes));
    const unsigned digit_bits = std::min({bits, wanted_bits, max_digit_bits});
    const unsigned shift = bits - digit_bits;
    const std::size_t mask = (std::size_t{1} << digit_bits) - 1;
    std::array<std::size_t, (1U << max_digit_bits) + 1> ends{};
    for (const Key key : keys) ++ends[digit(key, shift, mask)];
    begin_places(ends.data(), mask + 1);
    scatter(keys, scratch, ends.data(), shift, mask);
    std::size_t begin = 0;
    for (std::size_t value = 0; value <= mask; ++value) {
      const std::size_t length = ends[value] - begin;
      const Key piece_base = static_cast<Key>(base + static_cast<Key>(static_cast<Key>(value) << shift));
      sort_keys(scratch.subspan(begin, length), keys.subspan(begin, length), piece_base, shift, take);
      begin = ends[value];
    }
    return;
  }

  const unsigned wanted_digit_bits = num_keys < 1024 ? 6 : num_keys < 4096 ? 8 : max_digit_bits;
  const unsigned num_passes = (bits + wanted_digit_bits - 1) / wanted_digit_bits;
  const unsigned digit_bits = (bits + num_passes - 1) / num_passes;
  const std::size_t mask = (std::size_t{1} << digit_bits) - 1;
  for (unsigned shift = 0; shift < bits; shift += digit_bits) {
    std::array<std::size_t, 1U << max_digit_bits> places;
    std::fill_n(places.begin(), mask + 1, 0);
    for (const Key key : keys) ++places[digit(key, shift, mask)];
    if (places[digit(keys[0], shift, mask)] == num_keys) continue;  // one digit for all: nothing to move
    begin_places(places.data(), mask + 1);
    scatter(keys, scratch, places.data(), shift, mask);
    std::swap(keys, scratch);
  }
  take(std::span<const Key>(keys));
}

}  // namespace diskhop
