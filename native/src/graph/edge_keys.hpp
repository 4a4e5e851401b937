// Keys of edges: making them, splitting them, finding their bucket.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/graph/csc.hpp"

namespace diskhop {

__extension__ typedef unsigned __int128 WideKey;

template <typename Key>
[[nodiscard]] constexpr Key from_words(const KeyWords& words) noexcept {
  if constexpr (sizeof(Key) > 8) return (static_cast<Key>(words.high) << 64) | words.low;
  return static_cast<Key>(words.low);
}

template <typename Key>
[[nodiscard]] constexpr KeyWords to_words(Key key) noexcept {
  if constexpr (sizeof(Key) > 8) {
    return {.high = static_cast<std::uint64_t>(key >> 64), .low = static_cast<std::uint64_t>(key)};
  }
  return {.high = 0, .low = static_cast<std::uint64_t>(key)};
}

template <typename Key>
[[nodiscard]] constexpr unsigned key_width(Key key) noexcept {
  if constexpr (sizeof(Key) > 8) {
    const auto high = static_cast<std::uint64_t>(key >> 64);
    if (high != 0) return 64 + static_cast<unsigned>(std::bit_width(high));
  }
  return static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(key)));
}

// Each part is below 64 bits wide, their sum may be wider: hence one shift per part.

template <typename Key>
[[nodiscard]] inline Key make_key(const KeyLayout& layout, std::uint64_t source, std::uint64_t destination,
                                  std::uint64_t number) noexcept {
  const Key ends = static_cast<Key>(static_cast<Key>(destination) << layout.source_bits) | source;
  return layout.number_bits == 0 ? ends : static_cast<Key>(static_cast<Key>(ends << layout.number_bits) | number);
}

[[nodiscard]] constexpr std::uint64_t low_bits(unsigned count) noexcept { return (std::uint64_t{1} << count) - 1; }

template <typename Key>
[[nodiscard]] inline std::uint64_t number_of(const KeyLayout& layout, Key key) noexcept {
  return static_cast<std::uint64_t>(key) & low_bits(layout.number_bits);
}

template <typename Key>
[[nodiscard]] inline std::uint64_t source_of(const KeyLayout& layout, Key key) noexcept {
  return static_cast<std::uint64_t>(key >> layout.number_bits) & low_bits(layout.source_bits);
}

template <typename Key>
[[nodiscard]] inline std::uint64_t destination_of(const KeyLayout& layout, Key key) noexcept {
  return static_cast<std::uint64_t>((key >> layout.number_bits) >> layout.source_bits);
}

template <typename Key>
[[nodiscard]] inline Key last_key(const KeyLayout& layout) noexcept {
  return make_key<Key>(layout, layout.num_sources - 1, layout.num_destinations - 1, low_bits(layout.number_bits));
}

/// Bytes of a key on disk, per bucket: enough for any distance from the bucket's start. They depend on the widths of
/// ids, not on the number of nodes.
template <typename Key>
[[nodiscard]] std::vector<unsigned> stored_key_bytes(const KeyLayout& layout, std::span<const Key> bucket_starts) {
  const unsigned unused_bits = static_cast<unsigned>(8 * sizeof(Key)) - layout.bits();
  const Key highest_key =
      unused_bits == 8 * sizeof(Key) ? Key{0} : static_cast<Key>(static_cast<Key>(-1) >> unused_bits);
  std::vector<unsigned> num_bytes;
  for (std::size_t bucket = 0; bucket < bucket_starts.size(); ++bucket) {
    const Key last = bucket + 1 < bucket_starts.size() ? static_cast<Key>(bucket_starts[bucket + 1] - 1) : highest_key;
    const unsigned width = key_width<Key>(static_cast<Key>(last - bucket_starts[bucket]));
    num_bytes.push_back(std::max(1U, (width + 7) / 8));
  }
  return num_bytes;
}

/// Loads a bucket's keys from their stored form.
template <typename Key>
void load_keys(const std::byte* stored, unsigned stored_bytes, Key bucket_start, std::span<Key> out) noexcept {
  const auto mask = static_cast<Key>(static_cast<Key>(-1) >> (8 * (sizeof(Key) - stored_bytes)));
  // Loading a key's whole type is faster than its bytes, but for the last keys it would read past the stored bytes.
  const std::size_t num_last = std::min(out.size(), (sizeof(Key) - 1) / stored_bytes);
  std::size_t place = 0;
  Key offset = 0;
  for (; place < out.size() - num_last; ++place) {
    std::memcpy(&offset, stored + place * stored_bytes, sizeof(Key));
    out[place] = static_cast<Key>(bucket_start + (offset & mask));
  }
  for (; place < out.size(); ++place) {
    offset = 0;
    std::memcpy(&offset, stored + place * stored_bytes, stored_bytes);
    out[place] = static_cast<Key>(bucket_start + offset);
  }
}

/// Loads ids (up to 2^64 - 1, so that negative ones are far out of range). Returns whether all are below the limit.
bool load_ids(const IdColumn& column, std::size_t first, std::span<std::uint64_t> ids, std::uint64_t limit) noexcept;

/// Makes keys of consecutive edges, block by block, and passes them to take(first position, keys). Throws
/// std::out_of_range for a number that keys have no bits for.
template <typename Key, typename Take>
[[nodiscard]] std::optional<BadEnd> make_keys(const KeyLayout& layout, std::uint64_t first_number,
                                              const IdColumn& sources, const IdColumn& destinations, std::size_t count,
                                              Take take) {
  const std::uint64_t num_numbers = low_bits(layout.number_bits) + 1;
  if (layout.is_numbered && (first_number > num_numbers || count > num_numbers - first_number)) {
    throw std::out_of_range("edges up to number " + std::to_string(first_number + count) + ", keys hold " +
                            std::to_string(num_numbers));
  }
  constexpr std::size_t block_edges = 1024;
  std::uint64_t source_ids[block_edges];
  std::uint64_t destination_ids[block_edges];
  Key keys[block_edges];
  for (std::size_t first = 0; first < count; first += block_edges) {
    const std::size_t length = std::min(block_edges, count - first);
    const bool are_good = load_ids(sources, first, {source_ids, length}, layout.num_sources) &
                          load_ids(destinations, first, {destination_ids, length}, layout.num_destinations);
    if (!are_good) {
      for (std::size_t i = 0; i < length; ++i) {
        if (source_ids[i] >= layout.num_sources) return BadEnd{first + i, true};
        if (destination_ids[i] >= layout.num_destinations) return BadEnd{first + i, false};
      }
    }
    for (std::size_t i = 0; i < length; ++i) {
      keys[i] = make_key<Key>(layout, source_ids[i], destination_ids[i], first_number + first + i);
    }
    take(first, std::span<const Key>(keys, length));
  }
  return std::nullopt;
}

/// Finds the bucket of a key: a table of its highest bits, then a search among the buckets that begin in a cell.
template <typename Key>
class BucketTable {
 public:
  /// Throws std::invalid_argument unless the starts ascend strictly from 0, below 2^key_bits.
  BucketTable(std::vector<Key> starts, unsigned key_bits) : starts_(std::move(starts)) {
    if (starts_.empty() || starts_.size() > max_buckets || starts_.front() != 0 ||
        std::adjacent_find(starts_.begin(), starts_.end(), std::greater_equal<>{}) != starts_.end() ||
        key_width(starts_.back()) > key_bits) {
      throw std::invalid_argument("bucket starts must be keys that ascend strictly from 0, at most " +
                                  std::to_string(max_buckets));
    }
    const unsigned cell_bits = std::min(key_bits, 12U);
    shift_ = key_bits - cell_bits;
    const std::size_t num_cells = std::size_t{1} << cell_bits;
    std::size_t bucket = 0;
    for (std::size_t cell = 0; cell < num_cells; ++cell) {
      const Key first = static_cast<Key>(static_cast<Key>(cell) << shift_);
      const Key last = static_cast<Key>(first + (static_cast<Key>(static_cast<Key>(1) << shift_) - 1));
      while (bucket + 1 < starts_.size() && starts_[bucket + 1] <= first) ++bucket;
      const std::size_t lowest = bucket;
      while (bucket + 1 < starts_.size() && starts_[bucket + 1] <= last) ++bucket;
      cells_.push_back({static_cast<std::uint16_t>(lowest), static_cast<std::uint16_t>(bucket)});
    }
  }

  [[nodiscard]] std::size_t operator()(Key key) const noexcept {
    const Cell cell = cells_[static_cast<std::size_t>(key >> shift_)];
    std::size_t low = cell.lowest;
    std::size_t high = cell.highest;
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      if (starts_[middle] <= key) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  [[nodiscard]] std::span<const Key> starts() const noexcept { return starts_; }

  static constexpr std::size_t max_buckets = 1U << 16;

 private:
  struct Cell {
    std::uint16_t lowest;
    std::uint16_t highest;
  };
  std::vector<Key> starts_;
  std::vector<Cell> cells_;
  unsigned shift_ = 0;
};

}  // namespace diskhop
