// Workspace of one batch that is sampled by budget; see budget.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "diskhop/base/random.hpp"
#include "diskhop/sampling/graph_types.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/local_ids.hpp"
#include "sampling/picks.hpp"
#include "sampling/subgraph_edges.hpp"
#include "sampling/subgraph_nodes.hpp"
#include "sampling/whole_lists.hpp"

namespace diskhop {

/// Samples one batch at a time; keeps its memory for the next. Threading: one thread at a time.
template <typename Lists>
class BudgetWorkspace {
  using Index = typename Lists::Id;

 public:
  explicit BudgetWorkspace(const Lists& topology)
      : types_(topology.types),
        nodes_(topology.num_nodes(), false),
        lists_(topology),
        of_types_(types_ == nullptr ? 1 : types_->num_node_types()) {}

  void start(std::span<const std::int64_t> seeds) {
    lists_.start();
    edges_.clear();
    table_.next_batch();
    budgets_.clear();
    num_expanded_ = 0;
    num_sampled_nodes_.assign(1, static_cast<std::int64_t>(seeds.size()));
    nodes_.start(seeds);
  }

  /// Chooses nodes among the neighbours of the batch. counts: of each node type. Hop: one that takes whole lists.
  template <typename Hop>
  void expand(const Hop& hop, std::span<const std::int64_t> counts, std::uint64_t hop_key) {
    const std::size_t num_known = nodes_.size();
    lists_.for_each(hop, nodes_, num_expanded_, num_known,
                    [this](const FoundList& list, const Index* neighbors) { add_budgets(list, neighbors); });
    num_expanded_ = num_known;
    rank(hop_key);
    for (std::size_t type = 0; type < of_types_.size(); ++type) {
      take(of_types_[type], static_cast<std::uint64_t>(counts[type]));
    }
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(nodes_.size() - num_known));
  }

  /// Copies the batch, with all edges among its nodes, to memory of its size.
  template <typename Hop>
  [[nodiscard]] SampledBlocks finish(const Hop& hop, BufferPool& pool) {
    lists_.for_each(hop, nodes_, 0, nodes_.size(), [this](const ListOfNode& list, const Index* neighbors) {
      edges_.end_lists(list.node);
      edges_.reserve(list.degree);
      for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
        const auto source = nodes_.find(static_cast<std::uint64_t>(neighbors[edge]), 0);
        if (source) edges_.add(*source, list.begin + edge);
      }
    });
    edges_.end_lists(nodes_.size());
    SampledBlocks blocks = edges_.lay_out(nodes_, false, pool);
    std::int64_t first = 0;
    for (const std::int64_t count : num_sampled_nodes_) {
      blocks.num_sampled_edges.push_back(edges_.list_end(first + count) - edges_.list_end(first));
      first += count;
    }
    blocks.num_sampled_nodes = num_sampled_nodes_;
    blocks.num_sampled_nodes.push_back(0);
    blocks.read_counts = lists_.counts();
    return blocks;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    std::size_t ranked = 0;
    for (const auto& of_type : of_types_) ranked += of_type.capacity() * sizeof(Ranked);
    return nodes_.num_bytes() + edges_.num_bytes() + lists_.num_bytes() + table_.num_bytes() + candidates_.num_bytes() +
           budgets_.capacity() * sizeof(double) + ranked;
  }
  [[nodiscard]] std::size_t reading_bytes() const { return lists_.reading_bytes(); }

 private:
  struct Ranked {
    double key;
    std::uint64_t node;
    std::size_t candidate;
    friend auto operator<=>(const Ranked&, const Ranked&) = default;
  };
  static constexpr double taken = -1;  // the budget of a node of the batch

  void add_budgets(const FoundList& list, const Index* neighbors) {
    const double share = 1 / static_cast<double>(list.degree);
    for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
      const auto node = static_cast<std::uint64_t>(neighbors[edge]);
      const std::size_t num_known = table_.num_nodes();
      candidates_.reserve(num_known + 2, num_known);  // one more value is written
      table_.reserve(num_known + 1, candidates_.data());
      std::uint64_t candidate = node;
      table_.number({&candidate, 1}, candidates_.data());
      if (candidate == budgets_.size()) budgets_.push_back(nodes_.find(node, 0) ? taken : 0);
      if (budgets_[candidate] != taken) budgets_[candidate] += share;
    }
  }

  /// Sorts the candidates by type and gives each its key.
  void rank(std::uint64_t hop_key) {
    for (auto& of_type : of_types_) of_type.clear();
    for (std::size_t candidate = 0; candidate < budgets_.size(); ++candidate) {
      const double budget = budgets_[candidate];
      if (budget == taken) continue;
      const std::uint64_t node = candidates_[candidate];
      const double key = negative_log(draw64(absorb(hop_key, node), 0)) / (budget * budget);
      of_types_[types_ == nullptr ? 0 : types_->type_of(node)].push_back({key, node, candidate});
    }
  }

  void take(std::vector<Ranked>& of_type, std::uint64_t count) {
    if (of_type.size() > count) {
      const auto end = of_type.begin() + static_cast<std::ptrdiff_t>(count);
      std::ranges::nth_element(of_type, end);
      of_type.erase(end, of_type.end());
      std::ranges::sort(of_type);
    }
    nodes_.reserve(of_type.size());
    for (const Ranked& chosen : of_type) {
      nodes_.number(chosen.node, 0);
      budgets_[chosen.candidate] = taken;
    }
  }

  const GraphTypes* types_;
  SubgraphNodes nodes_;
  SubgraphEdges edges_;
  WholeLists<Lists> lists_;
  std::size_t num_expanded_ = 0;
  std::vector<std::int64_t> num_sampled_nodes_;
  // Candidates in the order in which they were reached, and their budgets.
  NodeTable<std::uint64_t> table_;
  GrowingArray<std::uint64_t> candidates_;
  std::vector<double> budgets_;
  std::vector<std::vector<Ranked>> of_types_;
};

}  // namespace diskhop
