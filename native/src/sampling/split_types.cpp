#include "diskhop/sampling/split_types.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace diskhop {
namespace {

class Splitter {
 public:
  Splitter(const GraphTypes& types, std::span<const std::int64_t> edge_starts) : types_(types), starts_(edge_starts) {
    if (starts_.size() != types.num_edge_types() + 1 || starts_.front() != 0 || !std::ranges::is_sorted(starts_)) {
      throw std::invalid_argument("each edge type needs a first edge, ascending from 0, and the last one an end");
    }
    split_.nodes.resize(types.num_node_types());
    split_.edges.resize(types.num_edge_types());
  }

  void add_nodes(std::span<const std::int64_t> node_ids) {
    type_of_node_.reserve(node_ids.size());
    within_type_.reserve(node_ids.size());
    for (std::size_t place = 0; place < node_ids.size(); ++place) {
      const auto node = static_cast<std::uint64_t>(node_ids[place]);
      if (node >= types_.num_nodes()) {
        throw std::invalid_argument("node " + std::to_string(node_ids[place]) + " is not in the graph");
      }
      const std::size_t type = types_.type_of(node);
      SplitBatch::Nodes& nodes = split_.nodes[type];
      type_of_node_.push_back(static_cast<std::uint32_t>(type));
      within_type_.push_back(static_cast<std::int32_t>(nodes.places.size()));
      nodes.node_ids.push_back(node_ids[place] - types_.node_starts()[type]);
      nodes.places.push_back(static_cast<std::int64_t>(place));
    }
  }

  void add_edges(std::span<const std::int64_t> indptr, std::span<const std::int32_t> sources,
                 std::span<const std::int64_t> positions) {
    reserve_edges(positions);
    for (SplitBatch::Edges& edges : split_.edges) edges.indptr.push_back(0);
    for (std::size_t node = 0; node + 1 < indptr.size(); ++node) {
      for (std::int64_t edge = indptr[node]; edge < indptr[node + 1];) {
        edge = add_run(edge, indptr[node + 1], sources, positions);
      }
      for (const GraphTypes::ListOfType& list : types_.lists_of_type(type_of_node_[node])) {
        SplitBatch::Edges& edges = split_.edges[list.edge_type];
        edges.indptr.push_back(static_cast<std::int64_t>(edges.places.size()));
      }
    }
    for (const SplitBatch::Edges& edges : split_.edges) {
      if (edges.indptr.back() != static_cast<std::int64_t>(edges.places.size())) {
        throw std::invalid_argument("an edge ends at a node of another type than its own");
      }
    }
  }

  SplitBatch take() { return std::move(split_); }

 private:
  /// Adds consecutive edges of one type, from `first` on, and returns the next edge.
  std::int64_t add_run(std::int64_t first, std::int64_t end, std::span<const std::int32_t> sources,
                       std::span<const std::int64_t> positions) {
    const std::size_t type = edge_type_of(positions[first]);
    std::int64_t stop = first + 1;
    while (stop < end && starts_[type] <= positions[stop] && positions[stop] < starts_[type + 1]) ++stop;
    SplitBatch::Edges& edges = split_.edges[type];
    const std::size_t num_before = edges.places.size();
    const auto count = static_cast<std::size_t>(stop - first);
    edges.sources.resize(num_before + count);
    edges.positions.resize(num_before + count);
    edges.places.resize(num_before + count);
    std::iota(edges.places.begin() + static_cast<std::ptrdiff_t>(num_before), edges.places.end(), first);
    std::uint32_t largest = 0;
    for (std::size_t edge = 0; edge < count; ++edge) {
      edges.positions[num_before + edge] = positions[first + edge] - starts_[type];
      largest = std::max(largest, static_cast<std::uint32_t>(sources[first + edge]));
    }
    if (largest >= within_type_.size()) throw std::invalid_argument("a source is not a node of the batch");
    for (std::size_t edge = 0; edge < count; ++edge) {
      edges.sources[num_before + edge] = within_type_[sources[first + edge]];
    }
    return stop;
  }

  /// Reserves memory: growing arrays would be copied several times.
  void reserve_edges(std::span<const std::int64_t> positions) {
    std::vector<std::size_t> counts(split_.edges.size(), 0);
    for (const std::int64_t position : positions) ++counts[edge_type_of(position)];
    for (std::size_t type = 0; type < counts.size(); ++type) {
      split_.edges[type].sources.reserve(counts[type]);
      split_.edges[type].positions.reserve(counts[type]);
      split_.edges[type].places.reserve(counts[type]);
    }
  }

  /// The edges of a node come type after type: mostly it is that of the edge before.
  std::size_t edge_type_of(std::int64_t position) {
    if (last_type_ + 1 < starts_.size() && starts_[last_type_] <= position && position < starts_[last_type_ + 1]) {
      return last_type_;
    }
    if (position < 0 || position >= starts_.back()) {
      throw std::invalid_argument("edge " + std::to_string(position) + " is not in the graph");
    }
    last_type_ = static_cast<std::size_t>(std::ranges::upper_bound(starts_, position) - starts_.begin()) - 1;
    return last_type_;
  }

  const GraphTypes& types_;
  std::span<const std::int64_t> starts_;
  SplitBatch split_;
  std::vector<std::uint32_t> type_of_node_;
  std::vector<std::int32_t> within_type_;
  std::size_t last_type_ = 0;
};

}  // namespace

SplitBatch split_types(const GraphTypes& types, std::span<const std::int64_t> edge_starts,
                       std::span<const std::int64_t> node_ids, std::span<const std::int64_t> indptr,
                       std::span<const std::int32_t> sources, std::span<const std::int64_t> edge_positions) {
  if (indptr.empty() || indptr.front() != 0 || !std::ranges::is_sorted(indptr) ||
      indptr.back() != static_cast<std::int64_t>(sources.size()) || sources.size() != edge_positions.size() ||
      indptr.size() > node_ids.size() + 1) {
    throw std::invalid_argument("the batch's indptr does not fit its nodes and edges");
  }
  Splitter splitter(types, edge_starts);
  splitter.add_nodes(node_ids);
  splitter.add_edges(indptr, sources, edge_positions);
  return splitter.take();
}

}  // namespace diskhop
