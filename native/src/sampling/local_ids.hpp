// Local ids of a batch's nodes, in order of discovery: an array over all nodes, or a hash table of the nodes reached.
//
// Both store stamps, base + local id. Only stamps from the current batch's base on are valid: a new batch moves the
// base past all of them, and nothing is cleared. Threading: one thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "diskhop/base/random.hpp"
#include "diskhop/io/buffer.hpp"

namespace diskhop {

// Up to this many nodes there is a stamp per node (32 MiB per workspace), beyond only for nodes that a batch reaches.
inline constexpr std::uint64_t max_array_nodes = std::uint64_t{8} << 20;

/// Base and number of the valid stamps. A batch has less than 2^31 nodes: below a base of 2^31 no stamp overflows.
struct Stamps {
  std::uint32_t base = 1;  // fresh memory is 0: no stamp
  std::uint32_t num_nodes = 0;

  /// Starts a new batch; returns whether old stamps must be cleared.
  [[nodiscard]] bool next_batch() {
    base += num_nodes;
    num_nodes = 0;
    if (base <= std::uint32_t{1} << 31) return false;
    base = 1;
    return true;
  }
};

/// A stamp per node of the graph.
template <typename Word>
class NodeArray {
 public:
  explicit NodeArray(std::uint64_t num_nodes)
      : memory_(num_nodes * sizeof(std::uint32_t)),
        stamps_(reinterpret_cast<std::uint32_t*>(memory_.data()), num_nodes) {}

  void next_batch() {
    if (stamped_.next_batch()) std::fill(stamps_.begin(), stamps_.end(), std::uint32_t{0});
  }
  void reserve(std::size_t /*num_nodes*/, const Word* /*node_ids*/) {}
  [[nodiscard]] std::size_t num_bytes() const { return memory_.num_bytes(); }
  [[nodiscard]] std::size_t num_nodes() const { return stamped_.num_nodes; }
  [[nodiscard]] const void* place_of(Word node) const { return &stamps_[node]; }

  /// Replaces nodes by their local ids and appends new ones to `node_ids`, where one more value than that is written.
  void number(std::span<Word> nodes, Word* node_ids) {
    const std::uint32_t base = stamped_.base;
    std::uint32_t num_nodes = stamped_.num_nodes;
    std::uint32_t* const stamps = stamps_.data();
    for (Word& entry : nodes) {
      // No branch on new nodes, which cannot be predicted: below the base the difference wraps and is the larger.
      const Word node = entry;
      const std::uint32_t local_id = std::min(stamps[node] - base, num_nodes);
      stamps[node] = base + local_id;
      node_ids[num_nodes] = node;
      num_nodes += local_id == num_nodes ? 1 : 0;
      entry = local_id;
    }
    stamped_.num_nodes = num_nodes;
  }

 private:
  Buffer memory_;  // huge pages: read for every edge, in random order
  std::span<std::uint32_t> stamps_;
  Stamps stamped_;
};

/// Hash table with open addressing, at most half full.
template <typename Word>
class NodeTable {
 public:
  void next_batch() {
    if (stamped_.next_batch()) std::fill(slots_.begin(), slots_.end(), Slot{});
  }

  /// Reserves space for this many nodes; those numbered so far are `node_ids`.
  void reserve(std::size_t num_nodes, const Word* node_ids) {
    if (2 * num_nodes < slots_.size()) return;
    const std::size_t num_slots = std::bit_ceil(2 * num_nodes + 1);
    slots_ = {};
    memory_ = Buffer(0);  // before more is taken
    memory_ = Buffer(num_slots * sizeof(Slot));
    slots_ = {reinterpret_cast<Slot*>(memory_.data()), num_slots};
    stamped_.base = 1;
    for (std::uint32_t local_id = 0; local_id < stamped_.num_nodes; ++local_id) {
      *find(node_ids[local_id], node_ids) = {static_cast<std::uint32_t>(node_ids[local_id]), 1 + local_id};
    }
  }
  [[nodiscard]] std::size_t num_bytes() const { return memory_.num_bytes(); }
  [[nodiscard]] std::size_t num_nodes() const { return stamped_.num_nodes; }
  [[nodiscard]] const void* place_of(Word node) const { return &slots_[home(node)]; }

  /// As NodeArray::number(), within the reserved space.
  void number(std::span<Word> nodes, Word* node_ids) {
    for (Word& entry : nodes) {
      Slot* const slot = find(entry, node_ids);
      if (slot->stamp < stamped_.base) {
        node_ids[stamped_.num_nodes] = entry;
        *slot = {static_cast<std::uint32_t>(entry), stamped_.base + stamped_.num_nodes++};
      }
      entry = slot->stamp - stamped_.base;
    }
  }

  /// Returns the local id of a node; none if the batch does not have it.
  [[nodiscard]] std::optional<std::uint32_t> find_number(Word node, const Word* node_ids) {
    if (slots_.empty()) return std::nullopt;
    const Slot* const slot = find(node, node_ids);
    if (slot->stamp < stamped_.base) return std::nullopt;
    return slot->stamp - stamped_.base;
  }

 private:
  struct Slot {
    std::uint32_t node_low = 0;  // the lower half of the node id; node_ids has the rest
    std::uint32_t stamp = 0;
  };

  [[nodiscard]] std::size_t home(Word node) const {
    return static_cast<std::size_t>((node * golden64) >> 32) & (slots_.size() - 1);
  }

  Slot* find(Word node, const Word* node_ids) {
    const auto node_low = static_cast<std::uint32_t>(node);
    for (std::size_t index = home(node);; index = (index + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[index];
      if (slot.stamp < stamped_.base) return &slot;
      if (slot.node_low == node_low && (sizeof(Word) == 4 || node_ids[slot.stamp - stamped_.base] == node)) {
        return &slot;
      }
    }
  }

  Buffer memory_{0};
  std::span<Slot> slots_;
  Stamps stamped_;
};

}  // namespace diskhop
