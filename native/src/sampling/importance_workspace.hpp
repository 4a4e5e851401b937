// Workspace of one batch of a sampler that chooses nodes: hop by hop, in pieces of whole lists.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "diskhop/sampling/importance.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/keep_rules.hpp"
#include "sampling/local_ids.hpp"
#include "sampling/node_draws.hpp"
#include "sampling/subgraph_edges.hpp"
#include "sampling/subgraph_nodes.hpp"
#include "sampling/whole_lists.hpp"

namespace diskhop {

/// Samples one batch at a time; keeps its memory for the next. Candidates: NodeArray or NodeTable, which numbers the
/// candidates of a hop. Threading: one thread at a time.
template <typename Lists, typename Candidates>
class ImportanceWorkspace {
  using Index = typename Lists::Id;

 public:
  ImportanceWorkspace(const Lists& topology, ImportanceMethod method, Candidates table)
      : indptr_(topology.indptr),
        method_(method),
        nodes_(topology.num_nodes(), false),
        edges_(has_edge_weights(method)),
        lists_(topology),
        table_(std::move(table)) {}

  void start(std::span<const std::int64_t> seeds) {
    lists_.start();
    edges_.clear();
    num_expanded_ = 0;
    num_sampled_nodes_.assign(1, static_cast<std::int64_t>(seeds.size()));
    num_sampled_edges_.clear();
    nodes_.start(seeds);
  }

  /// Expands the nodes that the previous hop discovered. degree_scale: of fastgcn, for the hop's fan-out.
  template <typename Hop>
  void expand(const Hop& hop, const NodeDraws& draw, double degree_scale) {
    const std::size_t num_known = nodes_.size();
    const std::size_t first_edge = edges_.size();
    if (method_ == ImportanceMethod::labor) {
      lists_.for_each(hop, nodes_, num_expanded_, num_known, [&](const ListOfNode& list, const Index* neighbors) {
        edges_.end_lists(list.node);
        keep_share(list, neighbors, list.fanout, draw);
      });
    } else if (method_ == ImportanceMethod::fastgcn) {
      lists_.for_each(hop, nodes_, num_expanded_, num_known, [&](const ListOfNode& list, const Index* neighbors) {
        edges_.end_lists(list.node);
        keep_by_degree(list, neighbors, draw, degree_scale);
      });
    } else {
      expand_by_candidates(hop, num_known, draw);
    }
    edges_.end_lists(num_known);
    num_expanded_ = num_known;
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(nodes_.size() - num_known));
    num_sampled_edges_.push_back(static_cast<std::int64_t>(edges_.size() - first_edge));
  }

  /// Copies the batch to memory of its size.
  [[nodiscard]] SampledBlocks finish(BufferPool& pool) {
    SampledBlocks blocks = edges_.lay_out(nodes_, false, pool);
    blocks.num_sampled_nodes = num_sampled_nodes_;
    blocks.num_sampled_edges = num_sampled_edges_;
    blocks.read_counts = lists_.counts();
    return blocks;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return nodes_.num_bytes() + edges_.num_bytes() + lists_.num_bytes() + kept_.capacity() * sizeof(KeptEdge) +
           table_.num_bytes() + candidates_.num_bytes() + candidate_of_edge_.num_bytes() + priorities_.num_bytes() +
           (sizes_.capacity() + list_sizes_.capacity()) * sizeof(double);
  }

  /// More bytes, if no list is in memory.
  [[nodiscard]] std::size_t reading_bytes() const { return lists_.reading_bytes(); }

 private:
  struct KeptEdge {
    std::uint64_t neighbor;
    std::uint64_t position;
    double weight;
  };
  static constexpr std::size_t edges_per_part = 4096;

  /// Calls a function with parts of a list, for which the batch has memory, if all their nodes are new.
  template <typename Work>
  void for_each_part(const FoundList& list, Work work) {
    for (std::uint64_t begin = 0; begin < list.degree; begin += edges_per_part) {
      const std::uint64_t end = std::min<std::uint64_t>(list.degree, begin + edges_per_part);
      nodes_.reserve(end - begin);
      edges_.reserve(end - begin);
      work(begin, end);
    }
  }

  /// Keeps the edges of a list whose nodes draw less than the list's share.
  void keep_share(const FoundList& list, const Index* neighbors, std::uint64_t fanout, const NodeDraws& draw) {
    const bool takes_all = list.degree <= fanout;
    const std::uint64_t limit = num_draws_below(kept_share(list.degree, fanout));
    for_each_part(list, [&](std::uint64_t begin, std::uint64_t end) {
      std::array<std::uint32_t, edges_per_part + 1> kept;  // one more is written
      std::size_t num_kept = 0;
      for (std::uint64_t edge = begin; edge < end; ++edge) {
        // No branch on draws, which cannot be predicted.
        kept[num_kept] = static_cast<std::uint32_t>(edge - begin);
        num_kept += takes_all || draw(static_cast<std::uint64_t>(neighbors[edge])) < limit ? 1 : 0;
      }
      for (std::size_t place = 0; place < num_kept; ++place) {
        const std::uint64_t edge = begin + kept[place];
        add(static_cast<std::uint64_t>(neighbors[edge]), list.begin + edge, 1);
      }
    });
  }

  /// Keeps the edges of a list whose nodes are among those of the hop, which are chosen by degree.
  void keep_by_degree(const FoundList& list, const Index* neighbors, const NodeDraws& draw, double scale) {
    for_each_part(list, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t edge = begin; edge < end; ++edge) {
        const auto neighbor = static_cast<std::uint64_t>(neighbors[edge]);
        // In unsigned numbers: of a damaged file the list, which is not read here, may end before it begins.
        const auto begin_edge = static_cast<std::uint64_t>(indptr_[neighbor]);
        const auto end_edge = static_cast<std::uint64_t>(indptr_[neighbor + 1]);
        const auto size = static_cast<double>(end_edge - begin_edge + 1);
        const double probability = std::min(1.0, scale * size);
        if (as_fraction(draw(neighbor)) < probability) add(neighbor, list.begin + edge, 1 / probability);
      }
    });
  }

  /// Numbers the distinct neighbours of all lists, sizes them, and then keeps edges by that.
  template <typename Hop>
  void expand_by_candidates(const Hop& hop, std::size_t end, const NodeDraws& draw) {
    table_.next_batch();
    sizes_.clear();
    std::size_t num_edges = 0;
    std::uint64_t most_chosen = 0;  // of ladies, whose lists have one fan-out
    lists_.for_each(hop, nodes_, num_expanded_, end, [&](const ListOfNode& list, const Index* neighbors) {
      if (num_edges + list.degree > max_batch_nodes) refuse_batch_size();
      number_candidates(list, neighbors, num_edges);
      size_candidates(list, list.fanout, num_edges);
      num_edges += list.degree;
      most_chosen = list.fanout;
    });
    if (method_ == ImportanceMethod::ladies) {
      priorities_.choose({candidates_.data(), sizes_.size()}, sizes_, most_chosen, draw);
    }
    std::size_t first = 0;
    for (std::size_t node = num_expanded_; node < end; ++node) {
      edges_.end_lists(node);
      hop.for_each_list(nodes_.node(node), [&](std::uint64_t number, std::uint64_t fanout) {
        const FoundList list = lists_.find(number);
        if (method_ == ImportanceMethod::ladies) {
          keep_chosen(list, first);
        } else {
          keep_balanced(list, first, fanout, draw);
        }
        first += list.degree;
      });
    }
  }

  void number_candidates(const FoundList& list, const Index* neighbors, std::size_t first) {
    candidate_of_edge_.reserve(first + list.degree, first);
    for (std::uint64_t begin = 0; begin < list.degree; begin += edges_per_part) {
      const std::size_t count = std::min<std::uint64_t>(list.degree - begin, edges_per_part);
      std::array<std::uint64_t, edges_per_part> entries;
      std::transform(neighbors + begin, neighbors + begin + count, entries.begin(),
                     [](Index neighbor) { return static_cast<std::uint64_t>(neighbor); });
      const std::size_t num_known = table_.num_nodes();
      candidates_.reserve(num_known + count + 1, num_known);  // one more value is written
      table_.reserve(num_known + count, candidates_.data());
      table_.number({entries.data(), count}, candidates_.data());
      std::transform(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count),
                     candidate_of_edge_.data() + first + begin,
                     [](std::uint64_t candidate) { return static_cast<std::uint32_t>(candidate); });
    }
    sizes_.resize(table_.num_nodes(), 0);
  }

  void size_candidates(const FoundList& list, std::uint64_t fanout, std::size_t first) {
    const double share = kept_share(list.degree, fanout);
    const double inverse = list.degree == 0 ? 0 : 1 / static_cast<double>(list.degree);
    for (std::size_t edge = first; edge < first + list.degree; ++edge) {
      double& size = sizes_[candidate_of_edge_[edge]];
      size = method_ == ImportanceMethod::ladies ? size + inverse * inverse : std::max(size, share);
    }
  }

  void keep_chosen(const FoundList& list, std::size_t first) {
    for_each_part(list, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t edge = begin; edge < end; ++edge) {
        const std::uint32_t candidate = candidate_of_edge_[first + edge];
        if (sizes_[candidate] > 0) add(candidates_[candidate], list.begin + edge, 1 / sizes_[candidate]);
      }
    });
  }

  void keep_balanced(const FoundList& list, std::size_t first, std::uint64_t fanout, const NodeDraws& draw) {
    list_sizes_.clear();
    for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
      list_sizes_.push_back(sizes_[candidate_of_edge_[first + edge]]);
    }
    const double scale = find_scale(list_sizes_, fanout);
    kept_.clear();
    double sum = 0;
    for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
      const std::uint64_t neighbor = candidates_[candidate_of_edge_[first + edge]];
      const double probability = std::min(1.0, scale * list_sizes_[edge]);
      if (!(as_fraction(draw(neighbor)) < probability)) continue;
      kept_.push_back({neighbor, list.begin + edge, 1 / probability});
      sum += 1 / probability;
    }
    nodes_.reserve(kept_.size());
    edges_.reserve(kept_.size());
    const auto num_kept = static_cast<double>(kept_.size());
    for (const KeptEdge& edge : kept_) add(edge.neighbor, edge.position, edge.weight * num_kept / sum);
  }

  void add(std::uint64_t neighbor, std::uint64_t position, double weight) {
    edges_.add(nodes_.number(neighbor, 0), position, static_cast<float>(weight));
  }

  std::span<const std::int64_t> indptr_;
  ImportanceMethod method_;
  SubgraphNodes nodes_;
  SubgraphEdges edges_;
  WholeLists<Lists> lists_;
  std::size_t num_expanded_ = 0;
  std::vector<std::int64_t> num_sampled_nodes_;
  std::vector<std::int64_t> num_sampled_edges_;
  std::vector<KeptEdge> kept_;  // of one list
  // Of one hop: its candidates, and what the methods that compare them know of each.
  Candidates table_;
  GrowingArray<std::uint64_t> candidates_;
  GrowingArray<std::uint32_t> candidate_of_edge_;
  std::vector<double> sizes_;
  std::vector<double> list_sizes_;
  PrioritySampler priorities_;
};

}  // namespace diskhop
