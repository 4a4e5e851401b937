#include "diskhop/graph/stream_clusters.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

}  // namespace

StreamClusters::StreamClusters(std::span<const std::int64_t> indptr, std::uint32_t num_clusters, std::uint64_t capacity)
    : indptr_(indptr), capacity_(capacity) {
  if (indptr.empty()) throw std::invalid_argument("indptr is empty: it has one element more than nodes");
  const std::uint64_t num_nodes = indptr.size() - 1;
  if (num_clusters < 1 || num_clusters > std::uint32_t{1} << 31 || capacity > num_nodes + 1 ||
      capacity * num_clusters < num_nodes) {
    throw std::invalid_argument(std::to_string(num_clusters) + " clusters of up to " + std::to_string(capacity) +
                                " nodes do not have " + std::to_string(num_nodes) + " nodes");
  }
  cluster_of_.assign(num_nodes, nowhere);
  sizes_.resize(num_clusters);
  counts_.assign(num_clusters, 0);
}

void StreamClusters::start_pass() {
  std::ranges::fill(sizes_, 0);
  by_size_ = {};
  for (std::uint32_t cluster = 0; cluster < sizes_.size(); ++cluster) by_size_.emplace(0, cluster);
  for (const std::uint32_t cluster : touched_) counts_[cluster] = 0;
  touched_.clear();
  node_ = position_ = num_inner_ = 0;
  assign_until(0);
}

template <typename Index>
void StreamClusters::feed(std::span<const Index> sources) {
  for (const Index source : sources) {
    const auto node = static_cast<std::uint64_t>(source);
    if (node_ >= cluster_of_.size()) throw std::out_of_range("there are more sources than edges");
    if (node >= cluster_of_.size()) {
      throw std::out_of_range("topology is damaged: a source is " + std::to_string(source) + ", the graph has " +
                              std::to_string(cluster_of_.size()) + " nodes");
    }
    if (node != node_ && cluster_of_[node] != nowhere) count(cluster_of_[node]);
    assign_until(++position_);
  }
}

void StreamClusters::end_pass() {
  if (node_ != cluster_of_.size()) throw std::out_of_range("sources of the last lists are missing");
}

void StreamClusters::count(std::uint32_t cluster) {
  if (counts_[cluster]++ == 0) touched_.push_back(cluster);
}

/// Assigns the nodes whose lists end at a position.
void StreamClusters::assign_until(std::uint64_t position) {
  while (node_ < cluster_of_.size() && static_cast<std::uint64_t>(indptr_[node_ + 1]) <= position) assign_node();
}

void StreamClusters::assign_node() {
  std::uint32_t best = nowhere;
  double best_score = 0;
  for (const std::uint32_t cluster : touched_) {
    const std::uint64_t size = sizes_[cluster];
    if (size >= capacity_) continue;
    const double score = counts_[cluster] * (1.0 - static_cast<double>(size) / static_cast<double>(capacity_));
    const bool is_better = best == nowhere || score > best_score ||
                           (score == best_score && (size < sizes_[best] || (size == sizes_[best] && cluster < best)));
    if (is_better) {
      best = cluster;
      best_score = score;
    }
  }
  if (best == nowhere) best = smallest_cluster();
  num_inner_ += counts_[best];
  for (const std::uint32_t cluster : touched_) counts_[cluster] = 0;
  touched_.clear();
  ++sizes_[best];
  cluster_of_[node_++] = best;
}

std::uint32_t StreamClusters::smallest_cluster() {
  while (true) {
    const auto [size, cluster] = by_size_.top();
    by_size_.pop();
    by_size_.emplace(sizes_[cluster], cluster);
    if (size == sizes_[cluster]) return cluster;
  }
}

template void StreamClusters::feed<std::uint32_t>(std::span<const std::uint32_t>);
template void StreamClusters::feed<std::int64_t>(std::span<const std::int64_t>);

}  // namespace diskhop
