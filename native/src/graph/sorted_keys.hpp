// Sorted keys in memory, and the list arrays made from them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "diskhop/graph/csc.hpp"
#include "graph/edge_keys.hpp"
#include "graph/key_sort.hpp"

namespace diskhop {

/// Collects pieces of sorted keys at `out`, the beginning of the memory of keys or scratch.
template <typename Key>
[[nodiscard]] auto keep_at(Key* out) {
  return [out](std::span<const Key> sorted) mutable {
    if (out != sorted.data()) std::copy(sorted.begin(), sorted.end(), out);
    out += sorted.size();
  };
}

/// Sorts keys from `base` to below base + 2^bits into `out`, the beginning of keys or of scratch (same length).
template <typename Key>
void sort_in_place(std::span<Key> keys, std::span<Key> scratch, Key base, unsigned bits, Key* out) {
  auto keep = keep_at(out);
  sort_keys(keys, scratch, base, bits, keep);
}

/// Sorted edges in memory. Memory: owner of the keys' memory.
template <typename Key, typename Memory>
class SortedKeys final : public SortedEdges {
 public:
  SortedKeys(const KeyLayout& layout, Memory memory, std::span<const Key> keys)
      : layout_(layout), memory_(std::move(memory)), keys_(keys) {}

  [[nodiscard]] std::uint64_t num_edges() const noexcept override { return keys_.size(); }

  [[nodiscard]] std::uint64_t last_destination() const override { return destination_of(layout_, keys_.back()); }

  void copy_indices(std::uint64_t first, std::uint64_t count, std::byte* out) const override {
    const KeyLayout layout = layout_;  // a copy, so that the compiler knows that it does not change
    const auto copy_as = [&]<typename Index>(Index* indices) {
      for (std::uint64_t i = 0; i < count; ++i) indices[i] = static_cast<Index>(source_of(layout, keys_[first + i]));
    };
    if (layout.index_bytes() == 4) {
      copy_as(reinterpret_cast<std::uint32_t*>(out));
    } else {
      copy_as(reinterpret_cast<std::int64_t*>(out));
    }
  }

  void copy_numbers(std::uint64_t first, std::span<std::int64_t> out) const override {
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int64_t>(number_of(layout_, keys_[first + i]));
    }
  }

  void copy_indptr(std::uint64_t first_node, std::span<std::int64_t> out) const override {
    const auto is_below = [this](Key key, std::uint64_t node) { return destination_of(layout_, key) < node; };
    auto place = std::lower_bound(keys_.begin(), keys_.end(), first_node, is_below);
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      // Most lists are short: the next one's begin is near.
      std::ptrdiff_t step = 1;
      auto begin = place;
      while (keys_.end() - begin > step && is_below(begin[step], first_node + i)) {
        begin += step;
        step *= 2;
      }
      const auto end = begin + std::min<std::ptrdiff_t>(step + 1, keys_.end() - begin);
      place = std::lower_bound(begin, end, first_node + i, is_below);
      out[i] = place - keys_.begin();
    }
  }

 private:
  KeyLayout layout_;
  Memory memory_;
  std::span<const Key> keys_;
};

}  // namespace diskhop
