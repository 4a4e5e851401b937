// Sorting of numbers that differ in few bits: from the highest digit down until pieces fit the cache, then from the
// lowest digit up.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace diskhop {

/// A key's distance from a base that is not above it. The same memory holds keys and offsets in turn.
typedef std::uint32_t Offset __attribute__((may_alias));

inline constexpr unsigned max_offset_digit_bits = 9;
inline constexpr std::size_t few_keys = 48;  // sorted by insertion

/// Sorts by `bits` bits from bit `lowest` on, with `spare` as memory of the same length; returns where the result is.
inline Offset* sort_by_digits(Offset* from, Offset* spare, std::size_t count, unsigned lowest, unsigned bits) {
  constexpr std::size_t max_passes = 4;
  const unsigned num_passes = (bits + max_offset_digit_bits - 1) / max_offset_digit_bits;
  const unsigned digit_bits = (bits + num_passes - 1) / num_passes;
  const std::uint32_t mask = (1U << digit_bits) - 1;
  std::array<std::array<std::uint32_t, 1U << max_offset_digit_bits>, max_passes> places{};
  for (std::size_t i = 0; i < count; ++i) {
    for (unsigned pass = 0; pass < num_passes; ++pass) {
      ++places[pass][(from[i] >> (lowest + pass * digit_bits)) & mask];
    }
  }
  for (unsigned pass = 0; pass < num_passes; ++pass) {
    std::uint32_t* const ends = places[pass].data();
    std::uint32_t begin = 0;
    for (std::uint32_t value = 0; value <= mask; ++value) begin += std::exchange(ends[value], begin);
    const unsigned shift = lowest + pass * digit_bits;
    for (std::size_t i = 0; i < count; ++i) spare[ends[(from[i] >> shift) & mask]++] = from[i];
    std::swap(from, spare);
  }
  return from;
}

/// Sorts by insertion in at most `most_steps` steps; returns whether they were enough. For few or nearly sorted
/// offsets.
inline bool insert_in_order(Offset* offsets, std::size_t count, std::size_t most_steps) {
  std::size_t num_steps = 0;
  for (std::size_t i = 1; i < count; ++i) {
    const Offset offset = offsets[i];
    std::size_t place = i;
    for (; place > 0 && offsets[place - 1] > offset; --place) offsets[place] = offsets[place - 1];
    offsets[place] = offset;
    num_steps += i - place;
    if (num_steps > most_steps) return false;
  }
  return true;
}

/// Sorts offsets of `bits` bits, from 1 to 32, with `spare` as memory; returns where the result is. If numbers are
/// evenly spread, sorting by the highest bits leaves few neighbours in the wrong order, and the other bits need no
/// passes.
inline Offset* sort_offsets(Offset* offsets, Offset* spare, std::size_t count, unsigned bits) {
  constexpr std::size_t steps_an_offset = 4;
  if (count <= few_keys && insert_in_order(offsets, count, few_keys * few_keys)) return offsets;
  const auto telling_bits = static_cast<unsigned>(std::bit_width(count)) + 3;
  const unsigned num_passes = (telling_bits + max_offset_digit_bits - 1) / max_offset_digit_bits;
  const unsigned highest_bits = num_passes * max_offset_digit_bits;
  if (highest_bits < bits) {
    Offset* const nearly_sorted = sort_by_digits(offsets, spare, count, bits - highest_bits, highest_bits);
    if (insert_in_order(nearly_sorted, count, steps_an_offset * count)) return nearly_sorted;
  }
  return sort_by_digits(offsets, spare, count, 0, bits);
}

/// Sorts offsets from `base` in the first bytes of `scratch`, using the rest as memory, and passes on their keys.
template <typename Key, typename Take>
void take_offsets(std::span<Key> scratch, std::span<Key> keys, Key base, unsigned bits, Take& take) {
  if (keys.empty()) return;
  auto* const offsets = reinterpret_cast<Offset*>(scratch.data());
  const Offset* const sorted = sort_offsets(offsets, offsets + keys.size(), keys.size(), bits);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(base + sorted[i]);
  take(std::span<const Key>(keys));
}

inline constexpr std::size_t cached_bytes = std::size_t{128} << 10;  // keys and scratch together are twice that
inline constexpr unsigned max_key_digit_bits = 10;

template <typename Key>
[[nodiscard]] constexpr std::size_t key_digit(Key offset, unsigned shift, std::size_t mask) noexcept {
  return static_cast<std::size_t>(offset >> shift) & mask;
}

/// Turns counts into the positions where each digit's keys begin.
inline void begin_places(std::size_t* counts, std::size_t num_digits) noexcept {
  std::size_t begin = 0;
  for (std::size_t value = 0; value < num_digits; ++value) begin += std::exchange(counts[value], begin);
}

template <typename Key, typename Take>
void sort_keys(std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits, Take& take);

/// Sorts, as sort_keys(), the keys that visit(each) passes to each(key), in the same order at each of at most two
/// visits. `keys` is not written before the last visit ends: the visited data may lie there in another form.
template <typename Key, typename Visit, typename Take>
void sort_visited(const Visit& visit, std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits,
                  Take& take) {
  const std::size_t num_keys = keys.size();
  if (num_keys * sizeof(Key) <= cached_bytes || bits == 0) {
    std::size_t place = 0;
    visit([&](Key key) { scratch[place++] = key; });
    return sort_keys(scratch, keys, base, bits, take);
  }
  // Pieces take half of the cache, so that uneven ones still fit; or less, if that halves the length of their keys.
  const auto wanted_bits = static_cast<unsigned>(std::bit_width(2 * num_keys * sizeof(Key) / cached_bytes));
  const unsigned excess_bits = bits > 32 ? bits - 32 : 0;
  const unsigned digit_bits = std::min(
      {bits, excess_bits <= max_key_digit_bits ? std::max(wanted_bits, excess_bits) : wanted_bits, max_key_digit_bits});
  const unsigned shift = bits - digit_bits;
  const std::size_t mask = (std::size_t{1} << digit_bits) - 1;
  std::array<std::size_t, (1U << max_key_digit_bits) + 1> ends{};
  visit([&](Key key) { ++ends[key_digit<Key>(key - base, shift, mask)]; });
  begin_places(ends.data(), mask + 1);
  // Keys of each piece, or offsets in the first half of their memory.
  const bool are_offsets = shift > 0 && shift <= 32;
  if (are_offsets) {
    auto* const offsets = reinterpret_cast<Offset*>(scratch.data());
    std::array<std::size_t, (1U << max_key_digit_bits)> places{};
    for (std::size_t value = 0; value <= mask; ++value) places[value] = ends[value] * (sizeof(Key) / sizeof(Offset));
    const auto low_mask = static_cast<std::uint32_t>((std::uint64_t{1} << shift) - 1);
    visit([&](Key key) {
      const auto offset = static_cast<Key>(key - base);
      offsets[places[key_digit(offset, shift, mask)]++] = static_cast<std::uint32_t>(offset) & low_mask;
    });
    for (std::size_t value = 0; value < mask; ++value) ends[value] = ends[value + 1];
    ends[mask] = num_keys;
  } else {
    visit([&](Key key) { scratch[ends[key_digit<Key>(key - base, shift, mask)]++] = key; });
  }
  std::size_t begin = 0;
  for (std::size_t value = 0; value <= mask; ++value) {
    const std::size_t length = ends[value] - begin;
    const Key piece_base = static_cast<Key>(base + static_cast<Key>(static_cast<Key>(value) << shift));
    if (are_offsets && length * sizeof(Key) > 2 * cached_bytes) {
      const auto* const offsets = reinterpret_cast<const Offset*>(scratch.data() + begin);
      for (std::size_t i = 0; i < length; ++i) keys[begin + i] = static_cast<Key>(piece_base + offsets[i]);
      sort_keys(keys.subspan(begin, length), scratch.subspan(begin, length), piece_base, shift, take);
    } else if (are_offsets) {
      take_offsets(scratch.subspan(begin, length), keys.subspan(begin, length), piece_base, shift, take);
    } else {
      sort_keys(scratch.subspan(begin, length), keys.subspan(begin, length), piece_base, shift, take);
    }
    begin = ends[value];
  }
}

/// Sorts keys from `base` to below base + 2^bits, and passes them on in order, piece by piece: take(sorted piece). A
/// piece lies in `keys` or `scratch` (same length) at its own position, and may be overwritten after take().
template <typename Key, typename Take>
void sort_keys(std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits, Take& take) {
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
  if (num_keys * sizeof(Key) > cached_bytes) {
    const auto visit = [keys](const auto& each) {
      for (const Key key : keys) each(key);
    };
    return sort_visited(visit, keys, scratch, base, bits, take);
  }

  if (bits <= 32) {
    auto* const offsets = reinterpret_cast<Offset*>(scratch.data());
    for (std::size_t i = 0; i < num_keys; ++i) offsets[i] = static_cast<std::uint32_t>(keys[i] - base);
    return take_offsets(scratch, keys, base, bits, take);
  }
  const unsigned num_passes = (bits + max_key_digit_bits - 1) / max_key_digit_bits;
  const unsigned digit_bits = (bits + num_passes - 1) / num_passes;
  const std::size_t mask = (std::size_t{1} << digit_bits) - 1;
  for (unsigned shift = 0; shift < bits; shift += digit_bits) {
    std::array<std::size_t, 1U << max_key_digit_bits> places{};
    for (const Key key : keys) ++places[key_digit<Key>(key - base, shift, mask)];
    begin_places(places.data(), mask + 1);
    for (const Key key : keys) scratch[places[key_digit<Key>(key - base, shift, mask)]++] = key;
    std::swap(keys, scratch);
  }
  take(std::span<const Key>(keys));
}

}  // namespace diskhop
