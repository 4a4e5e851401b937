// The table that numbers a batch's nodes in order of discovery.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "diskhop/buffer.hpp"

namespace diskhop {

/// Open addressing from node id to local id (its index in `node_ids`). A slot is valid when its stamp is not below
/// `base_`, so that a new batch, or another number of slots, needs nothing cleared: the base moves past all stamps.
/// Threading: one thread at a time.
class LocalIds {
 public:
  /// Makes room for `max_nodes` (below 2^31) nodes, at most two thirds full; those numbered so far are kept.
  void reserve(std::size_t max_nodes, const std::vector<std::int64_t>& node_ids) {
    const std::size_t num_slots = std::bit_ceil(max_nodes + max_nodes / 2 + 1);
    if (num_slots <= mask_ + 1) return;
    if (slots_.size() < num_slots) {
      memory_ = Buffer(num_slots * sizeof(Slot));
      // Fresh memory is zero, which is what an empty slot is made of.
      slots_ = {reinterpret_cast<Slot*>(memory_.data()), num_slots};
      base_ = 1;
    } else {
      forget();
    }
    mask_ = num_slots - 1;
    num_nodes_ = 0;
    for (const std::int64_t node : node_ids) {
      const auto id = static_cast<std::uint64_t>(node);
      find(id, node_ids) = {static_cast<std::uint32_t>(id), base_ + num_nodes_++};
    }
  }

  /// Where the search for a node starts: what to prefetch.
  [[nodiscard]] const void* home_slot(std::uint64_t node) const { return &slots_[home(node)]; }

  /// The local id of a node, numbered now (and appended to `node_ids`) if it is new. Room was reserved.
  std::int32_t number(std::uint64_t node, std::vector<std::int64_t>& node_ids) {
    Slot& slot = find(node, node_ids);
    if (slot.stamp < base_) {
      node_ids.push_back(static_cast<std::int64_t>(node));
      slot = {static_cast<std::uint32_t>(node), base_ + num_nodes_++};
    }
    return static_cast<std::int32_t>(slot.stamp - base_);
  }

  /// Ends a batch: forgets its nodes, and gives memory beyond `max_kept_bytes` back.
  void finish(std::size_t max_kept_bytes) {
    if (slots_.size() * sizeof(Slot) > max_kept_bytes) {
      slots_ = {};
      memory_ = Buffer(0);
      base_ = 1;
    } else {
      forget();
    }
    mask_ = 0;
    num_nodes_ = 0;
  }

 private:
  struct Slot {
    std::uint32_t node_low = 0;  // the lower half of the node id; node_ids has the rest
    std::uint32_t stamp = 0;     // base_ + local id
  };

  [[nodiscard]] std::size_t home(std::uint64_t node) const {
    return static_cast<std::size_t>((node * 0x9e3779b97f4a7c15) >> 32) & mask_;
  }

  Slot& find(std::uint64_t node, const std::vector<std::int64_t>& node_ids) {
    const auto node_low = static_cast<std::uint32_t>(node);
    for (std::size_t index = home(node);; index = (index + 1) & mask_) {
      Slot& slot = slots_[index];
      if (slot.stamp < base_) return slot;
      if (slot.node_low == node_low && node_ids[slot.stamp - base_] == static_cast<std::int64_t>(node)) return slot;
    }
  }

  void forget() {
    base_ += num_nodes_;
    // A batch has less than 2^31 nodes: below this base no stamp overflows.
    if (base_ > std::uint32_t{1} << 31) {
      std::fill(slots_.begin(), slots_.end(), Slot{});
      base_ = 1;
    }
  }

  Buffer memory_{0};  // huge pages: a slot is looked up for every edge, in random order
  std::span<Slot> slots_;
  std::size_t mask_ = 0;
  std::uint32_t base_ = 1;
  std::uint32_t num_nodes_ = 0;
};

}  // namespace diskhop
