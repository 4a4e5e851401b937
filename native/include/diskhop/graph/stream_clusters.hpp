// Clusters of nodes with many edges among them, found in passes over the neighbour lists.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace diskhop {

/// Linear deterministic greedy partitioning (Stanton and Kliot, 2012), repeated (Nishimura and Ugander, 2013). Nodes
/// come in order. Each joins the cluster with the most of its in-neighbours, times the share of the cluster that is
/// free; of equals the smaller one, then the lower number. A node without neighbours in a cluster with space joins the
/// smallest. In later passes a neighbour that did not come yet is where the pass before put it.
///
/// Memory: 4 bytes per node, 16 per cluster and more while a pass runs. Threading: one thread at a time.
class StreamClusters {
 public:
  /// indptr: of the lists; it must outlive this object. capacity: most nodes of a cluster.
  /// Throws std::invalid_argument if the nodes cannot fit, or for fewer than 1 or more than 2^31 clusters.
  StreamClusters(std::span<const std::int64_t> indptr, std::uint32_t num_clusters, std::uint64_t capacity);

  void start_pass();
  /// Takes the next sources of the lists, in their order, as many as there are. Index is std::uint32_t or std::int64_t.
  /// Throws std::out_of_range for a source that is no node, or more sources than edges.
  template <typename Index>
  void feed(std::span<const Index> sources);
  /// Ends a pass. Throws std::out_of_range if sources are missing.
  void end_pass();

  [[nodiscard]] std::span<const std::uint32_t> cluster_of() const { return cluster_of_; }
  /// Number of edges within clusters that the last pass saw.
  [[nodiscard]] std::uint64_t num_inner_edges() const { return num_inner_; }

 private:
  using Entry = std::pair<std::uint64_t, std::uint32_t>;  // size, cluster

  void count(std::uint32_t cluster);
  void assign_node();
  void assign_until(std::uint64_t position);
  [[nodiscard]] std::uint32_t smallest_cluster();

  std::span<const std::int64_t> indptr_;
  std::uint64_t capacity_;
  std::vector<std::uint32_t> cluster_of_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint32_t> counts_;   // neighbours of the current node by cluster
  std::vector<std::uint32_t> touched_;  // clusters with a count
  // Sizes may be out of date: the true one is found when an entry is at the top.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> by_size_;
  std::uint64_t node_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t num_inner_ = 0;
};

extern template void StreamClusters::feed<std::uint32_t>(std::span<const std::uint32_t>);
extern template void StreamClusters::feed<std::int64_t>(std::span<const std::int64_t>);

}  // namespace diskhop
