// Edges of a batch as they are assembled, and the memory of a finished batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/lists.hpp"
#include "sampling/subgraph_nodes.hpp"

namespace diskhop {

/// Edges by target: the lists of nodes 0, 1, 2 ... Threading: one thread at a time.
class SubgraphEdges {
 public:
  explicit SubgraphEdges(bool has_weights = false) : has_weights_(has_weights) {}

  void clear() {
    num_edges_ = 0;
    list_ends_.assign(1, 0);
  }

  [[nodiscard]] std::size_t size() const { return num_edges_; }
  /// Where the list of the previous node ends; 0 for node 0.
  [[nodiscard]] std::int64_t list_end(std::int64_t num_lists) const { return list_ends_[num_lists]; }

  /// Reserves memory for more edges. Throws std::length_error if the batch could be too large.
  void reserve(std::size_t num_more) {
    if (num_edges_ + num_more > max_batch_nodes) refuse_batch_size();
    sources_.reserve(num_edges_ + num_more, num_edges_);
    positions_.reserve(num_edges_ + num_more, num_edges_);
    if (has_weights_) weights_.reserve(num_edges_ + num_more, num_edges_);
  }
  void add(std::uint32_t source, std::uint64_t position) {
    sources_[num_edges_] = source;
    positions_[num_edges_++] = position;
  }
  void add(std::uint32_t source, std::uint64_t position, float weight) {
    if (has_weights_) weights_[num_edges_] = weight;
    add(source, position);
  }
  /// Ends the edges of nodes, up to a number of them. Edges added next are of the next node.
  void end_lists(std::size_t num_lists) {
    while (list_ends_.size() <= num_lists) list_ends_.push_back(static_cast<std::int64_t>(num_edges_));
  }

  /// Adds the opposite of each edge; afterwards all nodes have lists, sorted by source and without repeats.
  void add_opposites(std::size_t num_nodes) {
    if (2 * num_edges_ > max_batch_nodes) refuse_batch_size();
    const std::size_t num_lists = list_ends_.size() - 1;
    std::vector<std::int64_t> begins(num_nodes + 1, 0);
    for (std::size_t edge = 0; edge < num_edges_; ++edge) ++begins[sources_[edge] + 1];
    for (std::size_t target = 0; target < num_lists; ++target) {
      begins[target + 1] += list_ends_[target + 1] - list_ends_[target];
    }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    edges_.resize(2 * num_edges_);
    std::vector<std::int64_t> next(begins.begin(), begins.end() - 1);
    for (std::size_t target = 0; target < num_lists; ++target) {
      for (std::int64_t edge = list_ends_[target]; edge < list_ends_[target + 1]; ++edge) {
        const std::uint32_t source = sources_[edge];
        edges_[next[target]++] = {source, positions_[edge]};
        edges_[next[source]++] = {static_cast<std::uint32_t>(target), positions_[edge]};
      }
    }
    clear();
    reserve(edges_.size());
    for (std::size_t target = 0; target < num_nodes; ++target) {
      const std::span list(edges_.data() + begins[target], edges_.data() + begins[target + 1]);
      std::ranges::sort(list);
      for (std::size_t place = 0; place < list.size(); ++place) {
        if (place == 0 || list[place].source != list[place - 1].source) add(list[place].source, list[place].position);
      }
      end_lists(target + 1);
    }
  }

  /// Copies the batch to memory of its size.
  [[nodiscard]] SampledBlocks lay_out(const SubgraphNodes& nodes, bool is_disjoint, BufferPool& pool) {
    SampledBlocks blocks;
    std::size_t num_rows = 0;
    if (is_disjoint) num_rows = number_rows(nodes);
    const std::size_t num_repeated = is_disjoint ? nodes.size() : 0;
    const std::size_t num_wide = nodes.size() + list_ends_.size() + num_edges_ + num_rows + 2 * num_repeated;
    const std::size_t num_weights = has_weights_ ? num_edges_ : 0;
    blocks.memory = pool.take(num_wide * sizeof(std::int64_t) + (num_edges_ + num_weights) * sizeof(std::int32_t));
    auto* next = reinterpret_cast<std::int64_t*>(blocks.memory.data());
    const auto lay_out = [&next](std::size_t count) {
      const std::span<std::int64_t> array(next, count);
      next += count;
      return array;
    };
    blocks.node_ids = lay_out(nodes.size());
    blocks.indptr = lay_out(list_ends_.size());
    blocks.edge_positions = lay_out(num_edges_);
    blocks.seed_of = lay_out(num_repeated);
    blocks.node_rows = lay_out(num_repeated);
    blocks.row_ids = lay_out(num_rows);
    blocks.sources = {reinterpret_cast<std::int32_t*>(next), num_edges_};
    blocks.edge_weights = {reinterpret_cast<float*>(next) + num_edges_, num_weights};
    for (std::size_t local = 0; local < nodes.size(); ++local) {
      blocks.node_ids[local] = static_cast<std::int64_t>(nodes.node(local));
    }
    for (std::size_t local = 0; local < num_repeated; ++local) {
      blocks.seed_of[local] = static_cast<std::int64_t>(nodes.seed_of(local));
      blocks.node_rows[local] = static_cast<std::int64_t>(rows_of_nodes_[local]);
    }
    std::copy_n(rows_.data(), num_rows, blocks.row_ids.data());
    std::ranges::copy(list_ends_, blocks.indptr.data());
    std::copy_n(positions_.data(), num_edges_, blocks.edge_positions.data());
    std::copy_n(sources_.data(), num_edges_, blocks.sources.data());
    std::copy_n(weights_.data(), num_weights, blocks.edge_weights.data());
    return blocks;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return list_ends_.capacity() * sizeof(std::int64_t) + sources_.num_bytes() + positions_.num_bytes() +
           weights_.num_bytes() + edges_.capacity() * sizeof(Edge) + rows_.num_bytes() + rows_of_nodes_.num_bytes() +
           row_table_.num_bytes();
  }

 private:
  struct Edge {
    std::uint32_t source;
    std::uint64_t position;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };

  /// Numbers the distinct nodes in order of discovery.
  std::size_t number_rows(const SubgraphNodes& nodes) {
    row_table_.next_batch();
    rows_.reserve(nodes.size() + 1, 0);
    rows_of_nodes_.reserve(nodes.size(), 0);
    row_table_.reserve(nodes.size(), rows_.data());
    for (std::size_t local = 0; local < nodes.size(); ++local) rows_of_nodes_[local] = nodes.node(local);
    row_table_.number({rows_of_nodes_.data(), nodes.size()}, rows_.data());
    return row_table_.num_nodes();
  }

  bool has_weights_;
  std::size_t num_edges_ = 0;
  std::vector<std::int64_t> list_ends_{0};
  GrowingArray<std::uint32_t> sources_;
  GrowingArray<std::uint64_t> positions_;
  GrowingArray<float> weights_;
  std::vector<Edge> edges_;  // with opposites, by target
  NodeTable<std::uint64_t> row_table_;
  GrowingArray<std::uint64_t> rows_;
  GrowingArray<std::uint64_t> rows_of_nodes_;
};

}  // namespace diskhop
