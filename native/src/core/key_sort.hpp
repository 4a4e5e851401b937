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

/// Sorts keys that lie from `base` to below base + 2^bits, of at most 32 bits, by way of their distances from it, which
/// are half as long. Returns them where they are: in `keys` or `scratch`.
template <typename Key>
[[nodiscard]] std::span<const Key> sort_offsets(std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits) {
  constexpr unsigned max_digit_bits = 9;
  constexpr std::size_t max_passes = 4;
  const std::size_t num_keys = keys.size();
  const std::size_t num_passes = (bits + max_digit_bits - 1) / max_digit_bits;
  const unsigned digit_bits = (bits + static_cast<unsigned>(num_passes) - 1) / static_cast<unsigned>(num_passes);
  const std::uint32_t mask = (1U << digit_bits) - 1;
  std::array<std::array<std::uint32_t, 1U << max_digit_bits>, max_passes> places{};
  // The same memory holds now keys, now offsets.
  typedef std::uint32_t Offset __attribute__((may_alias));
  auto* from = reinterpret_cast<Offset*>(scratch.data());
  auto* to = reinterpret_cast<Offset*>(keys.data());
  for (std::size_t i = 0; i < num_keys; ++i) {
    const auto offset = static_cast<std::uint32_t>(keys[i] - base);
    from[i] = offset;
    for (std::size_t pass = 0; pass < num_passes; ++pass) ++places[pass][(offset >> (pass * digit_bits)) & mask];
  }
  for (std::size_t pass = 0; pass < num_passes; ++pass) {
    std::uint32_t begin = 0;
    for (std::uint32_t value = 0; value <= mask; ++value) begin += std::exchange(places[pass][value], begin);
  }
  for (std::size_t pass = 0; pass + 1 < num_passes; ++pass) {
    std::uint32_t* const ends = places[pass].data();
    const auto shift = static_cast<unsigned>(pass) * digit_bits;
    for (std::size_t i = 0; i < num_keys; ++i) to[ends[(from[i] >> shift) & mask]++] = from[i];
    std::swap(from, to);
  }
  std::uint32_t* const ends = places[num_passes - 1].data();
  const auto shift = static_cast<unsigned>(num_passes - 1) * digit_bits;
  const std::span<Key> sorted = static_cast<void*>(to) == keys.data() ? keys : scratch;
  for (std::size_t i = 0; i < num_keys; ++i) sorted[ends[(from[i] >> shift) & mask]++] = base + from[i];
  return sorted;
}

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
    // Pieces of half of what the cache holds, so that uneven ones still fit; or smaller, if what is left of their keys
    // is then half as long.
    const auto wanted_bits = static_cast<unsigned>(std::bit_width(2 * num_keys * sizeof(Key) / cached_bytes));
    const unsigned excess_bits = bits > 32 ? bits - 32 : 0;
    const unsigned digit_bits = std::min(
        {bits, excess_bits <= max_digit_bits ? std::max(wanted_bits, excess_bits) : wanted_bits, max_digit_bits});
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

  if (bits <= 32) return take(sort_offsets(keys, scratch, base, bits));
  const unsigned num_passes = (bits + max_digit_bits - 1) / max_digit_bits;
  const unsigned digit_bits = (bits + num_passes - 1) / num_passes;
  const std::size_t mask = (std::size_t{1} << digit_bits) - 1;
  for (unsigned shift = 0; shift < bits; shift += digit_bits) {
    std::array<std::size_t, 1U << max_digit_bits> places{};
    for (const Key key : keys) ++places[digit(key, shift, mask)];
    begin_places(places.data(), mask + 1);
    scatter(keys, scratch, places.data(), shift, mask);
    std::swap(keys, scratch);
  }
  take(std::span<const Key>(keys));
}

}  // namespace diskhop
