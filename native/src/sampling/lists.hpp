// Neighbour lists of both kinds of topology, and the rules that all samplers check them by.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "diskhop/sampling/sampler.hpp"

namespace diskhop {

inline constexpr std::uint64_t max_batch_nodes = (std::uint64_t{1} << 31) - 1;  // local ids are int32
inline constexpr unsigned lists_per_block = 16;                                 // see CachedTopology::blocks

template <typename Lists>
inline constexpr bool is_cached = requires(const Lists& lists) { lists.scan; };

/// While it lives, a batch is sampled whose requests for lists on the disk begin together with those of other batches.
template <typename Lists>
class SharedReads {
 public:
  explicit SharedReads(const Lists& topology) {
    if constexpr (is_cached<Lists>) gathering_.emplace(*topology.scan);
  }

 private:
  std::optional<SharedScan::Gathering> gathering_;
};

/// Says whether a list is among the cached ones.
template <typename Index>
[[nodiscard]] bool is_list_cached(const CachedTopology<Index>& topology, std::uint64_t list) {
  return (topology.blocks[list / lists_per_block] >> list % lists_per_block & 1) != 0;
}

/// Finds where a cached list begins in CachedTopology::lists.
template <typename Index>
[[nodiscard]] std::uint64_t find_cached_list(const CachedTopology<Index>& topology, std::uint64_t list) {
  const std::uint64_t block = topology.blocks[list / lists_per_block];
  const std::int64_t* const indptr = topology.indptr.data() + list / lists_per_block * lists_per_block;
  std::uint64_t place = block >> lists_per_block;
  // By runs of cached lists: few, even if every other list is cached.
  for (std::uint64_t before = block & ((1U << list % lists_per_block) - 1); before != 0;) {
    const int first = std::countr_zero(before);
    const int end = first + std::countr_one(before >> first);
    place += static_cast<std::uint64_t>(indptr[end] - indptr[first]);
    before = before >> end << end;
  }
  return place;
}

/// Out of line, as below: the loops that call them run for every node or edge.
template <typename Lists>
[[noreturn, gnu::noinline]] void refuse_list(const Lists& topology, std::uint64_t list) {
  const std::string what = topology.types == nullptr ? "the list of node " : "list ";
  throw std::out_of_range("topology is damaged: " + what + std::to_string(list) + " is [" +
                          std::to_string(topology.indptr[list]) + ", " + std::to_string(topology.indptr[list + 1]) +
                          ") of " + std::to_string(topology.num_edges()) + " edges");
}

template <typename Value>
[[noreturn, gnu::noinline]] void refuse_index(std::uint64_t position, Value value, std::uint64_t num_nodes) {
  throw std::out_of_range("topology is damaged: indices[" + std::to_string(position) + "] is " + std::to_string(value) +
                          ", the graph has " + std::to_string(num_nodes) + " nodes");
}

[[noreturn, gnu::noinline]] inline void refuse_seed(std::int64_t seed, std::uint64_t num_nodes) {
  throw std::invalid_argument("seed " + std::to_string(seed) + " is not a node: the graph has " +
                              std::to_string(num_nodes) + " nodes");
}

[[noreturn, gnu::noinline]] inline void refuse_repeated_seed(std::int64_t seed) {
  throw std::invalid_argument("seed " + std::to_string(seed) + " is repeated: seeds must be unique");
}

[[noreturn, gnu::noinline]] inline void refuse_batch_size() {
  throw std::length_error("a batch has 2^31 edges or nodes or more: make the batch or the fan-outs smaller");
}

/// Throws std::invalid_argument for an empty indptr, one that does not have the lists of the types, or a fan-out of 0
/// (without types) or below -1.
template <typename Lists>
void require_fanouts(const Lists& topology, std::span<const std::int64_t> fanouts) {
  if (topology.indptr.empty()) throw std::invalid_argument("indptr is empty: it has one element more than nodes");
  if (topology.types != nullptr && topology.types->num_lists() + 1 != topology.indptr.size()) {
    throw std::invalid_argument("the types have " + std::to_string(topology.types->num_lists()) +
                                " lists, and indptr has " + std::to_string(topology.indptr.size() - 1));
  }
  for (const std::int64_t fanout : fanouts) {
    if (fanout < -1 || (fanout == 0 && topology.types == nullptr)) {
      throw std::invalid_argument("fan-out " + std::to_string(fanout) + " is neither positive nor -1 (all neighbours)");
    }
  }
}

/// Throws std::invalid_argument for a cached topology whose parts do not match.
template <typename Index>
void require_parts(const CachedTopology<Index>& topology) {
  const TableLayout& layout = topology.scan->layout();
  if (layout.row_bytes != sizeof(Index) || layout.row_stride != sizeof(Index)) {
    throw std::invalid_argument("the scan's rows must be ids of " + std::to_string(sizeof(Index)) + " bytes");
  }
  if (topology.blocks.size() * lists_per_block + 1 < topology.indptr.size() || topology.lists.empty() ||
      topology.lists.size() > std::max<std::uint64_t>(topology.num_edges(), 1)) {
    throw std::invalid_argument("blocks must cover all lists, and lists have from 1 value to one per edge");
  }
}

}  // namespace diskhop
