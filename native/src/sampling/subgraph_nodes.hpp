// Nodes of a batch whose seeds may each have a subgraph of their own, and the seeds' times.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "sampling/growing_array.hpp"
#include "sampling/lists.hpp"
#include "sampling/local_ids.hpp"

namespace diskhop {

/// Numbers nodes in order of discovery, once per subgraph. A node and the number of its seed make one word; all are of
/// seed 0 if subgraphs are not disjoint. Threading: one thread at a time.
class SubgraphNodes {
 public:
  SubgraphNodes(std::uint64_t num_nodes, bool is_disjoint)
      : num_nodes_(num_nodes),
        is_disjoint_(is_disjoint),
        node_bits_(static_cast<unsigned>(std::bit_width(num_nodes))),
        node_mask_((std::uint64_t{1} << node_bits_) - 1) {}

  /// Forgets the previous batch and numbers the seeds.
  void start(std::span<const std::int64_t> seeds) {
    if (seeds.size() > max_batch_nodes || node_bits_ + static_cast<unsigned>(std::bit_width(seeds.size())) > 64) {
      throw std::length_error("a batch has at most 2^31 - 1 seeds, and fewer in a huge graph");
    }
    local_ids_.next_batch();
    reserve(seeds.size());
    for (std::size_t place = 0; place < seeds.size(); ++place) {
      const auto node = static_cast<std::uint64_t>(seeds[place]);
      if (node >= num_nodes_) refuse_seed(seeds[place], num_nodes_);
      if (number(node, is_disjoint_ ? place : 0) != place) refuse_repeated_seed(seeds[place]);
    }
  }

  [[nodiscard]] std::size_t size() const { return local_ids_.num_nodes(); }
  [[nodiscard]] std::uint64_t node(std::size_t local) const { return words_[local] & node_mask_; }
  [[nodiscard]] std::uint64_t seed_of(std::size_t local) const { return words_[local] >> node_bits_; }

  /// Reserves memory for this many new nodes. Throws std::length_error if the batch could be too large.
  void reserve(std::size_t num_new) {
    const std::size_t num_known = size();
    std::size_t most = num_known + num_new;
    if (!is_disjoint_) most = std::min<std::size_t>(most, num_nodes_);
    if (most > max_batch_nodes) refuse_batch_size();
    words_.reserve(most + 1, num_known);
    local_ids_.reserve(most, words_.data());
  }

  /// Returns the local id of a node in a seed's subgraph, a new one if need be, within the reserved memory.
  std::uint32_t number(std::uint64_t node, std::uint64_t seed) {
    std::uint64_t word = seed << node_bits_ | node;
    local_ids_.number({&word, 1}, words_.data());
    return static_cast<std::uint32_t>(word);
  }

  /// Returns the local id of a node, if the seed's subgraph has it.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t node, std::uint64_t seed) {
    return local_ids_.find_number(seed << node_bits_ | node, words_.data());
  }

  [[nodiscard]] std::size_t num_bytes() const { return local_ids_.num_bytes() + words_.num_bytes(); }

 private:
  std::uint64_t num_nodes_;
  bool is_disjoint_;
  unsigned node_bits_;
  std::uint64_t node_mask_;
  NodeTable<std::uint64_t> local_ids_;
  GrowingArray<std::uint64_t> words_;
};

}  // namespace diskhop
