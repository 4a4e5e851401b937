// Workspace of one batch of a sampler with NeighborOptions: hop by hop, in pieces that bound its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "diskhop/base/random.hpp"
#include "diskhop/sampling/variants.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/list_draws.hpp"
#include "sampling/list_reader.hpp"
#include "sampling/subgraph_edges.hpp"
#include "sampling/subgraph_nodes.hpp"

namespace diskhop {

// Edges looked at in one piece. Reads of a piece wait for the disk together.
inline constexpr std::size_t edges_per_piece = std::size_t{1} << 17;

/// Samples one batch at a time; keeps its memory for the next. Threading: one thread at a time.
template <typename Lists>
class VariantWorkspace {
 public:
  VariantWorkspace(const Lists& topology, const NeighborOptions& options)
      : options_(options),
        is_typed_(topology.types != nullptr),
        nodes_(topology.num_nodes(), options.is_disjoint),
        reader_(topology),
        draws_(options) {}

  void start(std::span<const std::int64_t> seeds, std::span<const std::int64_t> times) {
    reader_.start();
    edges_.clear();
    num_expanded_ = 0;
    num_sampled_nodes_.assign(1, static_cast<std::int64_t>(seeds.size()));
    num_sampled_edges_.clear();
    nodes_.start(seeds);
    if (options_.nodes_per_partition > 0) {
      take_residents(seeds, times);
      return;
    }
    latest_.assign(times.begin(), times.end());
    if (draws_.has_times() && times.size() < seeds.size()) read_seed_times(seeds);
  }

  /// Expands the nodes that the previous hop discovered.
  template <typename Hop>
  void expand(const Hop& hop, std::uint64_t hop_key) {
    const std::size_t num_known = nodes_.size();
    const std::size_t first_edge = edges_.size();
    for_each_piece(num_expanded_, num_known, hop, draws_.looks_at_lists(), [&] { draw_piece(hop_key); });
    num_expanded_ = num_known;
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(nodes_.size() - num_known));
    num_sampled_edges_.push_back(static_cast<std::int64_t>(edges_.size() - first_edge));
  }

  /// Copies the batch to memory of its size. hops: those that were expanded.
  [[nodiscard]] SampledBlocks finish(const Hops& hops, BufferPool& pool) {
    if (options_.subgraph != Subgraph::directional) take_all_nodes(hops);
    SampledBlocks blocks = edges_.lay_out(nodes_, options_.is_disjoint, pool);
    blocks.num_sampled_nodes = num_sampled_nodes_;
    blocks.num_sampled_edges = num_sampled_edges_;
    blocks.read_counts = reader_.counts();
    return blocks;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return nodes_.num_bytes() + edges_.num_bytes() + draws_.num_bytes() + lists_.capacity() * sizeof(ListOfNode) +
           (positions_.capacity() + neighbors_.capacity()) * sizeof(std::uint64_t) +
           weights_.capacity() * sizeof(double) + (times_.capacity() + latest_.capacity()) * sizeof(std::int64_t) +
           counts_.capacity() * sizeof(std::size_t);
  }

  /// More bytes, if no list, weight or time is in memory.
  [[nodiscard]] std::size_t reading_bytes() const { return most_edges_in_piece_ * EdgeRequest::bytes_per_edge; }

 private:
  /// Calls a function with the lists of some nodes after another: lists_, up to those of piece_end_.
  template <typename Hop, typename Work>
  void for_each_piece(std::size_t begin, std::size_t end, const Hop& hop, bool takes_lists, Work work) {
    while (begin < end) {
      lists_.clear();
      std::size_t num_edges = 0;
      for (; begin < end; ++begin) {
        const std::size_t num_lists = lists_.size();
        std::uint64_t num_more = 0;
        hop.for_each_list(nodes_.node(begin), [&](std::uint64_t list, std::uint64_t fanout) {
          const FoundList found = reader_.find(list);
          lists_.push_back({found, begin, fanout});
          num_more += takes_lists ? found.degree : draws_.count(found.degree, fanout);
        });
        if (num_lists > 0 && num_edges + num_more > edges_per_piece) {
          lists_.resize(num_lists);
          break;
        }
        num_edges += num_more;
        if (num_edges > max_batch_nodes) refuse_batch_size();
      }
      piece_end_ = begin;
      most_edges_in_piece_ = std::max(most_edges_in_piece_, num_edges);
      work();
    }
  }

  void draw_piece(std::uint64_t hop_key) {
    if (draws_.looks_at_lists()) read_values();
    positions_.clear();
    counts_.clear();
    std::size_t first_value = 0;
    for (std::size_t place = 0; place < lists_.size(); ++place) {
      const ListOfNode& list = lists_[place];
      const std::uint64_t seed = nodes_.seed_of(list.node);
      ListToDraw from{.list = list, .fanout = list.fanout, .hop_key = hop_key, .latest = 0, .weights = {}, .times = {}};
      if (options_.is_disjoint) from.hop_key = absorb(hop_key, seed);
      if (options_.weights.exists) from.weights = {weights_.data() + first_value, list.degree};
      if (draws_.has_times()) {
        from.times = {times_.data() + first_value, list.degree};
        from.latest = latest_[seed];
      }
      counts_.push_back(draws_.draw(from, positions_));
      first_value += list.degree;
    }
    read_neighbors();
    follow_edges();
  }

  /// Reads the weights and times of the piece's lists.
  void read_values() {
    std::size_t num_edges = 0;
    for (const ListOfNode& list : lists_) num_edges += list.degree;
    if (options_.weights.exists) {
      weights_.resize(num_edges);
      reader_.read_column(options_.weights, lists_, weights_.data());
    }
    if (options_.edge_times.exists) {
      times_.resize(num_edges);
      reader_.read_column(options_.edge_times, lists_, times_.data());
    } else if (draws_.has_times()) {
      take_whole_lists();
      read_neighbors();
      times_.resize(num_edges);
      for (std::size_t edge = 0; edge < num_edges; ++edge) {
        const std::uint64_t node = neighbors_[edge];
        times_[edge] = options_.node_times.exists ? time_of_node(node) : is_resident(node) ? 0 : 1;
      }
    }
  }

  /// Sets positions_ to all edges of the piece's lists.
  void take_whole_lists() {
    positions_.clear();
    counts_.clear();
    for (const ListOfNode& list : lists_) {
      for (std::uint64_t edge = 0; edge < list.degree; ++edge) positions_.push_back(list.begin + edge);
      counts_.push_back(list.degree);
    }
  }

  void read_neighbors() {
    neighbors_.resize(positions_.size());
    reader_.read_neighbors(lists_, counts_, positions_, neighbors_.data());
  }

  /// Numbers the neighbours of the drawn edges.
  void follow_edges() {
    nodes_.reserve(positions_.size());
    if (options_.subgraph != Subgraph::induced) edges_.reserve(positions_.size());
    std::size_t edge = 0;
    for (std::size_t place = 0; place < lists_.size(); ++place) {
      const std::uint64_t seed = nodes_.seed_of(lists_[place].node);
      if (options_.subgraph != Subgraph::induced) edges_.end_lists(lists_[place].node);
      for (const std::size_t end = edge + counts_[place]; edge < end; ++edge) {
        const std::uint32_t source = nodes_.number(neighbors_[edge], seed);
        if (options_.subgraph != Subgraph::induced) edges_.add(source, positions_[edge]);
      }
    }
    if (options_.subgraph != Subgraph::induced) edges_.end_lists(piece_end_);
  }

  /// Replaces the drawn edges by those of all nodes, which is one more hop without new nodes.
  void take_all_nodes(const Hops& hops) {
    if (options_.subgraph == Subgraph::induced) {
      hops.with_whole_lists([this](const auto& whole_lists) {
        for_each_piece(0, nodes_.size(), whole_lists, true, [this] { induce_piece(); });
      });
    } else {
      edges_.add_opposites(nodes_.size());
    }
    num_sampled_nodes_.push_back(0);
    num_sampled_edges_.clear();
    std::int64_t first = 0;
    for (std::size_t hop = 0; hop + 1 < num_sampled_nodes_.size(); ++hop) {
      const std::int64_t end = first + num_sampled_nodes_[hop];
      num_sampled_edges_.push_back(edges_.list_end(end) - edges_.list_end(first));
      first = end;
    }
  }

  /// Adds the edges of the piece's lists whose sources are nodes of the batch.
  void induce_piece() {
    if (options_.edge_times.exists) read_values();
    take_whole_lists();
    read_neighbors();
    edges_.reserve(positions_.size());
    std::size_t edge = 0;
    for (std::size_t place = 0; place < lists_.size(); ++place) {
      const std::uint64_t seed = nodes_.seed_of(lists_[place].node);
      edges_.end_lists(lists_[place].node);
      for (const std::size_t end = edge + counts_[place]; edge < end; ++edge) {
        if (options_.edge_times.exists && times_[edge] > latest_[seed]) continue;
        if (const auto source = nodes_.find(neighbors_[edge], seed)) edges_.add(*source, positions_[edge]);
      }
    }
    edges_.end_lists(piece_end_);
  }

  /// Takes the resident partitions of a batch, the same for all seeds.
  void take_residents(std::span<const std::int64_t> seeds, std::span<const std::int64_t> partitions) {
    if (partitions.size() != seeds.size()) {
      throw std::invalid_argument("the seeds have no resident partitions, which sampling among them needs");
    }
    residents_ = partitions.empty() ? 0 : static_cast<std::uint64_t>(partitions.front());
    for (std::size_t place = 0; place < seeds.size(); ++place) {
      if (static_cast<std::uint64_t>(partitions[place]) != residents_) {
        throw std::invalid_argument("the seeds of a batch have different resident partitions");
      }
      if (!is_resident(static_cast<std::uint64_t>(seeds[place]))) {
        throw std::invalid_argument("seed " + std::to_string(seeds[place]) + " is in no resident partition");
      }
    }
    latest_.assign(options_.is_disjoint ? seeds.size() : 1, 0);
  }

  [[nodiscard]] bool is_resident(std::uint64_t node) const {
    return (residents_ >> node / options_.nodes_per_partition & 1) != 0;
  }

  void read_seed_times(std::span<const std::int64_t> seeds) {
    if (options_.edge_times.exists) {
      throw std::invalid_argument("the seeds have no times, which sampling by the times of edges needs");
    }
    for (const std::int64_t seed : seeds) {
      latest_.push_back(time_of_node(static_cast<std::uint64_t>(seed)));
      if (is_typed_ && latest_.back() == std::numeric_limits<std::int64_t>::min()) {
        throw std::invalid_argument("the seeds have no times, and are of a type without any");
      }
    }
  }

  [[nodiscard]] std::int64_t time_of_node(std::uint64_t node) const {
    std::int64_t time = 0;
    const Column& column = options_.node_times;
    convert(column.type, column.values.data() + node * bytes_of(column.type), 1, &time);
    return time;
  }

  NeighborOptions options_;
  bool is_typed_;
  SubgraphNodes nodes_;
  SubgraphEdges edges_;
  ListReader<Lists> reader_;
  ListDraws draws_;
  std::size_t num_expanded_ = 0;
  std::vector<std::int64_t> latest_;  // of each seed
  std::uint64_t residents_ = 0;       // a bit per partition
  std::vector<std::int64_t> num_sampled_nodes_;
  std::vector<std::int64_t> num_sampled_edges_;
  // Of one piece:
  std::size_t piece_end_ = 0;  // the node after the last one
  std::vector<ListOfNode> lists_;
  std::vector<double> weights_;  // of whole lists, as times_
  std::vector<std::int64_t> times_;
  std::vector<std::size_t> counts_;  // positions per list
  std::vector<std::uint64_t> positions_;
  std::vector<std::uint64_t> neighbors_;
  std::size_t most_edges_in_piece_ = 0;
};

}  // namespace diskhop
