// How a batch's nodes get their local ids, in order of discovery: an array over all nodes, or a table of those reached.
//
// Both hold stamps, base + local id, of which only those from the base of the present batch on are valid: a new batch
// moves the base past them all, and nothing is cleared. Threading: one thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/io/buffer.hpp"
#include "diskhop/base/random.hpp"

namespace diskhop {

/// The base of the valid stamps and how many there are. A batch has less than 2^31 nodes: below a base of 2^31 no
/// stamp overflows.
struct Stamps {
  std::uint32_t base = 1;  // fresh memory is 0: no stamp
  std::uint32_t num_nodes = 0;

  /// Forgets the last batch; says whether what was stamped must be cleared.
  [[nodiscard]] bool next_batch() {
    base += num_nodes;
    num_nodes = 0;
    if (base <= std::uint32_t{1} << 31) return false;
    base = 1;
    return true;
  }
};

/// A stamp for every node of the graph.
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

  /// Replaces nodes by their local ids, new ones appended to `node_ids`, of which one more than there are is written.
  void number(std::span<Word> nodes, Word* node_ids) {
    const std::uint32_t base = stamped_.base;
    std::uint32_t num_nodes = stamped_.num_nodes;
    std::uint32_t* const stamps = stamps_.data();
    for (Word& entry : nodes) {
      // No branch on what is new, which cannot be predicted: below the base the difference wraps and is the larger.
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
  Buffer memory_;  // huge pages: looked up for every edge, in random order
  std::span<std::uint32_t> stamps_;
  Stamps stamped_;
};

/// Open addressing, at most half full.
template <typename Word>
class NodeTable {
 public:
  void next_batch() {
    if (stamped_.next_batch()) std::fill(slots_.begin(), slots_.end(), Slot{});
  }

  /// Makes room for so many nodes; those numbered so far are `node_ids`.
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

  /// As NodeArray::number; room was reserved.
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
